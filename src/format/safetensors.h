// safetensors: the index of one file, checked in full before any tensor is used
// (docs/formats/safetensors.md). A pure function of the file's bytes; opens nothing, copies no
// data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace quire {

// The published reader's limit on the header.
inline constexpr int64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr size_t kTensorRankMax = 8;

struct TensorEntry {
  std::string name;
  Dtype dtype = Dtype::bf16;
  std::vector<int64_t> shape;  // elements; empty for a scalar
  int64_t offset = 0;          // bytes from the start of the file
  int64_t bytes = 0;           // the product of shape and element size
};

struct SafetensorsIndex {
  std::vector<TensorEntry> tensors;  // in order of offset; without gaps, up to the end of the file
};

// Errors: invalid_argument, beginning with `file_name` and naming the tensor: a header past the
// limit or the file; JSON that is not strict; an unknown dtype; a shape whose product overflows or
// differs from its bytes; offsets that are negative, inverted, overlapping, gapped or do not cover
// the data exactly.
Result<SafetensorsIndex> parse_safetensors(std::span<const std::byte> file,
                                           std::string_view file_name);

// What a file of these tensors begins with: length and header, padded so that data begin at a
// multiple of kSafetensorsAlignment. `offset` of the entries is not looked at: data follow in their
// order, without gaps.
inline constexpr int64_t kSafetensorsAlignment = 128;
std::string safetensors_header(std::span<const TensorEntry> tensors);

// "BF16 [32, 64]", for messages.
std::string describe(const TensorEntry& tensor);

}  // namespace quire
