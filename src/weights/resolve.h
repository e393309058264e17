// Resolving: for each tensor that the table wants, what the checkpoint holds for it, checked.
//
// Copies nothing. The format of a linear map is decided by the file, tensor by tensor, and must be
// one that the config's scheme permits there.
#pragma once

#include <vector>

#include "format/checkpoint.h"
#include "ops/weight_matrix.h"
#include "weights/table.h"

namespace quire {

struct ResolvedTensor {
  WantedTensor wanted;
  StoredFormat format = StoredFormat::bf16;
  int group = 0;                             // int4_group only
  const CheckpointTensor* values = nullptr;  // the checkpoint outlives it
  const CheckpointTensor* scales = nullptr;  // null of BF16 and F32; the checkpoint outlives it
  const CheckpointTensor* tensor_scale = nullptr;  // nvfp4 only: of all its values

  int64_t bytes() const {
    return values->entry.bytes + (scales == nullptr ? 0 : scales->entry.bytes) +
           (tensor_scale == nullptr ? 0 : tensor_scale->entry.bytes);
  }
};

// In the order of the table. Errors: as load_weights.
Result<std::vector<ResolvedTensor>> resolve_checkpoint(const Checkpoint& checkpoint,
                                                       const ModelShape& shape,
                                                       const WeightSource& source,
                                                       LayerScope scope = LayerScope::decoder);

// Whether the checkpoint has the layers past the last one that its config speaks of.
LayerScope scope_of(const Checkpoint& checkpoint, const ModelShape& shape, CheckpointNaming naming);

}  // namespace quire
