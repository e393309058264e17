#include "tools/public_figures.h"

namespace quire {

namespace {

constexpr int32_t kContext = 8192;

// Microseconds a layer.
struct PublicRow {
  int32_t batch;
  double qkv_a;           // q_a and kv_a
  double glue_and_q_b;    // norms, rope, cache write, q_b, the query's absorption
  double attention_fp8;   // over an FP8 cache
  double attention_bf16;  // over a BF16 cache
  double value;           // combining splits, the value's expansion
  double o;
  double router;
  double routed;  // INT4 experts, group 32
  double shared;
};

constexpr PublicRow kRows[] = {
    {1, 10.5, 13.0, 18.5, 19.6, 5.0, 6.7, 6.5, 30, 13},
    {8, 10.4, 12.8, 27.5, 35.8, 4.3, 6.7, 7.0, 95, 13},
    {32, 10.5, 12.8, 67, 87.5, 4.3, 6.8, 8.0, 199, 13},
    {64, 10.6, 13.5, 117, 155, 4.5, 7.1, 8.5, 297, 13},
};

// The shard that the figures are of: eight heads, 384 experts of 2,048 / 8.
bool is_their_model(const ModelConfig& config) {
  const ModelShape& shape = config.shape;
  return shape.hidden_size == 7168 && shape.n_heads == 8 && shape.n_experts == 384 &&
         shape.expert_inner == 256 && shape.kv_lora_rank == 512 &&
         config.weights.scheme == WeightScheme::int4_group;
}

}  // namespace

std::optional<PublicFigures> public_decode_figures(const ModelConfig& config, KvFormat kv_format,
                                                   int32_t batch, int32_t context) {
  if (context != kContext || !is_their_model(config)) return std::nullopt;
  for (const PublicRow& row : kRows) {
    if (row.batch != batch) continue;
    PublicFigures out{
        .attention_us = kv_format == KvFormat::bf16 ? row.attention_bf16 : row.attention_fp8,
        .experts_us = row.routed + row.shared};
    out.layer_us = row.qkv_a + row.glue_and_q_b + out.attention_us + row.value + row.o +
                   row.router + out.experts_us;
    return out;
  }
  return std::nullopt;
}

}  // namespace quire
