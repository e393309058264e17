#include "text/tool_grammar.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace quire {

Result<ToolGrammar> ToolGrammar::make(const TokenTrie& trie, const KimiTokens& tokens,
                                      const Json& tools, const Options& options) {
  if (!tools.is_array() || tools.empty()) {
    return invalid_argument("tools: expected at least one, to choose from");
  }
  ToolGrammar out(trie, tokens);
  std::vector<std::pair<std::string, int32_t>> entries;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string where = format("tools[%zu].function", i);
    if (!tools[i].is_object() || !tools[i].contains("function")) {
      return invalid_argument(where + ": expected an object");
    }
    const Json& function = tools[i]["function"];
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string()) {
      return invalid_argument(where + ".name: expected a string");
    }
    const std::string name = function["name"].get<std::string>();
    if (name.empty() || name.find(':') != std::string::npos) {
      return invalid_argument(where + ".name: expected a name without colons");
    }
    if (options.function && *options.function != name) continue;
    const auto node = out.schema_.add_parameters(function.value("parameters", Json()));
    if (!node.ok()) {
      return invalid_argument(where + ".parameters: " + node.error().message);
    }
    entries.emplace_back("functions." + name + ":", node.value());
  }
  if (entries.empty()) {
    return invalid_argument("tool_choice.function.name: no tool is named \"" +
                            excerpt(*options.function) + "\"");
  }
  std::sort(entries.begin(), entries.end());
  for (auto& [name, node] : entries) {
    if (!out.names_.empty() && out.names_.back() == name) {
      return invalid_argument("tools: two functions of one name");
    }
    out.names_.push_back(std::move(name));
    out.parameters_.push_back(node);
  }
  out.calls_ = options.calls;
  switch (options.start) {
    case AnswerStart::in_thoughts:
      out.phase_ = Phase::thinking;
      break;
    case AnswerStart::may_think:
      out.phase_ = Phase::opening;
      break;
    case AnswerStart::answer:
      out.phase_ = Phase::section;
      break;
  }
  return out;
}

std::vector<Token> ToolGrammar::special_tokens() const {
  switch (phase_) {
    case Phase::opening:
      return {tokens_.think_begin, tokens_.section_begin};
    case Phase::thinking:
      return {tokens_.think_end};
    case Phase::section:
      return {tokens_.section_begin};
    case Phase::call:
      return {tokens_.call_begin};
    case Phase::name:
      return {};
    case Phase::index:
      if (cursor_.index_digits == 0) return {};
      return {tokens_.argument_begin};
    case Phase::arguments:
      if (!cursor_.arguments.is_done()) return {};
      return {tokens_.call_end};
    case Phase::next_call:
      if (calls_ == Calls::one || n_calls_ >= kCallsMax) return {tokens_.section_end};
      return {tokens_.call_begin, tokens_.section_end};
    case Phase::turn_end:
    case Phase::finished:
      return {tokens_.im_end};
    case Phase::dead:
      return {};
  }
  return {};
}

// The phase behind a special token that special_tokens() allows here.
ToolGrammar::Phase ToolGrammar::after_special(Token token) const {
  switch (phase_) {
    case Phase::opening:
      return token == tokens_.think_begin ? Phase::thinking : Phase::call;
    case Phase::thinking:
      return Phase::section;
    case Phase::section:
      return Phase::call;
    case Phase::call:
      return Phase::name;
    case Phase::index:
      return Phase::arguments;
    case Phase::arguments:
      return Phase::next_call;
    case Phase::next_call:
      return token == tokens_.call_begin ? Phase::name : Phase::turn_end;
    case Phase::turn_end:
    case Phase::finished:
      return Phase::finished;
    case Phase::name:
    case Phase::dead:
      break;
  }
  return Phase::dead;
}

bool ToolGrammar::push_index(Cursor* cursor, uint8_t byte) const {
  if (byte < '0' || byte > '9') return false;
  if (cursor->index_is_zero || cursor->index_digits >= kIndexDigitsMax) return false;
  cursor->index_is_zero = cursor->index_digits == 0 && byte == '0';
  ++cursor->index_digits;
  return true;
}

bool ToolGrammar::push(Phase* phase, Cursor* cursor, uint8_t byte) const {
  switch (*phase) {
    case Phase::name:
      if (!cursor->name.push(names_, byte)) return false;
      // A name ends with its colon, which no name holds: complete means the only one.
      if (cursor->name.is_complete(names_)) *phase = Phase::index;
      return true;
    case Phase::index:
      return push_index(cursor, byte);
    case Phase::arguments:
      return cursor->arguments.push(schema_, byte);
    case Phase::opening:
    case Phase::thinking:
    case Phase::section:
    case Phase::call:
    case Phase::next_call:
    case Phase::turn_end:
    case Phase::finished:
    case Phase::dead:
      break;
  }
  return false;
}

bool ToolGrammar::advance(Token token) {
  const std::vector<Token> specials = special_tokens();
  if (std::find(specials.begin(), specials.end(), token) != specials.end()) {
    phase_ = after_special(token);
    if (phase_ == Phase::name) {
      cursor_ = {};
      cursor_.name.end = static_cast<uint16_t>(names_.size());
      ++n_calls_;
    }
    if (phase_ == Phase::arguments)
      cursor_.arguments = JsonMachine(parameters_[cursor_.name.begin]);
    return true;
  }
  if (!trie_->is_ordinary(token)) {
    phase_ = Phase::dead;
    return false;
  }
  if (phase_ == Phase::thinking) return true;
  for (const char byte : trie_->bytes(token)) {
    if (push(&phase_, &cursor_, static_cast<uint8_t>(byte))) continue;
    phase_ = Phase::dead;
    return false;
  }
  return true;
}

bool ToolGrammar::fill_mask(TokenMask mask) const {
  CHECK(mask.size() == token_mask_words(trie_->vocab_size()));
  std::fill(mask.begin(), mask.end(), 0);
  for (const Token token : special_tokens()) set_token(mask, token);
  switch (phase_) {
    case Phase::thinking:
      for (size_t i = 0; i < mask.size(); ++i) mask[i] |= trie_->ordinary()[i];
      break;
    case Phase::arguments:
      if (cursor_.arguments.is_in_plain_string()) {
        fill_in_string(mask);
      } else {
        fill_from_trie(mask);
      }
      break;
    case Phase::name:
    case Phase::index:
      fill_from_trie(mask);
      break;
    case Phase::opening:
    case Phase::section:
    case Phase::call:
    case Phase::next_call:
    case Phase::turn_end:
    case Phase::finished:
    case Phase::dead:
      break;
  }
  return std::any_of(mask.begin(), mask.end(), [](uint64_t word) { return word != 0; });
}

// All tokens whose bytes the state takes, by a walk that leaves every branch at its first bad byte.
void ToolGrammar::fill_from_trie(TokenMask mask) const {
  struct State {
    Phase phase;
    Cursor cursor;
  };
  const auto nodes = trie_->nodes();
  std::vector<State> path;  // the state before each byte of the branch at hand
  path.push_back({phase_, cursor_});
  size_t i = 0;
  while (i < nodes.size()) {
    const TokenTrie::Node& node = nodes[i];
    path.erase(path.begin() + node.depth + 1, path.end());
    State next = path.back();
    if (!push(&next.phase, &next.cursor, node.byte)) {
      i = static_cast<size_t>(node.subtree_end);
      continue;
    }
    if (node.token >= 0) set_token(mask, node.token);
    path.push_back(next);
    ++i;
  }
}

// The same from the inside of a string, where what stays inside is known beforehand and what leaves
// depends on the closing quote and the bytes behind it alone.
void ToolGrammar::fill_in_string(TokenMask mask) const {
  for (size_t i = 0; i < mask.size(); ++i) mask[i] |= trie_->in_string()[i];
  for (const TokenTrie::StringExit& exit : trie_->string_exits()) {
    JsonMachine machine = cursor_.arguments;
    const bool fits = std::all_of(exit.rest.begin(), exit.rest.end(), [&](char byte) {
      return machine.push(schema_, static_cast<uint8_t>(byte));
    });
    if (!fits) continue;
    for (const Token token : exit.tokens) set_token(mask, token);
  }
}

}  // namespace quire
