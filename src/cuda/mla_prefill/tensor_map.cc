#include "cuda/mla_prefill/tensor_map.h"

#include <cuda_runtime.h>

#include "base/check.h"
#include "cuda/common/cuda_must.h"

namespace quire::cuda {

TensorMapMaker::TensorMapMaker() {
  constexpr unsigned kCudaVersion = 12000;  // the encoder's first
  cudaDriverEntryPointQueryResult found{};
  void* function = nullptr;
  CUDA_MUST(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kCudaVersion,
                                             cudaEnableDefault, &found));
  CHECK(found == cudaDriverEntryPointSuccess);
  encode_ = reinterpret_cast<Encode>(function);
}

CUtensorMap TensorMapMaker::panels(const View<const Bf16, 3>& x) const {
  CHECK(reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && x.stride[0] % 8 == 0 &&
        x.stride[1] % 8 == 0);
  const auto size = [](int64_t n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t shape[3] = {size(x[2]), size(x[1]), size(x[0])};
  const cuuint64_t stride_bytes[2] = {size(2 * x.stride[1]), size(2 * x.stride[0])};
  const cuuint32_t box[3] = {64, 1, 128};
  const cuuint32_t step[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode_(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<Bf16*>(x.data), shape,
              stride_bytes, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS);
  return map;
}

}  // namespace quire::cuda
