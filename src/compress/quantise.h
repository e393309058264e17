// Rows of a weight matrix from one stored format to another, and what the change costs.
//
// Knows formats, not files: bytes in, bytes out (compress/plan.h says which). Rows are independent
// of each other but for FP8 blocks, which are 128 rows, and the tensor scale of NVFP4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compress/group_fit.h"
#include "tensor/dtype.h"

namespace quire {

// How far quantised weights are from what they were. Sums in double, in order of rows and groups.
struct QuantisationError {
  double error = 0;         // sum of (weight - value)^2
  double weight = 0;        // sum of weight^2
  double value = 0;         // sum of value^2
  double worst = 0;         // relative error of the worst group: sqrt(error / weight) of it alone
  int64_t worst_row = 0;    // where it is
  int64_t worst_group = 0;  // along the inputs, in groups; of FP8 in blocks

  double relative() const;  // sqrt(error / weight); 0 of zeros
  double cosine() const;    // 1 of zeros

  struct Group {
    double error, weight, value;
    int64_t row, index;
  };
  void add(const Group& group);
  void merge(const QuantisationError& later);
};

// Some rows of a matrix as they are stored.
struct StoredRows {
  Dtype dtype = Dtype::bf16;            // or f8_e4m3
  std::span<const std::byte> values;    // [n_rows, n_in]
  std::span<const float> block_scales;  // f8_e4m3: of the whole matrix, [.., ceil(n_in / 128)]
  int64_t first_row = 0;                // in the matrix
  int64_t n_rows = 0;
  int64_t n_in = 0;
};

// out: [n_rows, n_in]. e4m3 values are multiplied by their scale, without rounding. The index of
// the first value that is no finite number, or -1; what comes after it is not decoded.
int64_t decode_rows(const StoredRows& rows, float* out);

// The index of the first value that is no finite number, or -1.
int64_t find_not_finite(std::span<const float> values);

// Rows in float32 on their way into a format. Each writes whole rows of its arrays.
struct DecodedRows {
  std::span<const float> values;  // [n_rows, n_in], finite
  int64_t first_row = 0;
  int64_t n_rows = 0;
  int64_t n_in = 0;

  const float* row(int64_t i) const { return values.data() + i * n_in; }
};

// packed: [n_rows, n_in / 2] bytes, the even input in the low nibble; scales: [n_rows, n_in /
// group] BF16. n_in is a multiple of group.
void quantise_int4(const DecodedRows& rows, int64_t group, std::byte* packed, std::byte* scales,
                   QuantisationError* error);

// codes: [n_rows, n_in] e4m3; scales: [ceil(n_rows / 128), ceil(n_in / 128)] F32, largest / 448, or
// 1 of zeros. The rows begin at a block.
void quantise_fp8(const DecodedRows& rows, std::byte* codes, std::byte* scales,
                  QuantisationError* error);

// packed: [n_rows, n_in / 2] bytes, the even input in the low nibble; scales: [n_rows, n_in / 16]
// e4m3. n_in is a multiple of 16.
void quantise_nvfp4(const DecodedRows& rows, float tensor_scale, std::byte* packed,
                    std::byte* scales, QuantisationError* error);

// out: [n_rows, n_in] BF16, to nearest even.
void round_to_bf16(const DecodedRows& rows, std::byte* out, QuantisationError* error);

}  // namespace quire
