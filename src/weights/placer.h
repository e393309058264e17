// Placer: tensors of a layer on their way into a backend's memory.
//
// Says where each array goes, in two passes of the same calls: the first only measures, the second
// places. What can be read where the file is mapped is borrowed; the rest is copied by an Upload,
// many pieces at once, or made up where there is no file (weights/dummy.h). Used by one loader.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ops/backend.h"
#include "ops/upload.h"
#include "ops/weight_matrix.h"
#include "weights/model_weights.h"
#include "weights/shard.h"

namespace quire {

// Memory that is handed out front to back. Without data it only measures.
struct Region {
  std::byte* data = nullptr;
  int64_t used = 0;  // bytes

  std::byte* take(int64_t bytes);
};

class Placer {
 public:
  // Both outlive this. Without an upload it measures.
  Placer(Backend& backend, Upload* upload, UploadProgress progress)
      : backend_(backend), upload_(upload), progress_(std::move(progress)) {}

  // Where arrays go from now on; outlives its use.
  void fill_region(Region* region) { region_ = region; }

  WeightMatrix matrix(const TensorSlice& tensor);
  View<const Bf16, 1> vector(const TensorSlice& tensor);
  View<const float, 1> widened_vector(const TensorSlice& tensor);
  View<const Bf16, 2> rows(const TensorSlice& tensor);
  // The two absorbed maps of a kv_b matrix, by head, in BF16.
  void split_kv_b(const TensorSlice& tensor, const ModelShape& shape, LayerWeights* layer);

  // Copies what was placed since the last time. Until then nothing may be read.
  void flush();

  int64_t borrowed_bytes() const { return borrowed_bytes_; }

 private:
  bool is_measuring() const { return upload_ == nullptr; }
  template <class T, class... Size>
  View<const T, int{sizeof...(Size)}> place(const TensorSlice& tensor, const ArraySlice& array,
                                            Size... size);
  // A matrix that no backend multiplies with as it is, in BF16.
  View<const Bf16, 2> decode_nvfp4(const TensorSlice& tensor);
  void touch(std::span<const std::byte> data);
  // The bytes of an array in host memory: where the file is mapped, else made up in `owned`.
  std::span<const std::byte> host_bytes(const TensorSlice& tensor, const ArraySlice& array,
                                        std::vector<std::byte>* owned) const;
  void split_bf16(const TensorSlice& tensor, const ModelShape& shape, std::byte* uk, std::byte* uv);
  void split_fp8(const TensorSlice& tensor, const ModelShape& shape, std::byte* uk, std::byte* uv);
  void advance(int64_t bytes) {
    if (progress_) progress_(bytes);
  }

  Backend& backend_;
  Upload* upload_;
  UploadProgress progress_;
  Region* region_ = nullptr;
  std::vector<UploadPiece> pieces_;
  int64_t borrowed_bytes_ = 0;
  volatile uint8_t touched_ = 0;  // keeps the reads of touch()
};

}  // namespace quire
