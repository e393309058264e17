// The fields of a chat request that make its prompt and say what its answer may be: messages,
// tools, tool_choice, the template's arguments.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "server/admitted_request.h"
#include "server/field_reader.h"
#include "server/sampling_fields.h"
#include "server/served_model.h"
#include "text/chat.h"

namespace quire {

struct ChatDemand {
  ChatRequest chat;
  std::vector<Token> prompt;
  std::optional<ToolGrammar> grammar;  // when the answer must call a tool
  ToolCalls tool_calls = ToolCalls::many;
};

ChatDemand read_chat_fields(FieldReader& body, const Json& json, const ServedModel& model,
                            const SamplingFields& sampling);

// A parser of one answer. Null after refusing, when the tokenizer cannot carry the format.
std::unique_ptr<OutputParser> make_chat_parser(FieldReader& body, const ChatDemand& demand,
                                               const ServedModel& model);

}  // namespace quire
