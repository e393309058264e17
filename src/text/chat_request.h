// Reads a chat from JSON as OpenAI's API has it, for the server and the tools alike.
//
// Every error's message begins with the path of the field, a colon and a blank:
// "messages[3].content[0].text: expected a string". What comes before the colon is OpenAI's
// `param`. Unknown fields are ignored. Foreign text is quoted only as an excerpt.
#pragma once

#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/chat.h"

namespace quire {

struct ChatLimits {
  size_t messages_max = 2048;
  size_t content_parts_max = 1024;  // of one message
  size_t tools_max = 128;
  size_t tool_calls_max = 128;  // of one message
  size_t name_bytes_max = 256;  // of a message's name, and of a tool call's id
};

// The field that holds template_kwargs: the server's is "chat_template_kwargs".
struct ChatFields {
  std::string_view template_kwargs = "template_kwargs";
};

// `messages` (required, one at least), `tools`, `add_generation_prompt`, and the template's
// arguments. Content is a string or an array of text parts, which are joined. A role "developer"
// is read as "system". Errors: invalid_argument; unsupported for content that is not text and for
// tools that are not functions.
Result<ChatRequest> parse_chat_request(const Json& body, const ChatLimits& limits = {},
                                       const ChatFields& fields = {});

// Whether `name` may be a function's: 1 to 64 of [a-zA-Z0-9_-].
bool is_function_name(std::string_view name);

}  // namespace quire
