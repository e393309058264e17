// Blas: products of bfloat16 matrices through cuBLASLt, with the algorithm of each shape kept.
//
// Sums in float32, and partial sums of a split product too. Not for quantised weights: those are
// thin.h and plain.h.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <map>

#include "cuda/common/device_memory.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace quire::cuda {

enum class WeightOrder : uint8_t { out_in, in_out };  // row-major [n_out, n_in], or its transpose

// For each b: out[b, t, o] = sum_i x[b, t, i] * weight[b, o, i]. Strides in elements; the last axis
// of each is contiguous.
struct BlasProduct {
  const Bf16* weight = nullptr;
  WeightOrder order = WeightOrder::out_in;
  int64_t weight_stride = 0;  // between rows, as stored
  int64_t weight_batch = 0;   // between matrices
  const Bf16* x = nullptr;
  int64_t x_stride = 0;
  int64_t x_batch = 0;
  void* out = nullptr;  // Bf16 or float, by `out_dtype`
  Dtype out_dtype = Dtype::bf16;
  int64_t out_stride = 0;
  int64_t out_batch = 0;
  int64_t n_tokens = 0;
  int64_t n_out = 0;
  int64_t n_in = 0;
  int64_t n_batch = 1;
};

enum class BlasAnswer : uint8_t { done, not_supported };

class Blas {
 public:
  // `memory` and the stream outlive this.
  Blas(DeviceMemory* memory, cudaStream_t stream);
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  // `not_supported` when the library has no algorithm for the shape and its alignment.
  BlasAnswer multiply(const BlasProduct& product);

 private:
  struct Plan {
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t weight = nullptr;
    cublasLtMatrixLayout_t x = nullptr;
    cublasLtMatrixLayout_t out = nullptr;
    cublasLtMatmulAlgo_t algorithm{};
    bool is_supported = false;
  };
  using Key = std::array<int64_t, 16>;

  static Key key_of(const BlasProduct& product);
  Plan make_plan(const BlasProduct& product) const;
  void choose_algorithm(const BlasProduct& product, Plan* plan) const;
  void forget_plans();

  DeviceMemory* memory_;
  cudaStream_t stream_;
  Buffer workspace_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Plan> plans_;
};

}  // namespace quire::cuda
