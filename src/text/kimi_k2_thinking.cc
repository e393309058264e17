#include "text/kimi_k2_thinking.h"

#include "text/python_json.h"

namespace quire {

namespace {

constexpr std::string_view kDefaultSystem = "You are Kimi, an AI assistant created by Moonshot AI.";

// How many leading messages show no thoughts: those through the first assistant's turn that calls
// no tool. (The template means the last such turn, but its search does not stop at it.)
size_t history_end(const std::vector<ChatMessage>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == ChatRole::assistant && messages[i].tool_calls.empty()) return i + 1;
  }
  return 0;
}

}  // namespace

Result<Prompt> KimiK2Thinking::render(const ChatRequest& request) const {
  Prompt prompt;
  KimiTurns turns(&prompt);
  const std::vector<ChatMessage>& messages = request.messages;
  if (!request.tools.empty()) turns.system("tool_declare", python_json(request.tools));
  if (messages.empty() || messages[0].role != ChatRole::system) {
    turns.system("system", kDefaultSystem);
  }
  const size_t shown_from = history_end(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    turns.message(messages[i],
                  i < shown_from ? KimiTurns::Thoughts::dropped : KimiTurns::Thoughts::shown);
  }
  if (request.add_generation_prompt) turns.assistant_head();
  return prompt;
}

Result<AnswerStart> KimiK2Thinking::answer_start(const ChatRequest&) const {
  return AnswerStart::may_think;
}

}  // namespace quire
