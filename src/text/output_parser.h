// OutputParser: generated token ids into thoughts, content and tool calls, as they come.
//
// Works on ids, so that an answer which merely spells a special token changes nothing. What it
// gives depends on the tokens alone, not on how they were grouped. Nothing is lost: what does not
// have the form of a call comes out as content. Text is always valid UTF-8.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace quire {

struct OutputDelta {
  enum class Kind {
    reasoning,            // `text` of the thoughts
    content,              // `text` of the answer
    tool_call_begin,      // `call` with `id` and `name`
    tool_call_arguments,  // `text` of the arguments of `call`, JSON as the model wrote it
    tool_call_end,        // `call` is complete
  };
  Kind kind;
  std::string text;
  int32_t call = -1;  // 0-based, in order; -1 outside of calls
  std::string id;
  std::string name;

  friend bool operator==(const OutputDelta&, const OutputDelta&) = default;
};

class OutputParser {
 public:
  virtual ~OutputParser() = default;
  // Appends what is certain after `token`.
  virtual void push(Token token, std::vector<OutputDelta>* out) = 0;
  // The answer is over, cut or not: appends what was still held. Nothing may be pushed after.
  virtual void finish(std::vector<OutputDelta>* out) = 0;
};

// A whole answer, for responses that are not streamed.
struct ParsedOutput {
  struct ToolCall {
    std::string id;
    std::string name;
    std::string arguments;
    bool is_complete = false;  // false: the answer was cut inside its arguments
    friend bool operator==(const ToolCall&, const ToolCall&) = default;
  };
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> tool_calls;

  void add(const OutputDelta& delta);
  // Whether the answer's finish reason is "tool_calls": at least one call is complete.
  bool has_complete_call() const;

  friend bool operator==(const ParsedOutput&, const ParsedOutput&) = default;
};

// Parses `tokens`, the whole of an answer.
ParsedOutput parse_output(OutputParser& parser, std::span<const Token> tokens);

}  // namespace quire
