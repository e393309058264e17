// Tensor maps: arrays in device memory as the copy engine reads them, in panels of 64 columns and
// 128 rows, swizzled as ptx/wgmma.cuh describes. What lies outside the array reads as zero.
#pragma once

#include <cuda.h>

#include "tensor/view.h"

namespace quire::cuda {

// The driver's encoder, looked up once an op.
class TensorMapMaker {
 public:
  TensorMapMaker();

  // Panels of x[token, head, column]. x is at 16 bytes, its strides multiples of 16 bytes.
  CUtensorMap panels(const View<const Bf16, 3>& x) const;

 private:
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  Encode encode_ = nullptr;
};

}  // namespace quire::cuda
