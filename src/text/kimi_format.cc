#include "text/kimi_format.h"

#include "base/text.h"
#include "text/kimi_output_parser.h"
#include "text/kimi_tokens.h"

namespace quire {

namespace {

struct RoleMark {
  std::string_view token;
  std::string_view name;
};

RoleMark role_mark(ChatRole role) {
  switch (role) {
    case ChatRole::system:
      return {kimi::kImSystem, "system"};
    case ChatRole::user:
      return {kimi::kImUser, "user"};
    case ChatRole::assistant:
      return {kimi::kImAssistant, "assistant"};
    case ChatRole::tool:
      return {kimi::kImSystem, "tool"};
  }
  return {};
}

}  // namespace

void KimiTurns::head(std::string_view role_token, std::string_view name) {
  prompt_->markup(role_token);
  prompt_->content(name);
  prompt_->markup(kimi::kImMiddle);
}

void KimiTurns::system(std::string_view name, std::string_view body) {
  head(kimi::kImSystem, name);
  prompt_->content(body);
  prompt_->markup(kimi::kImEnd);
}

void KimiTurns::assistant_head() { head(kimi::kImAssistant, "assistant"); }

void KimiTurns::message(const ChatMessage& message, Thoughts thoughts) {
  const RoleMark mark = role_mark(message.role);
  head(mark.token, message.name.empty() ? mark.name : std::string_view(message.name));
  switch (message.role) {
    case ChatRole::system:
    case ChatRole::user:
      prompt_->content(message.content);
      break;
    case ChatRole::assistant:
      prompt_->markup(kimi::kThinkBegin);
      if (thoughts == Thoughts::shown) prompt_->content(message.reasoning_content);
      prompt_->markup(kimi::kThinkEnd);
      prompt_->content(message.content);
      if (!message.tool_calls.empty()) tool_calls(message.tool_calls);
      break;
    case ChatRole::tool:
      tool_result(message);
      break;
  }
  prompt_->markup(kimi::kImEnd);
}

void KimiTurns::tool_calls(const std::vector<ChatToolCall>& calls) {
  prompt_->markup(kimi::kSectionBegin);
  for (const ChatToolCall& call : calls) {
    const std::string id =
        call.id.empty() ? format("functions.%s:%zu", call.name.c_str(), n_calls_) : call.id;
    ++n_calls_;
    prompt_->markup(kimi::kCallBegin);
    prompt_->content(id);
    prompt_->markup(kimi::kArgumentBegin);
    prompt_->content(call.arguments);
    prompt_->markup(kimi::kCallEnd);
    unanswered_.push_back(id);
  }
  prompt_->markup(kimi::kSectionEnd);
}

void KimiTurns::tool_result(const ChatMessage& message) {
  std::string id = message.tool_call_id;
  if (id.empty() && !unanswered_.empty()) id = unanswered_.front();
  std::erase(unanswered_, id);
  prompt_->content("## Return of " + id + "\n");
  prompt_->content(message.content);
}

Result<bool> template_flag(const ChatRequest& request, const char* name, bool otherwise) {
  const auto found = request.template_kwargs.find(name);
  if (found == request.template_kwargs.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) {
    return invalid_argument(request.template_kwargs_field + "." + name +
                            ": expected true or false");
  }
  return found->get<bool>();
}

Result<std::unique_ptr<OutputParser>> KimiFormat::make_parser(const Tokenizer& tokenizer,
                                                              const ChatRequest& request,
                                                              SpecialText specials) const {
  const KimiTokens tokens = TRY(KimiTokens::resolve(tokenizer));
  const AnswerStart start = TRY(answer_start(request));
  const ToolParsing tools = request.tools.empty() ? ToolParsing::off : ToolParsing::on;
  std::unique_ptr<OutputParser> out = std::make_unique<KimiOutputParser>(
      tokenizer, tokens,
      KimiOutputParser::Options{.start = start, .tools = tools, .specials = specials});
  return out;
}

Result<ToolGrammar> KimiFormat::make_grammar(const TokenTrie& trie, const Tokenizer& tokenizer,
                                             const ChatRequest& request,
                                             const ToolDemand& demand) const {
  const KimiTokens tokens = TRY(KimiTokens::resolve(tokenizer));
  const AnswerStart start = TRY(answer_start(request));
  return ToolGrammar::make(trie, tokens, request.tools,
                           {.start = start, .calls = demand.calls, .function = demand.function});
}

std::vector<Token> KimiFormat::stop_tokens(const Tokenizer& tokenizer) const {
  std::vector<Token> out;
  for (const std::string_view name :
       {kimi::kImEnd, std::string_view("[EOS]"), std::string_view("[EOT]")}) {
    if (const auto token = tokenizer.special(name)) out.push_back(*token);
  }
  return out;
}

}  // namespace quire
