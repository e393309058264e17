#include "cuda/tune/key_splits.h"

#include <algorithm>

namespace quire::cuda {

int64_t split_bytes(const KeySplitShape& shape, int64_t n_splits) {
  return shape.n_tokens * shape.n_heads * n_splits * (shape.value_dim + 2) * 4;
}

int64_t key_splits(const KeySplitShape& shape, int n_sms) {
  constexpr int64_t kSplitsMax = 16;
  constexpr int64_t kBlocksMin = 4;  // of keys, of a split on average
  // Every split should find a multiprocessor of its own.
  const int64_t n_blocks = std::max<int64_t>(shape.n_heads * shape.n_tiles, 1);
  int64_t splits = std::min(n_sms / n_blocks, shape.key_blocks / kBlocksMin);
  splits = std::clamp<int64_t>(splits, 1, kSplitsMax);
  const int64_t bytes = std::max<int64_t>(split_bytes(shape, 1), 1);
  return std::clamp<int64_t>(kSplitBytesMax / bytes, 1, splits);
}

}  // namespace quire::cuda
