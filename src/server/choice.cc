#include "server/choice.h"

#include "base/check.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "text/stop_matcher.h"

namespace quire {

namespace {

class TextChoice final : public Choice {
 public:
  TextChoice(const ServedModel& model, const AnswerStyle& style, std::vector<Token> prompt)
      : Choice(model, style),
        prompt_(std::move(prompt)),
        echo_(model.tokenizer, SpecialText::show_all),
        detokenizer_(model.tokenizer, SpecialText::skip_hidden),
        stop_(style.stops) {}

 protected:
  // The prompt is repeated token by token where each has its log-probability, else at once.
  void begin(const RequestOutput& output, ChoiceDelta* delta) override {
    if (!style().echo || is_told_) return;
    if (n_echoed_ == 0) echo({.token = prompt_.front()}, delta);
    for (const GeneratedToken& token : output.prompt_tokens_scored) echo(token, delta);
    while (!style().logprobs && n_echoed_ < prompt_.size()) {
      echo({.token = prompt_[n_echoed_]}, delta);
    }
    if (n_echoed_ < prompt_.size()) return;
    is_told_ = true;
    delta->content += echo_.finish();
  }

  void push_token(Token token, ChoiceDelta* delta) override {
    delta->content += stop_.push(detokenizer_.push(token));
    if (stop_.is_stopped()) delta->finish = Finish::stop;
  }

  void end(Finish finish, ChoiceDelta* delta) override {
    delta->content += stop_.push(detokenizer_.finish());
    delta->finish = stop_.is_stopped() ? Finish::stop : finish;
    if (!stop_.is_stopped()) delta->content += stop_.finish();
  }

 private:
  void echo(const GeneratedToken& token, ChoiceDelta* delta) {
    delta->content += echo_.push(token.token);
    if (style().logprobs) {
      delta->logprobs.push_back(logprob_of(token));
      if (n_echoed_ == 0) delta->logprobs.back().logprob.reset();
    }
    ++n_echoed_;
  }

  const std::vector<Token> prompt_;  // empty unless it is repeated
  size_t n_echoed_ = 0;
  bool is_told_ = false;
  Detokenizer echo_;
  Detokenizer detokenizer_;
  StopMatcher stop_;
};

// Stop strings are looked for in the content alone: thoughts and arguments are not what a client
// shows, and a stop inside arguments would leave a broken call.
class ChatChoice final : public Choice {
 public:
  ChatChoice(const ServedModel& model, const AnswerStyle& style,
             std::unique_ptr<OutputParser> parser)
      : Choice(model, style),
        parser_(std::move(parser)),
        stop_(style.stops),
        tool_calls_(style.tool_calls) {}

 protected:
  void begin(const RequestOutput&, ChoiceDelta*) override {}

  void push_token(Token token, ChoiceDelta* delta) override {
    parsed_.clear();
    parser_->push(token, &parsed_);
    take(delta);
  }

  void end(Finish finish, ChoiceDelta* delta) override {
    parsed_.clear();
    parser_->finish(&parsed_);
    take(delta);
    if (delta->finish) return;
    delta->content += stop_.finish();
    delta->finish = finish == Finish::stop && has_complete_call_ ? Finish::tool_calls : finish;
  }

 private:
  void take(ChoiceDelta* delta) {
    for (OutputDelta& piece : parsed_) {
      if (!delta->finish) take_piece(&piece, delta);
    }
  }

  void take_piece(OutputDelta* piece, ChoiceDelta* delta) {
    switch (piece->kind) {
      case OutputDelta::Kind::reasoning:
        delta->reasoning += piece->text;
        usage_.reasoning_tokens = usage_.completion_tokens;
        return;
      case OutputDelta::Kind::content:
        delta->content += stop_.push(piece->text);
        if (stop_.is_stopped()) delta->finish = Finish::stop;
        return;
      case OutputDelta::Kind::tool_call_begin:
        delta->calls.push_back(
            {.index = piece->call, .begins = true, .id = piece->id, .name = piece->name});
        return;
      case OutputDelta::Kind::tool_call_arguments:
        if (delta->calls.empty() || delta->calls.back().index != piece->call) {
          delta->calls.push_back({.index = piece->call});
        }
        delta->calls.back().arguments += piece->text;
        return;
      case OutputDelta::Kind::tool_call_end:
        has_complete_call_ = true;
        if (tool_calls_ == ToolCalls::one) delta->finish = Finish::tool_calls;
        return;
    }
  }

  std::unique_ptr<OutputParser> parser_;
  StopMatcher stop_;
  ToolCalls tool_calls_;
  std::vector<OutputDelta> parsed_;
  bool has_complete_call_ = false;
};

}  // namespace

TokenLogprob Choice::logprob_of(const GeneratedToken& token) const {
  TokenLogprob out{.bytes = std::string(model_.tokenizer.token_bytes(token.token)),
                   .logprob = token.logprob};
  for (const auto& [other, logprob] : token.top) {
    out.top.emplace_back(model_.tokenizer.token_bytes(other), logprob);
  }
  return out;
}

ChoiceDelta Choice::push(const RequestOutput& output) {
  ChoiceDelta delta;
  usage_.prompt_tokens = output.prompt_tokens;
  usage_.cached_tokens = output.cached_tokens;
  begin(output, &delta);
  const bool stopped = output.finish == FinishReason::stop;
  for (size_t i = 0; i < output.tokens.size() && !delta.finish && !style_.prompt_only; ++i) {
    ++usage_.completion_tokens;
    // The token that ended the answer is no part of its text. Completions list its probability, as
    // those who take the last token off an echoed prompt's expect.
    const bool is_end = stopped && i + 1 == output.tokens.size();
    const bool is_listed = !is_end || style_.endpoint == Endpoint::completions;
    if (style_.logprobs && is_listed) delta.logprobs.push_back(logprob_of(output.tokens[i]));
    if (!is_end) push_token(output.tokens[i].token, &delta);
  }
  if (delta.finish || !output.finish) return delta;
  switch (*output.finish) {
    case FinishReason::stop:
      end(style_.prompt_only ? Finish::length : Finish::stop, &delta);
      break;
    case FinishReason::length:
      end(Finish::length, &delta);
      break;
    case FinishReason::aborted:
      delta.error = draining_error();
      break;
    case FinishReason::failed:
      delta.error = to_api_error(output.failure);
      break;
  }
  return delta;
}

std::unique_ptr<Choice> make_choice(const ServedModel& model, const AnswerStyle& style,
                                    AdmittedChoice* admitted) {
  if (admitted->parser == nullptr) {
    return std::make_unique<TextChoice>(model, style, std::move(admitted->echo));
  }
  return std::make_unique<ChatChoice>(model, style, std::move(admitted->parser));
}

}  // namespace quire
