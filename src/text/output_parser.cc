#include "text/output_parser.h"

#include "base/check.h"

namespace quire {

void ParsedOutput::add(const OutputDelta& delta) {
  const auto call = [&]() -> ToolCall& {
    CHECK(delta.call >= 0 && static_cast<size_t>(delta.call) < tool_calls.size());
    return tool_calls[static_cast<size_t>(delta.call)];
  };
  switch (delta.kind) {
    case OutputDelta::Kind::reasoning:
      reasoning += delta.text;
      return;
    case OutputDelta::Kind::content:
      content += delta.text;
      return;
    case OutputDelta::Kind::tool_call_begin:
      CHECK(static_cast<size_t>(delta.call) == tool_calls.size());
      tool_calls.push_back({.id = delta.id, .name = delta.name});
      return;
    case OutputDelta::Kind::tool_call_arguments:
      call().arguments += delta.text;
      return;
    case OutputDelta::Kind::tool_call_end:
      call().is_complete = true;
      return;
  }
}

bool ParsedOutput::has_complete_call() const {
  for (const ToolCall& call : tool_calls) {
    if (call.is_complete) return true;
  }
  return false;
}

ParsedOutput parse_output(OutputParser& parser, std::span<const Token> tokens) {
  std::vector<OutputDelta> deltas;
  for (const Token token : tokens) parser.push(token, &deltas);
  parser.finish(&deltas);
  ParsedOutput out;
  for (const OutputDelta& delta : deltas) out.add(delta);
  return out;
}

}  // namespace quire
