// The items of an evaluation: prompts whose right answers are known, token by token.
//
// A file holds one task, one item a line (models/kimi-nano/README.md):
//   {"id", "task", "turns": [{"prompt_ids", "expected_ids", "max_new_tokens"}, ...]}
// The prompt of a turn is all that came before it, what was generated included, and its prompt_ids.
// An item is right when, in every turn, what was generated after the last </think>, up to the token
// that ends the turn, is expected_ids. Reading and judging only; tools/eval.cc runs them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace quire {

struct EvalTurn {
  std::vector<Token> prompt;
  std::vector<Token> expected;
  int32_t max_new_tokens = 0;
};

struct EvalItem {
  std::string id;
  std::string task;
  std::vector<EvalTurn> turns;
};

// Ids that judging needs, by what they mean in the model's vocabulary.
struct EvalTokens {
  Token thoughts_end = -1;  // </think>
  Token turn_end = -1;      // <|im_end|>
};

// The first `limit` items of a file. Errors: as read_text_file; invalid_argument, with the line.
Result<std::vector<EvalItem>> read_eval_items(const std::string& path, size_t limit);

// Whether `generated`, the turn-ending token included, answers `turn`.
bool is_right(const EvalTurn& turn, std::span<const Token> generated, const EvalTokens& tokens);

}  // namespace quire
