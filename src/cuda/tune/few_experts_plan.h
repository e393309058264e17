// How ops::moe_experts runs for a handful of tokens, in two launches. From shapes alone.
//
// Whether it does at all is part of the plan: more tokens, or rows too long for shared memory, take
// the kernels of experts_plan.h.
#pragma once

#include <cstdint>

#include "cuda/tune/experts_plan.h"

namespace quire::cuda {

inline constexpr int kFewTokensMax = 8;     // the columns of a product
inline constexpr int kFewPairsMax = 64;     // of (token, slot)
inline constexpr int kFewWarps = 16;        // of a block
inline constexpr int kFewStepBytes = 1152;  // the largest step of a tile (moe/packed_layout.h)
inline constexpr int kFewTileRows = 64;     // outputs of a block of down
inline constexpr int kFewSumPitch = 72;     // floats of a row of those outputs, with padding
inline constexpr int kFewSharedParts = 4;   // of the inputs of the shared expert's down, in a block
inline constexpr int kFewRowMultiple = 128;   // inputs that rows are filled up to
inline constexpr int kFewCountMax = 1 << 20;  // tiles times blocks: what kernels divide in float32
inline constexpr int kFewRowPadding = 32;     // values behind a row, against bank conflicts

// How a kernel's warps go through the weights of an expert.
struct FewCut {
  int tiles;  // that a warp multiplies at once, with inputs that it reads once for them
  int steps;  // of these that it has under way in shared memory
};
// Of one token: a block of each kernel finds room on a multiprocessor, so that weights of down are
// read while gate and up run.
inline constexpr FewCut kFewGateUpBeside{1, 7};
inline constexpr FewCut kFewDownBeside{1, 4};
// Of more: inputs are read less often. A block has a multiprocessor to itself.
inline constexpr FewCut kFewGateUpAlone{2, 3};
inline constexpr FewCut kFewDownAlone{4, 2};

struct FewExpertsShape {
  int64_t n_tokens;
  int64_t top_k;
  int64_t hidden;
  int64_t inner;
  int64_t shared_inner;  // 0: there is no shared expert
  int64_t shared_tiles;  // of its gate and up, 0 likewise
  int64_t shared_steps;  // of each
  int64_t n_sms;
  BatchBits bits = BatchBits::may_differ;
};

struct FewExpertsPlan {
  bool fits;
  // The shared expert's gate and up are cut along their inputs, so that every block has a piece of
  // them to read before the step's choices are known; down adds the parts up.
  int64_t shared_parts;
  int64_t shared_sums;  // floats of all parts
  bool is_beside;       // both kernels take the cuts of that name
  int64_t gate_up_shared_bytes;
  int64_t down_shared_bytes;
};

// Values of a row of inputs in shared memory.
int64_t few_row_pitch(int64_t n_in);

FewExpertsPlan plan_few_experts(const FewExpertsShape& shape);

}  // namespace quire::cuda
