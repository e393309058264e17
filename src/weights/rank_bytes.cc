#include "weights/rank_bytes.h"

namespace quire {

Result<int64_t> rank_weight_bytes(std::span<const ResolvedTensor> tensors, const ModelShape& shape,
                                  const Partition& partition) {
  TRY(shape_of_rank(shape, partition));
  int64_t bytes = 0;
  for (const ResolvedTensor& tensor : tensors) {
    if (shape.is_predictor(tensor.wanted.layer)) continue;
    const TensorSlice part = TRY(slice_of(tensor, partition));
    const bool is_decoded =
        tensor.wanted.storage == Storage::kv_b || tensor.format == StoredFormat::nvfp4;
    bytes +=
        is_decoded ? part.wanted.n_out * part.wanted.n_in * int64_t{sizeof(Bf16)} : part.bytes();
  }
  return bytes;
}

}  // namespace quire
