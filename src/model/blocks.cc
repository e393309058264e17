#include "model/blocks.h"

#include "ops/elementwise.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace quire {

namespace {

// The same memory as [n_tokens, n_heads * dim] and as [n_tokens, n_heads, dim].
View<Bf16, 2> flat(const View<Bf16, 3>& heads) {
  return view_of(heads.data, heads[0], heads[1] * heads[2]);
}

// Rotated rows of one head that all heads share.
View<Bf16, 3> as_one_head(const View<Bf16, 2>& x) {
  return {.data = x.data, .shape = {x[0], 1, x[1]}, .stride = {x.stride[0], x[1], 1}};
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

// What `args` describes, over latents, for the first tokens of the step.
void attend_absorbed(Backend& be, const ops::MlaPrefillAttention& args, const TokenRows& tokens,
                     const StepBuffers& s) {
  const int64_t n = tokens.row[0];
  const View<Bf16, 3> q_latent = s.q_latent.rows(0, n);
  const View<Bf16, 3> attn_latent = s.attn_latent.rows(0, n);
  ops::absorb_query(be, {.out = q_latent, .q_nope = args.q_nope.rows(0, n), .w_uk = args.w_uk});
  ops::mla_attention(be, {.out = attn_latent,
                          .q_latent = q_latent,
                          .q_rope = args.q_rope.rows(0, n),
                          .kv = args.kv,
                          .tokens = tokens,
                          .layer = args.layer,
                          .scale = args.scale});
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
  const View<Bf16, 2> k_latent = s.kv_a.columns(0, shape.kv_lora_rank);
  const View<Bf16, 2> k_rope = s.kv_a.columns(shape.kv_lora_rank, shape.rope_dim);

  if (shape.q_lora_rank > 0) {
    project(context, s.q_a, s.normed, w.q_a);
    ops::rms_norm(be, {.out = s.q_a, .x = s.q_a, .weight = w.q_a_norm, .eps = eps});
    project(context, flat(s.q), s.q_a, w.q_b);
  } else {
    project(context, flat(s.q), s.normed, w.q_b);
  }
  project(context, s.kv_a, s.normed, w.kv_a);
  ops::rms_norm(be, {.out = s.latent, .x = k_latent, .weight = w.kv_a_norm, .eps = eps});
  ops::rope(be, {.x = q_rope,
                 .positions = batch.tokens.position,
                 .cos = context.rope.cos(),
                 .sin = context.rope.sin()});
  ops::rope(be, {.x = as_one_head(k_rope),
                 .positions = batch.tokens.position,
                 .cos = context.rope.cos(),
                 .sin = context.rope.sin()});
  ops::kv_append(be, {.kv = batch.kv,
                      .tokens = batch.tokens,
                      .layer = layer,
                      .latent = s.latent,
                      .rope = k_rope,
                      .fp8_bits_dropped = context.options.fp8_bits_dropped});
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
    ops::mla_prefill_attention(be, by_head);
    attend_absorbed(be, by_head, batch.tokens.lone(), s);
  } else {
    attend_absorbed(be, by_head, batch.tokens, s);
  }
  project(context, s.block_out, flat(s.attn), w.o);
}

void dense_mlp(const BlockContext& context, const LayerWeights& w, StepBuffers& s) {
  project(context, s.dense_gate, s.normed, w.dense.gate);
  project(context, s.dense_up, s.normed, w.dense.up);
  ops::silu_mul(context.backend, {.out = s.dense_gate, .gate = s.dense_gate, .up = s.dense_up});
  project(context, s.block_out, s.dense_gate, w.dense.down);
}

void mixture_of_experts(const BlockContext& context, const LayerWeights& w, StepBuffers& s) {
  Backend& be = context.backend;
  const ModelConfig& config = context.config;
  ops::linear(be, {.out_f32 = s.router_scores, .x = s.normed, .weight = w.router});
  ops::moe_route(be, {.experts = s.experts,
                      .weights = s.expert_weights,
                      .scores = s.router_scores,
                      .bias = w.router_bias,
                      .scaling = static_cast<float>(config.routed_scaling),
                      .mode = config.normalise_top_k ? ops::RouteWeights::normalised
                                                     : ops::RouteWeights::as_they_are});
  ops::moe_experts(be, {.out = s.block_out,
                        .x = s.normed,
                        .experts = s.experts,
                        .weights = s.expert_weights,
                        .bank = w.experts.get(),
                        .activation = context.options.activation});
}

}  // namespace quire
