#include "model/blocks.h"

#include "ops/append_latent.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/rope.h"

namespace quire {

namespace {

// The same memory as [n_tokens, n_heads * dim] and as [n_tokens, n_heads, dim].
View<Bf16, 2> flat(const View<Bf16, 3>& heads) {
  return view_of(heads.data, heads[0], heads[1] * heads[2]);
}

// Rounding of inputs to e4m3 is for FP8 weights; what a checkpoint keeps in BF16 stays exact.
Activation activation_for(const BlockContext& context, const WeightMatrix& weight) {
  return weight.format == WeightFormat::fp8_block128 ? context.options.activation
                                                     : Activation::bf16;
}

void project(const BlockContext& context, const View<Bf16, 2>& out, const View<const Bf16, 2>& x,
             const WeightMatrix& weight) {
  ops::linear(
      context.backend,
      {.out = out, .x = x, .weight = weight, .activation = activation_for(context, weight)});
}

// One side of a pair of such products.
ops::LinearPair::Side side(const BlockContext& context, const View<Bf16, 2>& out,
                           const WeightMatrix& weight) {
  return {.out = out, .weight = weight, .activation = activation_for(context, weight)};
}

enum class QueryRope : uint8_t { as_projected, rotated };

// What `args` describes, over latents, for the first tokens of the step.
void attend_absorbed(const BlockContext& context, const ops::MlaPrefillAttention& args,
                     const TokenRows& tokens, QueryRope rope, const StepBuffers& s) {
  Backend& be = context.backend;
  const int64_t n = tokens.row[0];
  const View<Bf16, 3> q_latent = s.q_latent.rows(0, n);
  const View<Bf16, 3> attn_latent = s.attn_latent.rows(0, n);
  const View<Bf16, 3> q_rope =
      s.q.rows(0, n).columns(context.config.shape.nope_dim, context.config.shape.rope_dim);
  ops::absorb_query(be, {.out = q_latent,
                         .q_nope = args.q_nope.rows(0, n),
                         .w_uk = args.w_uk,
                         .q_rope = rope == QueryRope::rotated ? View<Bf16, 3>{} : q_rope,
                         .positions = tokens.position,
                         .cos = context.rope.cos(),
                         .sin = context.rope.sin()});
  ops::mla_attention(
      be,
      {.out = attn_latent,
       .q_latent = q_latent,
       .q_rope = q_rope,
       .kv = args.kv,
       .tokens = tokens,
       .layer = args.layer,
       .scale = args.scale,
       // One token a row: those before it were written when it was not yet known.
       .history = tokens.row_tokens_max == 1 ? ops::History::of_earlier_steps : ops::History::any});
  ops::expand_value(be, {.out = args.out.rows(0, n), .x = attn_latent, .w_uv = args.w_uv});
}

}  // namespace

void attention(const BlockContext& context, int32_t layer, const LayerWeights& w,
               const ModelBatch& batch, StepBuffers& s) {
  Backend& be = context.backend;
  const ModelShape& shape = context.config.shape;
  const auto eps = static_cast<float>(context.config.norm_eps);
  const auto scale = static_cast<float>(context.config.attention_scale());
  const View<Bf16, 3> q_nope = s.q.columns(0, shape.nope_dim);
  const View<Bf16, 3> q_rope = s.q.columns(shape.nope_dim, shape.rope_dim);
  const bool has_q_lora = shape.q_lora_rank > 0;
  const View<Bf16, 2> q_first = has_q_lora ? s.q_a : flat(s.q);

  ops::linear_pair(be, {.first = side(context, q_first, has_q_lora ? w.q_a : w.q_b),
                        .second = side(context, s.kv_a, w.kv_a),
                        .x = s.normed});
  ops::append_latent(be, {.kv = batch.kv,
                          .places = s.places,
                          .positions = batch.tokens.position,
                          .layer = layer,
                          .kv_a = s.kv_a,
                          .kv_a_norm = w.kv_a_norm,
                          .q_a = has_q_lora ? s.q_a : View<Bf16, 2>{},
                          .q_a_norm = w.q_a_norm,
                          .eps = eps,
                          .cos = context.rope.cos(),
                          .sin = context.rope.sin(),
                          .fp8_bits_dropped = context.options.fp8_bits_dropped});
  if (has_q_lora) project(context, flat(s.q), s.q_a, w.q_b);
  const ops::MlaPrefillAttention by_head{.out = s.attn,
                                         .q_nope = q_nope,
                                         .q_rope = q_rope,
                                         .w_uk = w.w_uk,
                                         .w_uv = w.w_uv,
                                         .kv = batch.kv,
                                         .tokens = batch.tokens,
                                         .layer = layer,
                                         .scale = scale};
  if (be.attends_by_head(by_head)) {
    ops::rope(be, {.x = q_rope,
                   .positions = batch.tokens.position,
                   .cos = context.rope.cos(),
                   .sin = context.rope.sin()});
    ops::mla_prefill_attention(be, by_head);
    attend_absorbed(context, by_head, batch.tokens.lone(), QueryRope::rotated, s);
  } else {
    attend_absorbed(context, by_head, batch.tokens, QueryRope::as_projected, s);
  }
  project(context, s.block_out, flat(s.attn), w.o);
}

void dense_mlp(const BlockContext& context, const LayerWeights& w, StepBuffers& s) {
  ops::linear_pair(context.backend, {.first = side(context, s.dense_gate, w.dense.gate),
                                     .second = side(context, s.dense_up, w.dense.up),
                                     .x = s.normed});
  ops::silu_mul(context.backend, {.out = s.dense_gate, .gate = s.dense_gate, .up = s.dense_up});
  project(context, s.block_out, s.dense_gate, w.dense.down);
}

void mixture_of_experts(const BlockContext& context, const LayerWeights& w, StepBuffers& s) {
  Backend& be = context.backend;
  const ModelConfig& config = context.config;
  ops::linear(be, {.out_f32 = s.router_scores, .x = s.normed, .weight = w.router});
  ops::moe_experts(be, {.out = s.block_out,
                        .experts = s.experts,
                        .weights = s.expert_weights,
                        .x = s.normed,
                        .scores = s.router_scores,
                        .bias = w.router_bias,
                        .scaling = static_cast<float>(config.routed_scaling),
                        .mode = config.normalise_top_k ? ops::RouteWeights::normalised
                                                       : ops::RouteWeights::as_they_are,
                        .bank = w.experts.get(),
                        .activation = context.options.activation});
}

}  // namespace quire
