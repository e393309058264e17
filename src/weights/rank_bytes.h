// What one tensor-parallel rank holds of a checkpoint's weights in memory, in bytes: arithmetic on
// names and sizes, for who plans machines. The loader's own count is ModelWeights'.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "weights/shard.h"

namespace quire {

// Layers that predict further tokens are not counted: no rank loads them. What is held
// in BF16 whatever the file has is counted so: the two absorbed maps of kv_b, and NVFP4. Errors: as
// shape_of_rank and slice_of.
Result<int64_t> rank_weight_bytes(std::span<const ResolvedTensor> tensors, const ModelShape& shape,
                                  const Partition& partition);

}  // namespace quire
