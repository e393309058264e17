#include "tools/timed_backend.h"

#include <utility>

#include "base/text.h"
#include "ops/append_latent.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/gather_rows.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/place_tokens.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sample.h"
#include "tools/op_bytes.h"

namespace quire {

namespace {

std::string shape_of(const WeightMatrix& weight) {
  return format("%lld x %lld %s", static_cast<long long>(weight.n_out),
                static_cast<long long>(weight.n_in), weight_name(weight));
}

}  // namespace

TimedBackend::TimedBackend(Backend& inner, int32_t ops_max)
    : ForwardingBackend(inner), ops_max_(ops_max), stopwatch_(inner.make_stopwatch(ops_max + 1)) {}

void TimedBackend::begin_pass(Noting noting) {
  notes_.clear();
  moe_call_ = 0;
  state_ = noting == Noting::ops ? State::noting : State::timing;
  if (state_ == State::timing) stopwatch_->mark(0);
}

std::vector<OpNote> TimedBackend::end_pass() {
  if (state_ == State::timing) n_timed_ = notes_.size();
  state_ = State::idle;
  return std::move(notes_);
}

std::vector<double> TimedBackend::read_times() {
  std::vector<double> out;
  for (int32_t op = 0; op < static_cast<int32_t>(n_timed_); ++op) {
    out.push_back(stopwatch_->us_between(op, op + 1));
  }
  return out;
}

void TimedBackend::note(std::string name, double bytes) {
  if (state_ == State::idle) return;
  CHECK(notes_.size() < static_cast<size_t>(ops_max_));
  notes_.push_back({std::move(name), bytes});
  if (state_ == State::timing) stopwatch_->mark(static_cast<int32_t>(notes_.size()));
}

void TimedBackend::place_tokens(const ops::PlaceTokens& args) {
  inner().place_tokens(args);
  note("place_tokens", bytes_of(args.out));
}

void TimedBackend::embed(const ops::Embed& args) {
  inner().embed(args);
  note("embed", 2 * bytes_of(args.out));
}

void TimedBackend::rms_norm(const ops::RmsNorm& args) {
  inner().rms_norm(args);
  note(format("rms_norm %lld", static_cast<long long>(args.x[1])),
       bytes_of(args.out) + bytes_of(args.x));
}

void TimedBackend::add_rms_norm(const ops::AddRmsNorm& args) {
  inner().add_rms_norm(args);
  note("add_rms_norm", 2 * bytes_of(args.h) + bytes_of(args.delta) + bytes_of(args.out));
}

void TimedBackend::linear(const ops::Linear& args) {
  inner().linear(args);
  note("linear " + shape_of(args.weight),
       bytes_of(args.weight) + bytes_of(args.x) + bytes_of(args.out) + bytes_of(args.out_f32));
}

void TimedBackend::linear_pair(const ops::LinearPair& args) {
  inner().linear_pair(args);
  note("linear_pair " + shape_of(args.first.weight) + ", " +
           std::to_string(args.second.weight.n_out),
       bytes_of(args.first.weight) + bytes_of(args.second.weight) + bytes_of(args.x) +
           bytes_of(args.first.out) + bytes_of(args.second.out));
}

void TimedBackend::add(const ops::Add& args) {
  inner().add(args);
  note("add", 3 * bytes_of(args.out));
}

void TimedBackend::silu_mul(const ops::SiluMul& args) {
  inner().silu_mul(args);
  note("silu_mul", 3 * bytes_of(args.out));
}

void TimedBackend::rope(const ops::Rope& args) {
  inner().rope(args);
  note("rope", 2 * bytes_of(args.x));
}

void TimedBackend::kv_append(const ops::KvAppend& args) {
  inner().kv_append(args);
  note("kv_append", 2 * (bytes_of(args.latent) + bytes_of(args.rope)));
}

void TimedBackend::append_latent(const ops::AppendLatent& args) {
  inner().append_latent(args);
  note("append_latent", 2 * bytes_of(args.kv_a) + 2 * bytes_of(args.q_a));
}

void TimedBackend::absorb_query(const ops::AbsorbQuery& args) {
  inner().absorb_query(args);
  note("absorb_query", bytes_of(args.w_uk) + bytes_of(args.q_nope) + bytes_of(args.out));
}

void TimedBackend::expand_value(const ops::ExpandValue& args) {
  inner().expand_value(args);
  note("expand_value", bytes_of(args.w_uv) + bytes_of(args.x) + bytes_of(args.out));
}

// What attention reads of a step's cached rows, in bytes.
double TimedBackend::cached_bytes(const KvPageLayout& layout) const {
  return static_cast<double>(layout.blocks.front().bytes) / layout.page_tokens *
         static_cast<double>(facts_.kv_tokens);
}

void TimedBackend::mla_attention(const ops::MlaAttention& args) {
  inner().mla_attention(args);
  const KvPageLayout& layout = *args.kv.layout;
  note(format("mla_attention %s", std::string(quire::name(layout.format)).c_str()),
       cached_bytes(layout) + bytes_of(args.q_latent) + bytes_of(args.q_rope) + bytes_of(args.out));
}

void TimedBackend::mla_prefill_attention(const ops::MlaPrefillAttention& args) {
  inner().mla_prefill_attention(args);
  const KvPageLayout& layout = *args.kv.layout;
  note(format("mla_prefill_attention %s", std::string(quire::name(layout.format)).c_str()),
       cached_bytes(layout) + bytes_of(args.out) + bytes_of(args.q_nope) + bytes_of(args.q_rope) +
           bytes_of(args.w_uk) + bytes_of(args.w_uv));
}

void TimedBackend::moe_experts(const ops::MoeExperts& args) {
  inner().moe_experts(args);
  const size_t call = moe_call_++;
  const double n_experts = call < facts_.chosen.size() ? facts_.chosen[call] : 0;
  note("moe_experts", n_experts * routed_bytes(args.bank->shape()) +
                          shared_bytes(args.bank->shape()) + bytes_of(args.x) + bytes_of(args.out) +
                          bytes_of(args.scores) + bytes_of(args.experts) + bytes_of(args.weights));
}

void TimedBackend::gather_rows(const ops::GatherRows& args) {
  inner().gather_rows(args);
  note("gather_rows", 2 * bytes_of(args.out));
}

void TimedBackend::sample(const ops::Sample& args) {
  inner().sample(args);
  note("sample", bytes_of(args.logits));
}

}  // namespace quire
