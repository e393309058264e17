// Any bytes as a safetensors file: refused, or indexed so that every tensor lies inside the file.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const quire::Result<quire::SafetensorsIndex> index = quire::parse_safetensors(file, "fuzz");
  if (!index.ok()) {
    CHECK(index.error().message.starts_with("fuzz: "));
    return 0;
  }
  // What parse_safetensors promises, computed again by other means.
  int64_t covered = 0;
  for (const quire::TensorEntry& tensor : index.value().tensors) {
    CHECK(tensor.offset >= 8 && tensor.bytes >= 0);
    CHECK(static_cast<uint64_t>(tensor.offset) + static_cast<uint64_t>(tensor.bytes) <= size);
    int64_t bytes = quire::size_of(tensor.dtype);
    for (const int64_t extent : tensor.shape) bytes *= extent;
    CHECK(bytes == tensor.bytes);
    covered += tensor.bytes;
  }
  if (!index.value().tensors.empty()) {
    const quire::TensorEntry& first = index.value().tensors.front();
    CHECK(first.offset + covered == static_cast<int64_t>(size));
  }
  return 0;
}
