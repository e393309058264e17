#include "cuda/common/tensor_map.h"

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

CUtensorMap TensorMapMaker::map_of(const MappedArray& array) const {
  CHECK(reinterpret_cast<uintptr_t>(array.data) % 16 == 0);
  cuuint64_t shape[3];
  cuuint32_t box[3];
  for (int i = 0; i < 3; ++i) {
    shape[i] = static_cast<cuuint64_t>(array.shape[i]);
    box[i] = static_cast<cuuint32_t>(array.box[i]);
  }
  cuuint64_t stride_bytes[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(array.stride_bytes[i] % 16 == 0);
    stride_bytes[i] = static_cast<cuuint64_t>(array.stride_bytes[i]);
  }
  const cuuint32_t step[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode_(&map, array.type, 3, const_cast<void*>(array.data), shape, stride_bytes, box, step,
              CU_TENSOR_MAP_INTERLEAVE_NONE, array.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(result == CUDA_SUCCESS);
  return map;
}

CUtensorMap TensorMapMaker::panels(const View<const Bf16, 3>& x, int32_t rows) const {
  return map_of({.data = x.data,
                 .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 .shape = {x[2], x[1], x[0]},
                 .stride_bytes = {2 * x.stride[1], 2 * x.stride[0]},
                 .box = {64, 1, rows},
                 .swizzle = CU_TENSOR_MAP_SWIZZLE_128B});
}

}  // namespace quire::cuda
