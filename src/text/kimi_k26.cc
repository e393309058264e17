#include "text/kimi_k26.h"

#include "base/json.h"
#include "text/kimi_tokens.h"
#include "text/typescript_declaration.h"

namespace quire {

namespace {

// How many leading messages show no thoughts.
size_t history_end(const std::vector<ChatMessage>& messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (messages[i].role == ChatRole::assistant && messages[i].tool_calls.empty()) return i + 1;
  }
  return 0;
}

// A schema that the conversion refuses is shown as compact JSON, as the publisher's template does.
std::string declare(const Json& tools) {
  const auto declaration = typescript_declaration(tools);
  if (declaration.ok() && !declaration.value().empty()) return declaration.value();
  return dump_json(sorted_by_key(tools));
}

}  // namespace

Result<Prompt> KimiK26::render(const ChatRequest& request) const {
  const bool thinking = TRY(template_flag(request, "thinking", true));
  const bool preserve = TRY(template_flag(request, "preserve_thinking", false));
  Prompt prompt;
  KimiTurns turns(&prompt);
  const std::vector<ChatMessage>& messages = request.messages;
  if (!request.tools.empty()) turns.system("tool_declare", declare(request.tools));
  const size_t shown_from = preserve ? 0 : thinking ? history_end(messages) : messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    turns.message(messages[i],
                  i < shown_from ? KimiTurns::Thoughts::dropped : KimiTurns::Thoughts::shown);
  }
  if (!request.add_generation_prompt) return prompt;
  turns.assistant_head();
  prompt.markup(kimi::kThinkBegin);
  if (!thinking) prompt.markup(kimi::kThinkEnd);
  return prompt;
}

Result<AnswerStart> KimiK26::answer_start(const ChatRequest& request) const {
  const bool thinking = TRY(template_flag(request, "thinking", true));
  if (!request.add_generation_prompt) return AnswerStart::may_think;
  return thinking ? AnswerStart::in_thoughts : AnswerStart::answer;
}

}  // namespace quire
