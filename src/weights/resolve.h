// Resolving: for each tensor that the table wants, what the checkpoint holds for it, checked.
//
// Copies nothing. The format of a linear map is decided by the file, tensor by tensor, and must be
// one that the config's scheme permits there.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "format/checkpoint.h"
#include "ops/backend.h"
#include "ops/weight_matrix.h"
#include "weights/table.h"

namespace quire {

struct ResolvedTensor {
  WantedTensor wanted;
  WeightFormat format = WeightFormat::bf16;
  int group = 0;                             // int4_group only
  const CheckpointTensor* values = nullptr;  // the checkpoint outlives it
  const CheckpointTensor* scales = nullptr;  // null of BF16 and F32; the checkpoint outlives it

  int64_t bytes() const {
    return values->entry.bytes + (scales == nullptr ? 0 : scales->entry.bytes);
  }
};

// In the order of the table. Errors: as load_weights.
Result<std::vector<ResolvedTensor>> resolve_checkpoint(const Checkpoint& checkpoint,
                                                       const ModelShape& shape,
                                                       const WeightSource& source);

// True when ops of `backend` may read the tensor where the file is mapped.
bool can_borrow(const Backend& backend, const CheckpointTensor& tensor, size_t alignment);

// What reading `part` of `tensor` needs: the size of an element. Packed nibbles are read as bytes,
// although their dtype is I32.
size_t element_alignment(const CheckpointTensor& part, const ResolvedTensor& tensor);

// Rows [begin, begin + n) of a BF16 or FP8 matrix, as BF16. FP8 values times their scale round
// once, to nearest even. `out` is n rows long.
void copy_rows_as_bf16(const ResolvedTensor& tensor, int64_t begin, int64_t n,
                       std::span<std::byte> out);

}  // namespace quire
