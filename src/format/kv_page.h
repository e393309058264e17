// The bytes of a KV page: docs/formats/kv_page.md, as code. Pure functions and structs.
//
// A page holds 64 tokens of every layer, page-major: block after block, one block for each layer
// and kind. A KvPageLayout is computed once from the model's shape and never changes.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

inline constexpr int32_t kPageTokens = 64;
inline constexpr int32_t kKvLayoutVersion = 2;
inline constexpr int64_t kKvBlockAlignment = 128;  // bytes

enum class KvFormat : uint8_t {
  bf16,          // values as they are
  fp8_e4m3_584,  // a byte a value: e4m3 latent, int8 rope key, and 8 bytes of scales a token
};

std::string_view name(KvFormat format);                   // "bf16", "fp8_e4m3"
Result<KvFormat> parse_kv_format(std::string_view text);  // also "auto" and "bfloat16": bf16

enum class KvBlockKind : uint8_t { mla, index_key, k, v };

struct KvBlock {
  int32_t layer = 0;
  KvBlockKind kind = KvBlockKind::mla;
  int64_t offset = 0;  // bytes from the start of the page, a multiple of 128
  int64_t bytes = 0;   // without padding
};

struct KvPageLayout {
  KvFormat format = KvFormat::bf16;
  int32_t page_tokens = kPageTokens;
  int32_t kv_lora_rank = 0;     // latent values a token
  int32_t rope_dim = 0;         // rope values a token
  std::vector<KvBlock> blocks;  // in order of offset; block l is the MLA block of layer l
  int64_t page_bytes = 0;       // a multiple of 128

  int32_t values() const { return kv_lora_rank + rope_dim; }
  // Where, inside a block, the values of token `slot` begin (bf16: 2 bytes each; fp8: 1 byte each).
  int64_t row_offset(int32_t slot) const {
    return int64_t{slot} * values() * (format == KvFormat::bf16 ? 2 : 1);
  }
  // FP8 only: where, inside a block, the two float32 scales {latent, rope} of token `slot` are.
  int64_t scale_offset(int32_t slot) const {
    return int64_t{page_tokens} * values() + int64_t{slot} * 8;
  }
};

// FP8: how a token's rope key becomes integers, and is read.
struct KeyScale {
  float of_integer;  // value = integer * of_integer
  float of_value;    // integer = value * of_value, to nearest even: at most 127
};
// `largest`: the largest magnitude of the key, infinite or NaN where a value is. Such a key reads
// as NaN, and its integers are zero.
constexpr KeyScale key_scale(float largest) {
  if (!(largest <= std::numeric_limits<float>::max())) {
    return {std::bit_cast<float>(0x7fc00000U), 0};
  }
  const float most = largest < 0x1p-100F ? 0x1p-100F : largest;
  return {most / 127.0F, 127.0F / most};
}

// The layout of a model whose layers all keep MLA rows. Sizes are positive.
KvPageLayout make_mla_layout(KvFormat format, int32_t n_layers, int32_t kv_lora_rank,
                             int32_t rope_dim, int32_t page_tokens = kPageTokens);

// One line that names every field that two ends must agree on.
std::string describe(const KvPageLayout& layout);

}  // namespace quire
