#include "weights/nvfp4.h"

#include "base/check.h"
#include "weights/weight_scheme.h"

namespace quire {

void decode_nvfp4_row(const Nvfp4Row& row, std::span<Bf16> out) {
  CHECK(out.size() % kNvfp4Group == 0);
  for (size_t group = 0; group < out.size() / kNvfp4Group; ++group) {
    const Fp8E4m3 bits{static_cast<uint8_t>(row.scales[group])};
    const float scale = to_float(bits) * row.tensor_scale;
    for (size_t i = group * kNvfp4Group; i < (group + 1) * kNvfp4Group; ++i) {
      const auto byte = static_cast<unsigned>(row.packed[i / 2]);
      const unsigned code = i % 2 == 0 ? byte & 15U : byte >> 4;
      const float size = kE2m1Values[code & 7U] * scale;
      out[i] = to_bf16((code & 8U) != 0 ? -size : size);
    }
  }
}

}  // namespace quire
