// AdmittedRequest: a request after admission, the only form in which one reaches the engine.
//
// Everything in it was checked (server/admission.h); what answers it looks at nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "engine/request.h"
#include "server/openai_error.h"
#include "text/output_parser.h"

namespace quire {

enum class Endpoint : uint8_t { chat, completions };
enum class Delivery : uint8_t { whole, streamed };
// How many tool calls an answer may make.
enum class ToolCalls : uint8_t {
  many,
  one,  // parallel_tool_calls false: the answer ends with its first call
};

// How the answer is told.
struct AnswerStyle {
  Endpoint endpoint = Endpoint::chat;
  Delivery delivery = Delivery::whole;
  ToolCalls tool_calls = ToolCalls::many;
  std::string model;  // as the client named it
  std::vector<std::string> stops;
  int32_t top_logprobs = 0;
  // Named fields, not parameters: what the client asked for.
  bool logprobs = false;
  bool include_usage = false;  // as the last event of a stream
  bool echo = false;           // of completions: the prompt before the answer
  bool prompt_only = false;    // with `echo`: and no answer
};

struct AdmittedChoice {
  GenerateRequest request;
  std::unique_ptr<OutputParser> parser;  // of a chat's answer; none for completions
  std::vector<Token> echo;               // the prompt, when the answer repeats it
};

struct AdmittedRequest {
  AnswerStyle style;
  std::vector<AdmittedChoice> choices;  // in the order of their index
  int32_t choices_per_prompt = 1;       // choices of one prompt are neighbours
};

using Admission = std::variant<AdmittedRequest, ApiError>;

}  // namespace quire
