// What all Kimi chat formats share: turns, tool calls and results, and the reading of answers.
//
// A turn is ROLE-TOKEN NAME <|im_middle|> BODY <|im_end|>, with nothing between turns; NAME is the
// message's name or its role. Only role tokens and marks are markup: names, ids, arguments and
// results come from outside and are content.
// Source: the published templates of moonshotai/Kimi-K2-Thinking, which the golden test holds.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "text/chat.h"

namespace quire {

// Writes the turns of one chat, keeping count of its tool calls.
class KimiTurns {
 public:
  enum class Thoughts { shown, dropped };

  explicit KimiTurns(Prompt* prompt) : prompt_(prompt) {}

  // A system turn under a name of the format's own: "tool_declare", "system".
  void system(std::string_view name, std::string_view body);
  // `thoughts` matters for an assistant's turn only, where dropped ones leave an empty pair.
  void message(const ChatMessage& message, Thoughts thoughts);
  // The head of the turn that the model is to write.
  void assistant_head();

 private:
  void head(std::string_view role_token, std::string_view name);
  void tool_calls(const std::vector<ChatToolCall>& calls);
  void tool_result(const ChatMessage& message);

  Prompt* prompt_;
  std::deque<std::string> unanswered_;  // ids of calls, oldest first
  size_t n_calls_ = 0;
};

// A boolean of `template_kwargs`. Errors: invalid_argument, naming it, for another type.
Result<bool> template_flag(const ChatRequest& request, const char* name, bool otherwise);

// The part of ChatFormat that is alike in all of them.
class KimiFormat : public ChatFormat {
 public:
  Result<std::unique_ptr<OutputParser>> make_parser(const Tokenizer& tokenizer,
                                                    const ChatRequest& request,
                                                    SpecialText specials) const final;
  Result<ToolGrammar> make_grammar(const TokenTrie& trie, const Tokenizer& tokenizer,
                                   const ChatRequest& request,
                                   const ToolDemand& demand) const final;
  // <|im_end|>, [EOS] and [EOT]: config.json names only [EOS], which does not end a turn.
  std::vector<Token> stop_tokens(const Tokenizer& tokenizer) const final;

 protected:
  virtual Result<AnswerStart> answer_start(const ChatRequest& request) const = 0;
};

}  // namespace quire
