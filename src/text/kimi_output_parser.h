// KimiOutputParser: the answers of Kimi K2-Thinking, K2.5 and K2.6.
//
//   [<think>] THOUGHTS </think> CONTENT
//   [<|tool_calls_section_begin|> CALL... <|tool_calls_section_end|>]
//   CALL = <|tool_call_begin|> functions.NAME:INDEX <|tool_call_argument_begin|> JSON
//          <|tool_call_end|>
// Calls are looked for only outside of thoughts. A call ends with its end token, the next call or
// the end of the section; the first of several ends counts, and a call cut by the end of the answer
// stays incomplete. Text in a section that is no call, and a call without a readable name, come out
// as content with their marks written out; blanks right behind a mark are dropped between calls.
#pragma once

#include <string>
#include <vector>

#include "text/answer_start.h"
#include "text/detokenizer.h"
#include "text/kimi_tokens.h"
#include "text/output_parser.h"
#include "text/utf8_assembler.h"

namespace quire {

// Whether tool calls are looked for, or their marks are text like any other.
enum class ToolParsing { on, off };

class KimiOutputParser final : public OutputParser {
 public:
  struct Options {
    AnswerStart start = AnswerStart::in_thoughts;
    ToolParsing tools = ToolParsing::on;
    SpecialText specials = SpecialText::skip_hidden;
  };

  // A name and an index are short; a longer head of a call is none.
  static constexpr size_t kHeadBytesMax = 512;

  // `tokenizer` outlives this.
  KimiOutputParser(const Tokenizer& tokenizer, const KimiTokens& tokens, const Options& options);

  void push(Token token, std::vector<OutputDelta>* out) override;
  void finish(std::vector<OutputDelta>* out) override;

 private:
  enum class State {
    reasoning,
    content,
    section,    // between calls
    head,       // of a call: its id
    arguments,  // of a call
  };
  using Deltas = std::vector<OutputDelta>;

  // True when `token` is a mark that moves this state; it is used up then.
  bool take_mark(Token token, Deltas* out);
  bool take_mark_in_section(Token token, Deltas* out);
  void add_bytes(std::string_view bytes, Deltas* out);
  void add_text(std::string text, Deltas* out);
  void begin_call(Deltas* out);
  void give_up_head(Deltas* out);
  void flush(Deltas* out);
  void enter(State state, Deltas* out);

  const Tokenizer& tokenizer_;
  const KimiTokens tokens_;
  const Options options_;
  State state_;
  bool is_first_ = true;  // no token was taken yet
  Utf8Assembler assembler_;
  std::string head_;              // of the call at hand, while it is read
  bool is_section_text_ = false;  // since the last mark the section held more than blanks
  int32_t n_calls_ = 0;
};

// "functions.NAME:INDEX" gives NAME; also without the prefix. Empty when there is no name or no
// index.
std::string_view kimi_call_name(std::string_view id);

}  // namespace quire
