// How ops::moe_experts runs on a device: which kernels, and in what pieces. From shapes alone.
//
// Not where anything lies: the launcher takes memory and makes parameters (cuda/moe).
#pragma once

#include <cstdint>

#include "ops/weight_matrix.h"

namespace quire::cuda {

enum class BatchBits : uint8_t { may_differ, must_not };  // of a row, from batch to batch

struct ExpertsShape {
  int64_t n_tokens;
  int64_t top_k;
  int64_t n_experts;
  int64_t hidden;
  BatchBits bits = BatchBits::may_differ;
  WeightFormat format = WeightFormat::bf16;  // of the routed experts
};

// Rows of weights that a thread block of the prompt kernels takes at once.
inline constexpr int64_t kPromptBlockRows = 256;

struct ExpertsPlan {
  // Tokens of a turn of the kernels of decode, which read each weight once a turn; 0: the prompt
  // kernels, of which the rest speaks.
  int64_t turn_tokens;
  bool by_ring;           // turns of the kernels whose weights pass through shared memory
  int tile_tokens;        // 32, 64 or 96, of one expert
  int64_t n_blocks;       // of kPromptBlockRows outputs
  int64_t blocks;         // of these in one launch, so that partial sums need not be kept for all
  int64_t unit_blocks;    // of these that a thread block takes one after another
  int64_t partial_bytes;  // of the workspace; no less for more tokens
};

ExpertsPlan plan_experts(const ExpertsShape& shape);

}  // namespace quire::cuda
