// How many blocks share the keys of a tile of queries, where a step has fewer tiles than the device
// has multiprocessors (cuda/mla_prefill/head_attention.h). From shapes alone.
#pragma once

#include <cstdint>

namespace quire::cuda {

// What the sums of all splits may take of the workspace. A step claims it whatever its shape: the
// largest one decides how much there is.
inline constexpr int64_t kSplitBytesMax = int64_t{32} << 20;

struct KeySplitShape {
  int64_t n_tokens;  // whose sums are kept, rows of one token included
  int64_t n_heads;
  int64_t n_tiles;     // of queries, for each head
  int64_t key_blocks;  // of all rows
  int64_t value_dim;
};

// Bytes of the sums of so many splits, in float32: values, total and largest.
int64_t split_bytes(const KeySplitShape& shape, int64_t n_splits);

// At least 1, which keeps no sums.
int64_t key_splits(const KeySplitShape& shape, int n_sms);

}  // namespace quire::cuda
