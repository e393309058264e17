// The bytes of a KV page: docs/formats/kv_page.md, as code. Pure functions and structs.
//
// A page holds 64 tokens of every layer, page-major: block after block, one block for each layer
// and kind. A KvPageLayout is computed once from the model's shape and never changes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quire {

inline constexpr int32_t kPageTokens = 64;
inline constexpr int32_t kKvLayoutVersion = 1;
inline constexpr int64_t kKvBlockAlignment = 128;  // bytes

enum class KvFormat : uint8_t {
  bf16,          // values as they are
  fp8_e4m3_584,  // e4m3 with two float32 scales a token: 512 + 64 values, 8 bytes of scales
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

// The layout of a model whose layers all keep MLA rows. Sizes are positive.
KvPageLayout make_mla_layout(KvFormat format, int32_t n_layers, int32_t kv_lora_rank,
                             int32_t rope_dim, int32_t page_tokens = kPageTokens);

// One line that names every field that two ends must agree on.
std::string describe(const KvPageLayout& layout);

}  // namespace quire
