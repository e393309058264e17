#include "format/kv_page.h"

#include "base/bytes.h"
#include "base/text.h"

namespace quire {

std::string_view name(KvFormat format) {
  switch (format) {
    case KvFormat::bf16:
      return "bf16";
    case KvFormat::fp8_e4m3_584:
      return "fp8_e4m3";
  }
  CHECK(false);
  return {};
}

Result<KvFormat> parse_kv_format(std::string_view text) {
  if (text == "auto" || text == "bf16" || text == "bfloat16") return KvFormat::bf16;
  if (text == "fp8_e4m3") return KvFormat::fp8_e4m3_584;
  return unsupported(format("kv-cache-dtype: expected auto, bf16, bfloat16 or fp8_e4m3, found '%s'",
                            excerpt(text).c_str()));
}

KvPageLayout make_mla_layout(KvFormat format, int32_t n_layers, int32_t kv_lora_rank,
                             int32_t rope_dim, int32_t page_tokens) {
  CHECK(n_layers > 0 && kv_lora_rank > 0 && rope_dim > 0 && page_tokens > 0);
  KvPageLayout layout{.format = format,
                      .page_tokens = page_tokens,
                      .kv_lora_rank = kv_lora_rank,
                      .rope_dim = rope_dim};
  const int64_t value_bytes = format == KvFormat::bf16 ? 2 : 1;
  const int64_t scale_bytes = format == KvFormat::bf16 ? 0 : 8;
  const int64_t block_bytes = page_tokens * (layout.values() * value_bytes + scale_bytes);
  int64_t offset = 0;
  for (int32_t layer = 0; layer < n_layers; ++layer) {
    layout.blocks.push_back({.layer = layer, .offset = offset, .bytes = block_bytes});
    offset = round_up(offset + block_bytes, kKvBlockAlignment);
  }
  layout.page_bytes = offset;
  return layout;
}

std::string describe(const KvPageLayout& layout) {
  return format("kv layout v%d %s, %d tokens a page, %zu blocks, latent %d + rope %d, %lld bytes",
                kKvLayoutVersion, std::string(name(layout.format)).c_str(), layout.page_tokens,
                layout.blocks.size(), layout.kv_lora_rank, layout.rope_dim,
                static_cast<long long>(layout.page_bytes));
}

}  // namespace quire
