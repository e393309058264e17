// How attention of a decode step is shared among thread blocks (cuda/mla_decode): from shapes
// alone. Where the pages of a token are cut follows from the positions, on the device.
#pragma once

#include <cstdint>

#include "cuda/tune/experts_plan.h"

namespace quire::cuda {

inline constexpr int kHeadTile = 8;  // heads of a block: the columns of a product
// Parts that a token can be cut into: what a group of threads adds up with its weights in shared
// memory. No device has as many multiprocessors.
inline constexpr int kPartsMax = 160;

// The pages of all tokens, cut in equal shares, one a block; or each token's in chunks of its own,
// wherever its neighbours are cut.
enum class Cut : uint8_t { even, fixed };

struct DecodeShape {
  int64_t n_tokens;
  int64_t n_heads;
  int64_t table_width;  // pages that a token can have
  BatchBits bits = BatchBits::may_differ;
};

struct DecodePlan {
  Cut cut;
  int chunk_log2;         // pages of a chunk
  int overhead;           // what a block spends on a new token, in chunks
  int n_head_groups;      // of kHeadTile heads
  int n_shares;           // blocks of a head group
  int64_t launch_tokens;  // at most, of one launch
  int64_t parts;          // of a launch and head group, in the workspace; no less for more tokens
};

// At most n_sms * kHeadTile heads.
DecodePlan plan_decode(const DecodeShape& shape, int n_sms);

}  // namespace quire::cuda
