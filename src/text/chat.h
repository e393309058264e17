// A chat as data, and ChatFormat: how one family of models writes it down and reads it back.
//
// One file a family renders and parses. Not a template engine: the formats are code, and nothing in
// a request is ever interpreted as a template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/answer_start.h"
#include "text/detokenizer.h"
#include "text/output_parser.h"
#include "text/prompt.h"
#include "text/token_trie.h"
#include "text/tokenizer.h"
#include "text/tool_grammar.h"

namespace quire {

enum class ChatRole { system, user, assistant, tool };

struct ChatToolCall {
  std::string id;         // empty: numbered when rendered
  std::string name;       // of the function
  std::string arguments;  // JSON text, shown as it is
};

struct ChatMessage {
  ChatRole role = ChatRole::user;
  std::string content;
  std::string reasoning_content;  // of an assistant's turn
  std::string name;               // shown in place of the role's name
  std::vector<ChatToolCall> tool_calls;
  std::string tool_call_id;  // of a tool's turn; empty: the first call not yet answered
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  Json tools = Json::array();  // as OpenAI's request has them, valid (text/chat_request.h)
  bool add_generation_prompt = true;
  // What the family's template takes; what it does not know is ignored. Kimi: `thinking` and
  // `preserve_thinking`, booleans.
  Json template_kwargs = Json::object();
  std::string template_kwargs_field = "template_kwargs";  // its path, for errors
};

// Which calls the answer must make, when it must make any.
struct ToolDemand {
  std::optional<std::string> function;  // none: any of the tools
  ToolGrammar::Calls calls = ToolGrammar::Calls::many;
};

class ChatFormat {
 public:
  virtual ~ChatFormat() = default;

  virtual std::string_view family() const = 0;
  // Errors: invalid_argument, beginning with the path of the field ("template_kwargs.thinking: ").
  virtual Result<Prompt> render(const ChatRequest& request) const = 0;
  // A parser of the answer to `request`. Tool calls are looked for only when it has tools.
  // `tokenizer` outlives it. Errors: unsupported, when the tokenizer lacks one of the marks.
  virtual Result<std::unique_ptr<OutputParser>> make_parser(const Tokenizer& tokenizer,
                                                            const ChatRequest& request,
                                                            SpecialText specials) const = 0;
  // The tokens that may come, for an answer that must call tools. `trie` and `tokenizer` outlive
  // it. Errors: invalid_argument (ToolGrammar::make), unsupported.
  virtual Result<ToolGrammar> make_grammar(const TokenTrie& trie, const Tokenizer& tokenizer,
                                           const ChatRequest& request,
                                           const ToolDemand& demand) const = 0;
  // The special tokens that end the model's turn, those of them that the tokenizer has.
  virtual std::vector<Token> stop_tokens(const Tokenizer& tokenizer) const = 0;
};

// Families: "kimi-k2-thinking", "kimi-k2.6" and its alias "kimi-k2.5". Errors: not_found, naming
// those there are.
Result<std::unique_ptr<ChatFormat>> make_chat_format(std::string_view family);

}  // namespace quire
