#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

// out[0, values) = the row of token `slot`, as stored.
void load_row(const KvPageLayout& layout, const std::byte* block, int32_t slot, float* out) {
  const std::byte* row = block + layout.row_offset(slot);
  if (layout.format == KvFormat::bf16) {
    const auto* values = reinterpret_cast<const Bf16*>(row);
    for (int32_t i = 0; i < layout.values(); ++i) out[i] = to_float(values[i]);
    return;
  }
  float scales[2];
  std::memcpy(scales, block + layout.scale_offset(slot), sizeof(scales));
  for (int32_t i = 0; i < layout.values(); ++i) {
    const Fp8E4m3 value{static_cast<uint8_t>(row[i])};
    out[i] = to_float(value) * scales[i < layout.kv_lora_rank ? 0 : 1];
  }
}

void attend(const ops::MlaAttention& args, int64_t token, int64_t head, Scratch& scratch) {
  const KvPageLayout& layout = *args.kv.layout;
  const int64_t rank = layout.kv_lora_rank;
  float* row = scratch.take<float>(layout.values());
  float* sum = scratch.take<float>(rank);
  std::fill_n(sum, rank, 0.0F);
  float largest = -std::numeric_limits<float>::infinity();
  float total = 0;
  const int32_t position = args.tokens.position(token);
  for (int32_t j = 0; j <= position; ++j) {
    const int64_t page = args.kv.table(args.tokens.row(token), j / kPageTokens);
    CHECK(0 <= page && page < args.kv.n_pages);
    load_row(layout,
             args.kv.pool + page * layout.page_bytes +
                 layout.blocks[static_cast<size_t>(args.layer)].offset,
             j % kPageTokens, row);
    float score = 0;
    for (int64_t c = 0; c < rank; ++c) score += to_float(args.q_latent(token, head, c)) * row[c];
    for (int64_t r = 0; r < layout.rope_dim; ++r) {
      score += to_float(args.q_rope(token, head, r)) * row[rank + r];
    }
    score *= args.scale;
    const float before = largest;
    largest = std::max(largest, score);
    const float shrink = std::exp(before - largest);
    const float weight = std::exp(score - largest);
    total = total * shrink + weight;
    for (int64_t c = 0; c < rank; ++c) sum[c] = sum[c] * shrink + weight * row[c];
  }
  for (int64_t c = 0; c < rank; ++c) args.out(token, head, c) = to_bf16(sum[c] / total);
}

}  // namespace

void mla_attention(Workers& workers, const ops::MlaAttention& args) {
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    const int64_t n = args.out[0] * args.out[1];
    for (int64_t i = worker; i < n; i += workers.count()) {
      scratch.reset();
      attend(args, i / args.out[1], i % args.out[1], scratch);
    }
  });
}

}  // namespace quire::cpu
