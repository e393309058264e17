// Choice: turns the tokens of one generated answer into what a client is told of it.
//
// Not a writer: it knows no JSON and no stream. ChatChoice finds thoughts and tool calls by token
// ids, TextChoice gives text as it is, after the prompt when that is to be repeated. Stop strings
// and incomplete characters are held back until they are certain, so that deltas joined are the
// answer however it was cut.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/admitted_request.h"
#include "server/openai_error.h"
#include "server/served_model.h"

namespace quire {

enum class Finish : uint8_t { stop, length, tool_calls };

struct TokenLogprob {
  std::string bytes;             // of the token
  std::optional<float> logprob;  // the first token of a prompt has none
  std::vector<std::pair<std::string, float>> top;
};

struct ToolCallDelta {
  int index = 0;
  // The first delta of a call has its id and name.
  bool begins = false;
  std::string id;
  std::string name;
  std::string arguments;
};

// What is new since the last delta. Any part may be empty.
struct ChoiceDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallDelta> calls;
  std::vector<TokenLogprob> logprobs;
  std::optional<Finish> finish;
  std::optional<ApiError> error;  // instead of `finish`

  bool ends() const { return finish.has_value() || error.has_value(); }
};

struct ChoiceUsage {
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t reasoning_tokens = 0;
};

class Choice {
 public:
  virtual ~Choice() = default;

  // The delta that `output` leads to. After a delta that ends, nothing more is pushed.
  ChoiceDelta push(const RequestOutput& output);

  const ChoiceUsage& usage() const { return usage_; }

 protected:
  Choice(const ServedModel& model, const AnswerStyle& style) : model_(model), style_(style) {}

  // Adds what comes before the answer; called for every output.
  virtual void begin(const RequestOutput& output, ChoiceDelta* delta) = 0;
  // Adds what `token` leads to; sets `delta->finish` when the answer ends with it.
  virtual void push_token(Token token, ChoiceDelta* delta) = 0;
  // The engine ended the answer: adds what was held back, and why it ended.
  virtual void end(Finish finish, ChoiceDelta* delta) = 0;

  TokenLogprob logprob_of(const GeneratedToken& token) const;
  const ServedModel& model() const { return model_; }
  const AnswerStyle& style() const { return style_; }

  ChoiceUsage usage_;

 private:
  const ServedModel& model_;
  const AnswerStyle& style_;
};

// Of the choice's request it takes what an answer needs. Text as it is when `admitted` has no
// parser, a chat's answer otherwise. `model` and `style` outlive it.
std::unique_ptr<Choice> make_choice(const ServedModel& model, const AnswerStyle& style,
                                    AdmittedChoice* admitted);

}  // namespace quire
