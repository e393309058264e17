// The rows of `quire bench op`: shapes of one of eight tensor-parallel ranks of Kimi K2.
#include <algorithm>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "ops/append_latent.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/place_tokens.h"
#include "ops/rms_norm.h"
#include "tools/op_bench.h"
#include "tools/op_bytes.h"
#include "tools/synthetic_step.h"

namespace quire {

namespace {

using Fill = OpBench::Fill;

constexpr int64_t kHidden = 7168;
constexpr int64_t kHeads = 8;
constexpr int64_t kRank = 512;
constexpr int64_t kRope = 64;
constexpr int64_t kNope = 128;
constexpr int64_t kValue = 128;
constexpr int64_t kQueryRank = 1536;
constexpr int64_t kVocab = 163840;
constexpr int64_t kPositions = 131072;  // of tables of angles
// Copies of an op's data hold so much together: four times the cache of an H200.
constexpr double kRotatedBytes = 240e6;
constexpr int64_t kCopiesMax = 128;

int64_t copies_of(double bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(kRotatedBytes / bytes) + 1, 2, kCopiesMax);
}

struct LinearShape {
  const char* what;
  int64_t n_out;
  int64_t n_in;
  WeightFormat format;
};

void bench_linear(OpBench& b, const LinearShape& shape, int64_t n_tokens) {
  const WeightMatrix like{.format = shape.format, .group = 32};
  const std::string name =
      format("linear %s, %s %lld x %lld, %lld tokens", shape.what, weight_name(like),
             static_cast<long long>(shape.n_out), static_cast<long long>(shape.n_in),
             static_cast<long long>(n_tokens));
  if (!b.wants(name)) return;
  const double weight_bytes =
      static_cast<double>(shape.n_out * shape.n_in) * bytes_per_weight(shape.format, like.group);
  std::vector<WeightMatrix> weights;
  for (int64_t i = 0; i < copies_of(weight_bytes); ++i) {
    weights.push_back(b.weight(shape.format, shape.n_out, shape.n_in));
  }
  const auto x = b.array<Bf16>(Fill::bf16, n_tokens, shape.n_in);
  const auto out = b.array<Bf16>(Fill::zero, n_tokens, shape.n_out);
  b.time(name, bytes_of(weights[0]) + bytes_of(x) + bytes_of(out), [&](int i) {
    ops::linear(b.backend(), {.out = out,
                              .out_f32 = {},
                              .x = x,
                              .weight = weights[static_cast<size_t>(i) % weights.size()]});
  });
  b.forget();
}

// q_a and kv_a of one input, as the forward pass asks for them.
void bench_pair(OpBench& b, int64_t n_tokens) {
  const std::string name = format("linear_pair bf16, 1536 and 576 x 7168, %lld tokens",
                                  static_cast<long long>(n_tokens));
  if (!b.wants(name)) return;
  constexpr int64_t kCopies = 8;
  constexpr int64_t kQuery = 1536;
  constexpr int64_t kLatentKey = kRank + kRope;
  std::vector<WeightMatrix> first, second;  // next to each other, as the loader places them
  for (int64_t i = 0; i < kCopies; ++i) {
    const WeightMatrix both = b.weight(WeightFormat::bf16, kQuery + kLatentKey, kHidden);
    for (const auto& [sides, begin, n_out] :
         {std::tuple{&first, int64_t{0}, kQuery}, std::tuple{&second, kQuery, kLatentKey}}) {
      WeightMatrix side = both;
      side.n_out = n_out;
      side.bf16 = both.bf16.rows(begin, n_out);
      sides->push_back(side);
    }
  }
  const auto x = b.array<Bf16>(Fill::bf16, n_tokens, kHidden);
  const auto out = b.array<Bf16>(Fill::zero, n_tokens, kQuery + kLatentKey);
  const View<Bf16, 2> q_a = out.columns(0, kQuery);
  const View<Bf16, 2> kv_a = out.columns(kQuery, kLatentKey);
  b.time(name, bytes_of(first[0]) + bytes_of(second[0]) + bytes_of(x) + bytes_of(out), [&](int i) {
    const auto copy = static_cast<size_t>(i % kCopies);
    ops::linear_pair(b.backend(), {.first = {.out = q_a, .weight = first[copy]},
                                   .second = {.out = kv_a, .weight = second[copy]},
                                   .x = x});
  });
  b.forget();
}

void bench_products(OpBench& b) {
  for (const int64_t n_tokens : {1, 8, 32, 64}) bench_pair(b, n_tokens);
  constexpr LinearShape kDecode[] = {{"q_a and kv_a", 2112, kHidden, WeightFormat::bf16},
                                     {"q_b", 1536, 1536, WeightFormat::bf16},
                                     {"o", kHidden, 1024, WeightFormat::bf16},
                                     {"router", 384, kHidden, WeightFormat::bf16},
                                     {"head", kVocab / 8, kHidden, WeightFormat::bf16},
                                     {"q_a and kv_a", 2112, kHidden, WeightFormat::fp8_block128},
                                     {"q_a and kv_a", 2112, kHidden, WeightFormat::int4_group}};
  for (const LinearShape& shape : kDecode) {
    for (const int64_t n_tokens : {1, 8, 32, 64}) bench_linear(b, shape, n_tokens);
  }
  for (const WeightFormat stored :
       {WeightFormat::bf16, WeightFormat::fp8_block128, WeightFormat::int4_group}) {
    bench_linear(b, {"q_a and kv_a", 2112, kHidden, stored}, 8192);
  }
}

void bench_rows(OpBench& b) {
  const auto x = b.array<Bf16>(Fill::bf16, int64_t{64}, kHidden);
  const auto out = b.array<Bf16>(Fill::zero, int64_t{64}, kHidden);
  const auto weight = b.array<Bf16>(Fill::bf16, kHidden);
  b.time("rms_norm 64 x 7168", 2 * bytes_of(x), [&](int) {
    ops::rms_norm(b.backend(), {.out = out, .x = x, .weight = weight, .eps = 1e-6F});
  });
  const auto h = b.array<Bf16>(Fill::bf16, int64_t{64}, kHidden);
  b.time("add_rms_norm 64 x 7168", 4 * bytes_of(x), [&](int) {
    ops::add_rms_norm(b.backend(),
                      {.out = out, .h = h, .delta = x, .weight = weight, .eps = 1e-6F});
  });
  const auto q_nope = b.array<Bf16>(Fill::bf16, int64_t{64}, kHeads, kNope);
  const auto w_uk = b.array<Bf16>(Fill::bf16, kHeads, kNope, kRank);
  const auto w_uv = b.array<Bf16>(Fill::bf16, kHeads, kValue, kRank);
  const auto latent = b.array<Bf16>(Fill::bf16, int64_t{64}, kHeads, kRank);
  const auto value = b.array<Bf16>(Fill::zero, int64_t{64}, kHeads, kValue);
  b.time("absorb_query 8 heads, 64 tokens", bytes_of(w_uk) + bytes_of(q_nope) + bytes_of(latent),
         [&](int) {
           ops::absorb_query(b.backend(), {.out = latent, .q_nope = q_nope, .w_uk = w_uk});
         });
  b.time("expand_value 8 heads, 64 tokens", bytes_of(w_uv) + bytes_of(latent) + bytes_of(value),
         [&](int) { ops::expand_value(b.backend(), {.out = value, .x = latent, .w_uv = w_uv}); });
  b.forget();
}

// The same rows attended by head, where the backend would do that.
void bench_by_head(OpBench& b, const std::string& label, double cached_bytes,
                   const ModelBatch& batch) {
  const int64_t n_tokens = batch.ids[0];
  const auto n_layers = static_cast<int32_t>(batch.kv.layout->blocks.size());
  const auto q = b.array<Bf16>(Fill::bf16, n_tokens, kHeads, kNope + kRope);
  const auto w_uk = b.array<Bf16>(Fill::bf16, kHeads, kNope, kRank);
  const auto w_uv = b.array<Bf16>(Fill::bf16, kHeads, kValue, kRank);
  const auto out = b.array<Bf16>(Fill::zero, n_tokens, kHeads, kValue);
  ops::MlaPrefillAttention args{.out = out,
                                .q_nope = q.columns(0, kNope),
                                .q_rope = q.columns(kNope, kRope),
                                .w_uk = w_uk,
                                .w_uv = w_uv,
                                .kv = batch.kv,
                                .tokens = batch.tokens,
                                .scale = 0.07F};
  if (!b.backend().attends_by_head(args)) return;
  b.time("mla_prefill_attention " + label, cached_bytes + bytes_of(q) + bytes_of(out), [&](int i) {
    args.layer = i % n_layers;
    ops::mla_prefill_attention(b.backend(), args);
  });
}

// What writes the step's tokens into the pool.
void bench_stores(OpBench& b, const std::string& label, const ModelBatch& batch,
                  double stored_bytes) {
  const int64_t n_tokens = batch.ids[0];
  const auto n_layers = static_cast<int32_t>(batch.kv.layout->blocks.size());
  const auto places = b.array<TokenPlace>(Fill::zero, n_tokens);
  ops::place_tokens(b.backend(), {.out = places, .kv = batch.kv, .tokens = batch.tokens});
  const auto latent = b.array<Bf16>(Fill::bf16, n_tokens, kRank);
  const auto rope = b.array<Bf16>(Fill::bf16, n_tokens, kRope);
  b.time("kv_append " + label, stored_bytes + bytes_of(latent) + bytes_of(rope), [&](int i) {
    ops::kv_append(
        b.backend(),
        {.kv = batch.kv, .places = places, .layer = i % n_layers, .latent = latent, .rope = rope});
  });
  const auto kv_a = b.array<Bf16>(Fill::bf16, n_tokens, kRank + kRope);
  const auto kv_a_norm = b.array<Bf16>(Fill::bf16, kRank);
  const auto q_a = b.array<Bf16>(Fill::bf16, n_tokens, kQueryRank);
  const auto q_a_norm = b.array<Bf16>(Fill::bf16, kQueryRank);
  const auto angles = b.array<float>(Fill::bf16, kPositions, kRope / 2);
  b.time("append_latent " + label, stored_bytes + bytes_of(kv_a) + 2 * bytes_of(q_a), [&](int i) {
    ops::append_latent(b.backend(), {.kv = batch.kv,
                                     .places = places,
                                     .positions = batch.tokens.position,
                                     .layer = i % n_layers,
                                     .kv_a = kv_a,
                                     .kv_a_norm = kv_a_norm,
                                     .q_a = q_a,
                                     .q_a_norm = q_a_norm,
                                     .eps = 1e-6F,
                                     .cos = angles,
                                     .sin = angles});
  });
}

// A step of attention over a pool of random rows, in as many layers as keep caches cold.
void bench_attention(OpBench& b, KvFormat stored, const SyntheticShape& shape) {
  const std::string rows = shape.row_tokens == 1
                               ? format("%d x %d", shape.n_rows, shape.first_position + 1)
                               : format("%d x tokens %d to %d", shape.n_rows, shape.first_position,
                                        shape.first_position + shape.row_tokens);
  const std::string label = std::string(name(stored)) + ", 8 heads, " + rows;
  if (!b.wants("mla_attention " + label) && !b.wants("mla_prefill_attention " + label) &&
      !b.wants("kv_append " + label) && !b.wants("append_latent " + label)) {
    return;
  }
  const KvPageLayout one = make_mla_layout(stored, 1, kRank, kRope);
  const int64_t n_pages = shape.n_rows * shape.pages_per_row() + 1;
  const auto n_layers =
      static_cast<int32_t>(copies_of(static_cast<double>(n_pages * one.page_bytes)));
  const KvPageLayout layout = make_mla_layout(stored, n_layers, kRank, kRope);
  SyntheticPool pool = SyntheticPool::make(b.backend(), n_pages * layout.page_bytes).value();
  CHECK(pool.fill(b.backend(), layout).ok());
  const SyntheticStep step = SyntheticStep::make(b.backend(), pool, layout, shape, kVocab).value();
  const ModelBatch& batch = step.batch();
  const int64_t n_tokens = batch.ids[0];
  const auto q_latent = b.array<Bf16>(Fill::bf16, n_tokens, kHeads, kRank);
  const auto q_rope = b.array<Bf16>(Fill::bf16, n_tokens, kHeads, kRope);
  const auto out = b.array<Bf16>(Fill::zero, n_tokens, kHeads, kRank);
  const double token_bytes = static_cast<double>(layout.blocks.front().bytes) / layout.page_tokens;
  const double cached = shape.n_rows * static_cast<double>(shape.first_position + shape.row_tokens);
  b.time("mla_attention " + label,
         cached * token_bytes + bytes_of(q_latent) + bytes_of(q_rope) + bytes_of(out), [&](int i) {
           ops::mla_attention(b.backend(), {.out = out,
                                            .q_latent = q_latent,
                                            .q_rope = q_rope,
                                            .kv = batch.kv,
                                            .tokens = batch.tokens,
                                            .layer = i % n_layers,
                                            .scale = 0.1F});
         });
  bench_by_head(b, label, cached * token_bytes, batch);
  bench_stores(b, label, batch, static_cast<double>(n_tokens) * token_bytes);
  b.forget();
}

void bench_attention_shapes(OpBench& b) {
  for (const int32_t context : {1024, 8192, 21504}) {
    for (const int32_t n_rows : {1, 8, 32, 64}) {
      for (const KvFormat stored : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
        bench_attention(b, stored, {.n_rows = n_rows, .first_position = context - 1});
      }
    }
  }
  for (const KvFormat stored : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    bench_attention(b, stored, {.n_rows = 8, .first_position = 131071});
    bench_attention(b, stored, {.n_rows = 1, .row_tokens = 8192});
    bench_attention(b, stored, {.n_rows = 1, .row_tokens = 2048, .first_position = 30720});
    bench_attention(b, stored, {.n_rows = 1, .row_tokens = 256, .first_position = 7936});
    bench_attention(b, stored, {.n_rows = 1, .row_tokens = 64, .first_position = 8128});
  }
}

// A layer's experts, packed, with the shared one in BF16 as INT4 checkpoints keep it, or in the
// routed ones' format.
std::unique_ptr<ops::ExpertBank> make_bank(OpBench& b, WeightFormat stored) {
  constexpr int64_t kExperts = 384;
  constexpr int64_t kInner = 256;
  const auto expert = [&](WeightFormat of) {
    return ops::ExpertWeights{b.weight(of, kInner, kHidden), b.weight(of, kInner, kHidden),
                              b.weight(of, kHidden, kInner)};
  };
  std::vector<ops::ExpertWeights> routed;
  for (int64_t e = 0; e < kExperts; ++e) routed.push_back(expert(stored));
  const WeightFormat shared = stored == WeightFormat::int4_group ? WeightFormat::bf16 : stored;
  return ops::pack_experts(b.backend(), {.routed = routed, .shared = expert(shared)}).value();
}

// How many experts have one of the top_k scores of a token.
int64_t n_chosen(const std::vector<float>& scores, int64_t n_experts, int64_t top_k) {
  std::vector<char> is_chosen(static_cast<size_t>(n_experts));
  std::vector<std::ptrdiff_t> order(is_chosen.size());
  for (auto row = scores.begin(); row != scores.end(); row += n_experts) {
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + top_k, order.end(),
                      [&](std::ptrdiff_t a, std::ptrdiff_t b) { return row[a] > row[b]; });
    for (int64_t k = 0; k < top_k; ++k) {
      is_chosen[static_cast<size_t>(order[static_cast<size_t>(k)])] = 1;
    }
  }
  return std::ranges::count(is_chosen, 1);
}

// Scores as independent routing would make them: new ones for each of a few copies.
void bench_experts(OpBench& b, const ops::ExpertBank& bank, int64_t n_tokens) {
  constexpr int64_t kTopK = 8;
  constexpr size_t kChoices = 8;
  const int64_t n_experts = bank.shape().n_experts;
  const WeightMatrix like{.format = bank.shape().format, .group = bank.shape().group};
  Rng rng(2);
  double used = 0;
  std::vector<View<const float, 2>> scores;
  for (size_t c = 0; c < kChoices; ++c) {
    std::vector<float> values(static_cast<size_t>(n_tokens * n_experts));
    for (float& score : values) score = rng.next_float();
    scores.push_back(b.upload(values, n_tokens, n_experts));
    used += static_cast<double>(n_chosen(values, n_experts, kTopK)) / kChoices;
  }
  const auto bias = b.array<float>(Fill::zero, n_experts);
  const auto experts = b.array<int32_t>(Fill::zero, n_tokens, kTopK);
  const auto weights = b.array<float>(Fill::zero, n_tokens, kTopK);
  const auto x = b.array<Bf16>(Fill::bf16, n_tokens, kHidden);
  const auto out = b.array<Bf16>(Fill::zero, n_tokens, kHidden);
  b.time(format("moe_experts %s, %lld tokens (%.1f experts and the shared one)", weight_name(like),
                static_cast<long long>(n_tokens), used),
         used * routed_bytes(bank.shape()) + shared_bytes(bank.shape()) + bytes_of(x) +
             bytes_of(out) + bytes_of(scores.front()) + bytes_of(experts) + bytes_of(weights),
         [&](int i) {
           ops::moe_experts(b.backend(), {.out = out,
                                          .experts = experts,
                                          .weights = weights,
                                          .x = x,
                                          .scores = scores[static_cast<size_t>(i) % kChoices],
                                          .bias = bias,
                                          .scaling = 2.5F,
                                          .bank = &bank});
         });
}

void bench_expert_formats(OpBench& b) {
  for (const WeightFormat stored :
       {WeightFormat::int4_group, WeightFormat::fp8_block128, WeightFormat::bf16}) {
    const WeightMatrix like{.format = stored, .group = 32};
    if (!b.wants_any("moe_experts " + std::string(weight_name(like)))) continue;
    const std::unique_ptr<ops::ExpertBank> bank = make_bank(b, stored);
    // What the backend does not keep, the bank has a copy of.
    if (!b.backend().keeps_raw_experts()) b.forget();
    for (const int64_t n_tokens : {1, 8, 32, 64, 1024, 8192}) bench_experts(b, *bank, n_tokens);
    b.forget();
  }
}

void bench_sampling(OpBench& b, const char* how, const SamplerRow& row) {
  const std::string name = std::string("sample 64 x 163840, ") + how;
  if (!b.wants(name)) return;
  Rng rng(3);
  std::vector<float> values(static_cast<size_t>(64 * kVocab));
  for (float& x : values) x = 8 * rng.next_float();
  const auto logits = b.upload(values, int64_t{64}, kVocab);
  const SyntheticSampler sampler = SyntheticSampler::make(b.backend(), 64, row).value();
  b.time(name, bytes_of(logits), [&](int) { sampler.run(b.backend(), logits); });
  b.forget();
}

}  // namespace

void bench_ops(OpBench& bench) {
  bench_rows(bench);
  bench_products(bench);
  bench_attention_shapes(bench);
  bench_expert_formats(bench);
  bench_sampling(bench, "greedy", {});
  bench_sampling(bench, "temperature 1", {.uniform = 0.5, .temperature = 1});
  bench_sampling(bench, "top-p 0.95", {.uniform = 0.5, .temperature = 1, .top_p = 0.95F});
}

}  // namespace quire
