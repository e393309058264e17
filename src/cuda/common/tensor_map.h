// Tensor maps: arrays in device memory as the copy engine reads them (ptx/tensor_copy.cuh), a box
// at a time. What lies outside the array reads as zero.
#pragma once

#include <cuda.h>

#include "tensor/view.h"

namespace quire::cuda {

// Of at most 256 bytes and rows a side. The swizzle moves 16-byte pieces among the rows of a box,
// so that neither a row nor a column of pieces meets one bank: piece c of row r of 128 bytes lies
// at c ^ (r % 8), of 64 bytes at c ^ (r / 2 % 4).
struct MappedArray {
  const void* data;  // at 16 bytes
  CUtensorMapDataType type;
  int64_t shape[3];         // elements, innermost axis first
  int64_t stride_bytes[2];  // of the two outer axes: multiples of 16
  int32_t box[3];
  CUtensorMapSwizzle swizzle;  // of as many bytes as a row of the box has
};

// The driver's encoder, looked up once an op.
class TensorMapMaker {
 public:
  TensorMapMaker();

  CUtensorMap map_of(const MappedArray& array) const;
  // Panels of 64 columns and `rows` rows of x[row, head, column], as ptx/wgmma.cuh describes them.
  CUtensorMap panels(const View<const Bf16, 3>& x, int32_t rows) const;

 private:
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  Encode encode_ = nullptr;
};

}  // namespace quire::cuda
