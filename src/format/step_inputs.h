// The inputs of a step as they travel to a device: one range of bytes, copied at once
// (docs/formats/step.md, "Inputs"). The layout follows from the shape alone, so that a recorded
// step finds the next one's inputs in the same places.
//
// Only bytes: engine/step_writer.h fills them from a plan, ops/open_step.h checks and resolves them
// where they arrive.
#pragma once

#include <cstdint>
#include <span>

#include "base/rng.h"
#include "format/page_check.h"
#include "tensor/view.h"

namespace quire {

// Sizes of a step; what a recorded one is made for.
struct StepShape {
  int64_t n_rows = 0;
  int64_t n_tokens = 0;  // of all rows
  int64_t n_logits = 0;  // tokens whose next is sampled or, known already, scored
  int64_t table_width = 0;
  int64_t tag_width = 0;  // table_width, or 0 when pages are not checked: then no tags travel
  // What ops are told of the rows beforehand (ops/paged_kv.h, TokenRows).
  int64_t row_tokens_max = 0;
  int64_t n_lone = 0;
  int64_t key_blocks = 0;
};

// First in the range. `hash` is of the words behind it, so that bytes of two steps mixed in one
// slot are found out; `step` is compared with a count that the device keeps itself.
struct SlotHeader {
  uint64_t step = 0;       // counts the steps that were sent, from 1
  uint32_t n_rows = 0;     // without padding
  uint32_t n_words = 0;    // of 32 bits, this header's eight included
  uint64_t nonce_sum = 0;  // of the rows, mod 2^64
  uint64_t hash = 0;       // sum of slot_word_hash(i, word i) for i in [8, n_words), mod 2^64
};
inline constexpr uint32_t kSlotHeaderWords = sizeof(SlotHeader) / sizeof(int32_t);
static_assert(kSlotHeaderWords == 8);

// A share of StepInputs::extra.
struct WordSlice {
  int32_t begin = 0;
  int32_t end = 0;
};

// How the token after a row is chosen, or that it is given (ops/sample.h): settings as numbers,
// lists as slices.
struct SamplerRow {
  double uniform = 0;     // the row's draw in [0, 1)
  float temperature = 0;  // 0: greedy
  float top_p = 1;
  float min_p = 0;
  int32_t top_k = 0;  // 0: all
  float presence_penalty = 0;
  float frequency_penalty = 0;
  float repetition_penalty = 1;
  int32_t top_logprobs = 0;
  int32_t given = -1;   // >= 0: the token, whose log-probability alone is wanted
  int32_t padding = 0;  // its value is hashed with the rest
  WordSlice bias;       // pairs of words: token, bits of a float
  WordSlice prompt;     // tokens; both empty when no penalty needs them
  WordSlice generated;  // tokens, or references to recent ones
  WordSlice mask;       // bit t of word t / 32: token t is allowed; empty: all are
};
static_assert(sizeof(SamplerRow) == 80);

// A token that an earlier step sampled is named by where it is kept: a negative word.
constexpr int32_t recent_reference(int64_t place) { return static_cast<int32_t>(-1 - place); }
constexpr int64_t recent_place(int32_t reference) { return -1 - int64_t{reference}; }

constexpr uint64_t slot_word_hash(uint64_t index, uint32_t word) {
  return mix64(index << 32 | word);
}

// Views on the parts of a range, wherever it lies.
struct StepInputs {
  StepShape shape;
  View<SlotHeader, 1> header;    // [1]
  View<uint64_t, 1> nonces;      // [n_rows]; 0 of padding
  View<PageTag, 2> tags;         // [n_rows, tag_width] that the table's pages must carry, or kNoTag
  View<SamplerRow, 1> samplers;  // [n_logits]
  View<int32_t, 1> ids;          // [n_tokens] tokens, or references to recent ones
  View<int32_t, 1> rows;         // [n_tokens] row of the table
  View<int32_t, 1> positions;    // [n_tokens]
  View<int32_t, 1> row_begin;    // [n_rows + 1]
  View<int32_t, 1> logit_rows;   // [n_logits] token whose logits are wanted
  View<int32_t, 2> table;        // [n_rows, table_width] physical pages
  View<WordSlice, 1> changes;    // [1] of `extra`: what the mirror learns; [0] without tags
  View<int32_t, 1> extra;        // [what is left] what the slices are of

  // Words before `extra`.
  int64_t fixed_words() const;
};

// What a step of `shape` takes before its extra words.
int64_t step_inputs_bytes(const StepShape& shape);

// The parts of `range`, which is aligned to 8 bytes and holds at least step_inputs_bytes(shape).
StepInputs step_inputs_in(std::span<std::byte> range, const StepShape& shape);

// Fills in the header over everything else, which is complete and ends with `n_extra` extra words.
// Host memory.
void close_step_inputs(const StepInputs& inputs, uint64_t step, uint32_t n_rows, int64_t n_extra);

}  // namespace quire
