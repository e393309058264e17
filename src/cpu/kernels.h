// The ops of the CPU backend, as functions. One file a family; arguments were checked by ops/.
#pragma once

#include "cpu/workers.h"
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

namespace quire::cpu {

// pointwise.cc
void embed(Workers& workers, const ops::Embed& args);
void gather_rows(Workers& workers, const ops::GatherRows& args);
void rms_norm(Workers& workers, const ops::RmsNorm& args);
void add_rms_norm(Workers& workers, const ops::AddRmsNorm& args);
void add(Workers& workers, const ops::Add& args);
void silu_mul(Workers& workers, const ops::SiluMul& args);
void rope(Workers& workers, const ops::Rope& args);

void random_fill(Workers& workers, const ops::RandomFill& args);

// kv_append.cc
void kv_append(Workers& workers, const ops::KvAppend& args);
void append_latent(Workers& workers, const ops::AppendLatent& args);

void linear(Workers& workers, const ops::Linear& args);
void linear_pair(Workers& workers, const ops::LinearPair& args);

// absorbed.cc
void absorb_query(Workers& workers, const ops::AbsorbQuery& args);
void expand_value(Workers& workers, const ops::ExpandValue& args);

void mla_attention(Workers& workers, const ops::MlaAttention& args);
void mla_prefill_attention(Workers& workers, const ops::MlaPrefillAttention& args);

// moe.cc
std::unique_ptr<ops::ExpertBank> keep_experts(const ops::ExpertTable& table);
void moe_experts(Workers& workers, const ops::MoeExperts& args);

void open_step(const ops::OpenStep& args);
void check_pages(const ops::CheckPages& args);
void place_tokens(const ops::PlaceTokens& args);
void sample(Workers& workers, const ops::Sample& args);

}  // namespace quire::cpu
