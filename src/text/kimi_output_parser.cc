#include "text/kimi_output_parser.h"

#include <utility>

#include "base/text.h"

namespace quire {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(kBlanks) == std::string_view::npos;
}

}  // namespace

std::string_view kimi_call_name(std::string_view id) {
  constexpr std::string_view kPrefix = "functions.";
  const size_t colon = id.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == id.size()) return {};
  if (id.find_first_not_of("0123456789", colon + 1) != std::string_view::npos) return {};
  id = id.substr(0, colon);
  if (id.starts_with(kPrefix)) id.remove_prefix(kPrefix.size());
  return id;
}

KimiOutputParser::KimiOutputParser(const Tokenizer& tokenizer, const KimiTokens& tokens,
                                   const Options& options)
    : tokenizer_(tokenizer),
      tokens_(tokens),
      options_(options),
      state_(options.start == AnswerStart::in_thoughts ? State::reasoning : State::content) {}

void KimiOutputParser::push(Token token, Deltas* out) {
  const bool is_special = tokenizer_.is_special(token);
  if (!is_special) {
    add_bytes(tokenizer_.token_bytes(token), out);
  } else if (!take_mark(token, out)) {
    // Any other special token ends a character, and a head, before it.
    flush(out);
    if (state_ == State::head) give_up_head(out);
    const bool skip = options_.specials == SpecialText::skip_hidden && tokenizer_.is_hidden(token);
    if (!skip) add_text(std::string(tokenizer_.token_bytes(token)), out);
  }
  is_first_ = false;
}

bool KimiOutputParser::take_mark(Token token, Deltas* out) {
  switch (state_) {
    case State::reasoning:
      if (token == tokens_.think_begin) return is_first_;
      if (token != tokens_.think_end) return false;
      enter(State::content, out);
      return true;
    case State::content:
      if (token == tokens_.think_begin && is_first_) {
        enter(State::reasoning, out);
        return true;
      }
      if (token != tokens_.section_begin || options_.tools == ToolParsing::off) return false;
      enter(State::section, out);
      return true;
    case State::section:
    case State::head:
    case State::arguments:
      return take_mark_in_section(token, out);
  }
  return false;
}

bool KimiOutputParser::take_mark_in_section(Token token, Deltas* out) {
  if (token == tokens_.argument_begin && state_ == State::head) {
    flush(out);
    begin_call(out);
    return true;
  }
  const bool ends_call = token == tokens_.call_end && state_ == State::arguments;
  if (!ends_call && token != tokens_.call_begin && token != tokens_.section_end) return false;
  flush(out);
  if (state_ == State::head) give_up_head(out);
  if (state_ == State::arguments) {
    out->push_back({.kind = OutputDelta::Kind::tool_call_end, .text = {}, .call = n_calls_ - 1});
  }
  is_section_text_ = false;
  state_ = ends_call ? State::section : token == tokens_.call_begin ? State::head : State::content;
  return true;
}

void KimiOutputParser::add_bytes(std::string_view bytes, Deltas* out) {
  std::string text;
  assembler_.push(bytes, &text);
  add_text(std::move(text), out);
}

void KimiOutputParser::add_text(std::string text, Deltas* out) {
  if (text.empty()) return;
  switch (state_) {
    case State::reasoning:
      out->push_back({.kind = OutputDelta::Kind::reasoning, .text = std::move(text)});
      return;
    case State::content:
      out->push_back({.kind = OutputDelta::Kind::content, .text = std::move(text)});
      return;
    case State::section:
      if (!is_section_text_ && is_blank(text)) return;
      is_section_text_ = true;
      out->push_back({.kind = OutputDelta::Kind::content, .text = std::move(text)});
      return;
    case State::head:
      head_ += text;
      if (head_.size() > kHeadBytesMax) give_up_head(out);
      return;
    case State::arguments:
      out->push_back({.kind = OutputDelta::Kind::tool_call_arguments,
                      .text = std::move(text),
                      .call = n_calls_ - 1});
      return;
  }
}

// The head is read: a call begins, or what was read is content and its arguments too.
void KimiOutputParser::begin_call(Deltas* out) {
  const std::string head = std::exchange(head_, {});
  const std::string_view id = trim(head);
  const std::string_view name = kimi_call_name(id);
  if (name.empty()) {
    state_ = State::section;
    add_text(std::string(kimi::kCallBegin) + head + std::string(kimi::kArgumentBegin), out);
    return;
  }
  state_ = State::arguments;
  out->push_back({.kind = OutputDelta::Kind::tool_call_begin,
                  .text = {},
                  .call = n_calls_++,
                  .id = std::string(id),
                  .name = std::string(name)});
}

void KimiOutputParser::give_up_head(Deltas* out) {
  state_ = State::section;
  add_text(std::string(kimi::kCallBegin) + std::exchange(head_, {}), out);
}

// Ends an incomplete character, in the state it belongs to.
void KimiOutputParser::flush(Deltas* out) {
  std::string text;
  assembler_.finish(&text);
  add_text(std::move(text), out);
}

void KimiOutputParser::enter(State state, Deltas* out) {
  flush(out);
  state_ = state;
  is_section_text_ = false;
}

void KimiOutputParser::finish(Deltas* out) {
  flush(out);
  if (state_ == State::head) give_up_head(out);
}

}  // namespace quire
