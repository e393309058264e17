// ToolGrammar: which tokens may come next so that an answer is a well-formed set of tool calls.
//
// For `tool_choice` "required" or a named function, in Kimi's fixed format: after the thoughts, if
// any,
//   <|tool_calls_section_begin|> CALL... <|tool_calls_section_end|> <|im_end|>
//   CALL = <|tool_call_begin|> functions.NAME:INDEX <|tool_call_argument_begin|> ARGUMENTS
//          <|tool_call_end|>
// NAME is one of the tools, INDEX a number, ARGUMENTS a JSON object that follows the tool's
// parameters as far as text/json_schema.h enforces them. Inside the thoughts every ordinary token
// and the end of the thoughts are free. Says what may come; chooses nothing.
//
// A value: copies are independent. Bounded in depth, in calls and in work; a mask over Kimi's
// 163,840 tokens takes well under a millisecond (measured in tool_grammar_test.cc).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "text/answer_start.h"
#include "text/json_machine.h"
#include "text/json_schema.h"
#include "text/kimi_tokens.h"
#include "text/token_trie.h"

namespace quire {

class ToolGrammar {
 public:
  static constexpr int kCallsMax = 64;
  static constexpr int kIndexDigitsMax = 4;

  enum class Calls { one, many };

  struct Options {
    AnswerStart start = AnswerStart::in_thoughts;
    Calls calls = Calls::many;
    std::optional<std::string> function;  // the only one allowed
  };

  // `tools` as OpenAI's request has them. `trie` outlives the grammar and all its copies.
  // Errors: invalid_argument for no tools, an unknown function, or a schema that cannot be
  // compiled ("tools[2].function.parameters: ...").
  static Result<ToolGrammar> make(const TokenTrie& trie, const KimiTokens& tokens,
                                  const Json& tools, const Options& options);

  // Sets exactly the tokens that may come next, [token_mask_words(vocab_size)], all words written.
  // False, and no bit set, when none may: a dead end.
  [[nodiscard]] bool fill_mask(TokenMask mask) const;

  // Takes the next token. False when it was not allowed; the grammar is at a dead end then.
  bool advance(Token token);

  // The turn was ended: nothing but its end token is allowed.
  bool finished() const { return phase_ == Phase::finished; }

  // Of the masks that fill_mask writes.
  int32_t vocab_size() const { return trie_->vocab_size(); }

 private:
  enum class Phase : uint8_t {
    opening,    // may_think: <think> or the section
    thinking,   // until </think>
    section,    // <|tool_calls_section_begin|>
    call,       // <|tool_call_begin|>, the first
    name,       // functions.NAME:
    index,      // digits, then <|tool_call_argument_begin|>
    arguments,  // JSON, then <|tool_call_end|>
    next_call,  // another call or the end of the section
    turn_end,   // <|im_end|>
    finished,   //
    dead,       //
  };

  // The part of the state that bytes move.
  struct Cursor {
    LiteralCursor name;
    JsonMachine arguments{JsonSchema::kAny};
    int8_t index_digits = 0;
    bool index_is_zero = false;
  };

  ToolGrammar(const TokenTrie& trie, const KimiTokens& tokens) : trie_(&trie), tokens_(tokens) {}

  // The special tokens of this phase.
  std::vector<Token> special_tokens() const;
  Phase after_special(Token token) const;
  bool push(Phase* phase, Cursor* cursor, uint8_t byte) const;
  bool push_index(Cursor* cursor, uint8_t byte) const;
  void fill_from_trie(TokenMask mask) const;
  void fill_in_string(TokenMask mask) const;

  const TokenTrie* trie_;
  KimiTokens tokens_;
  Calls calls_ = Calls::many;
  JsonSchema schema_;
  JsonSchema::Literals names_;       // "functions.NAME:", sorted
  std::vector<int32_t> parameters_;  // [names_], nodes of schema_

  Phase phase_ = Phase::section;
  int n_calls_ = 0;
  Cursor cursor_;
};

}  // namespace quire
