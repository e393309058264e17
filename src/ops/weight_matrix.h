// WeightMatrix: a borrowed weight of a linear map, [out, in], in whatever format it is stored.
//
// Model code passes it on; only a backend looks at the format. The memory belongs to the weight
// table (weights/table.h), which outlives every model that uses it.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace quire {

// Rows and columns that share a scale in `fp8_block128`; inputs of a token that share one in
// `fp8_group128`.
inline constexpr int64_t kFp8Block = 128;

enum class WeightFormat : uint8_t {
  bf16,          // one Bf16 a weight
  fp8_block128,  // e4m3, one float32 scale for each 128 x 128 block; ragged edges keep a full scale
  int4_group,  // 4-bit, offset binary (value + 8), one Bf16 scale for each `group` inputs of a row
};

struct WeightMatrix {
  WeightFormat format = WeightFormat::bf16;
  int64_t n_out = 0;
  int64_t n_in = 0;

  View<const Bf16, 2> bf16;  // [n_out, n_in]

  View<const Fp8E4m3, 2> fp8;      // [n_out, n_in]
  View<const float, 2> fp8_scale;  // [ceil(n_out / 128), ceil(n_in / 128)]; w = fp8 * scale

  // Byte b of a row holds input 2b in its low nibble and 2b + 1 in its high one:
  // w = (nibble - 8) * scale[row, input / group].
  View<const uint8_t, 2> int4;     // [n_out, n_in / 2]
  View<const Bf16, 2> int4_scale;  // [n_out, n_in / group]
  int group = 0;                   // 32 or 128
};

// True when the views that `format` needs are there, in the shapes that the fields above promise.
bool is_well_formed(const WeightMatrix& weight);

// How the input of a linear map is rounded before the product. Chosen per role by a flag, never by
// batch size.
enum class Activation : uint8_t {
  bf16,          // as it is; weights are dequantised
  fp8_group128,  // e4m3 per token and 128 values, scale = amax / 448 (1 if amax is 0): what
                 // DeepSeek's FP8 checkpoints expect. Applies to fp8_block128 weights only.
};

}  // namespace quire
