// The ops of the CUDA backend, as functions that launch: one file a family. Arguments were checked
// by ops/. Each returns before the work is done.
//
// docs/kernels/ says how each family works, what it costs, and what was tried.
#pragma once

#include "cuda/common/context.h"
#include "ops/append_latent.h"
#include "ops/check_pages.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/gather_rows.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/open_step.h"
#include "ops/place_tokens.h"
#include "ops/random_fill.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sample.h"

namespace quire::cuda {

// pointwise/
void embed(const Context& context, const ops::Embed& args);
void gather_rows(const Context& context, const ops::GatherRows& args);
void rms_norm(const Context& context, const ops::RmsNorm& args);
void add_rms_norm(const Context& context, const ops::AddRmsNorm& args);
void add(const Context& context, const ops::Add& args);
void silu_mul(const Context& context, const ops::SiluMul& args);
void rope(const Context& context, const ops::Rope& args);

// fill/
void random_fill(const Context& context, const ops::RandomFill& args);

// kv/
void kv_append(const Context& context, const ops::KvAppend& args);
void append_latent(const Context& context, const ops::AppendLatent& args);

// gemm/
void linear(const Context& context, const ops::Linear& args);
void linear_pair(const Context& context, const ops::LinearPair& args);
void absorb_query(const Context& context, const ops::AbsorbQuery& args);
void expand_value(const Context& context, const ops::ExpandValue& args);

// attention/
void mla_attention(const Context& context, const ops::MlaAttention& args);

// mla_prefill/
void mla_prefill_attention(const Context& context, const ops::MlaPrefillAttention& args);
bool attends_by_head(const Context& context, const ops::MlaPrefillAttention& args);

// moe/
// Owns the packed weights; the table's matrices are read in stream order.
Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const Context& context, DeviceMemory* memory,
                                                      const ops::ExpertTable& table);
void moe_experts(const Context& context, const ops::MoeExperts& args);

// step/
void open_step(const Context& context, const ops::OpenStep& args);
void place_tokens(const Context& context, const ops::PlaceTokens& args);

// integrity/
void check_pages(const Context& context, const ops::CheckPages& args);

// sample/
void sample(const Context& context, const ops::Sample& args);

}  // namespace quire::cuda
