// ForwardingBackend: a Backend that passes every call on to another.
//
// To be derived from by what times, watches or damages single calls. Does nothing of its own.
#pragma once

#include "ops/backend.h"
#include "ops/expert_bank.h"
#include "ops/page_sealer.h"

namespace quire {

class ForwardingBackend : public Backend {
 public:
  // `to` outlives this.
  explicit ForwardingBackend(Backend& to) : to_(to) {}

  std::string_view name() const override { return to_.name(); }
  Memory& memory() override { return to_.memory(); }
  MemoryInfo memory_info() override { return to_.memory_info(); }
  bool reads_host_memory() const override { return to_.reads_host_memory(); }
  void copy_in(std::byte* to, std::span<const std::byte> from_host) override {
    to_.copy_in(to, from_host);
  }
  void copy_out(std::span<std::byte> to_host, const std::byte* from) override {
    to_.copy_out(to_host, from);
  }
  void fill(std::byte* to, int64_t bytes, std::byte value) override { to_.fill(to, bytes, value); }
  std::unique_ptr<Upload> start_upload(int n_threads) override {
    return to_.start_upload(n_threads);
  }
  void random_fill(const ops::RandomFill& args) override { to_.random_fill(args); }
  std::unique_ptr<Stopwatch> make_stopwatch(int32_t n_marks) override {
    return to_.make_stopwatch(n_marks);
  }
  bool keeps_raw_experts() const override { return to_.keeps_raw_experts(); }
  Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable& table) override {
    return to_.pack_experts(table);
  }
  bool is_asynchronous() const override { return to_.is_asynchronous(); }
  Memory& host_memory() override { return to_.host_memory(); }
  void send(std::byte* to, std::span<const std::byte> from_host) override {
    to_.send(to, from_host);
  }
  void fetch(std::span<std::byte> to_host, const std::byte* from) override {
    to_.fetch(to_host, from);
  }
  void copy_out_settled(std::span<std::byte> to_host, const std::byte* from) override {
    to_.copy_out_settled(to_host, from);
  }
  std::unique_ptr<Fence> make_fence() override { return to_.make_fence(); }
  Result<std::unique_ptr<PageSealer>> make_page_sealer(const PoolPages& pool) override {
    return to_.make_page_sealer(pool);
  }
  Result<RecordingId> record(const std::function<void()>& calls) override {
    return to_.record(calls);
  }
  void replay(RecordingId recording) override { to_.replay(recording); }
  int64_t recorded_nodes(RecordingId recording) const override {
    return to_.recorded_nodes(recording);
  }

  void embed(const ops::Embed& args) override { to_.embed(args); }
  void rms_norm(const ops::RmsNorm& args) override { to_.rms_norm(args); }
  void add_rms_norm(const ops::AddRmsNorm& args) override { to_.add_rms_norm(args); }
  void linear(const ops::Linear& args) override { to_.linear(args); }
  void linear_pair(const ops::LinearPair& args) override { to_.linear_pair(args); }
  void add(const ops::Add& args) override { to_.add(args); }
  void silu_mul(const ops::SiluMul& args) override { to_.silu_mul(args); }
  void rope(const ops::Rope& args) override { to_.rope(args); }
  void kv_append(const ops::KvAppend& args) override { to_.kv_append(args); }
  void append_latent(const ops::AppendLatent& args) override { to_.append_latent(args); }
  void absorb_query(const ops::AbsorbQuery& args) override { to_.absorb_query(args); }
  void expand_value(const ops::ExpandValue& args) override { to_.expand_value(args); }
  void mla_attention(const ops::MlaAttention& args) override { to_.mla_attention(args); }
  void mla_prefill_attention(const ops::MlaPrefillAttention& args) override {
    to_.mla_prefill_attention(args);
  }
  bool attends_by_head(const ops::MlaPrefillAttention& args) const override {
    return to_.attends_by_head(args);
  }
  void moe_experts(const ops::MoeExperts& args) override { to_.moe_experts(args); }
  void gather_rows(const ops::GatherRows& args) override { to_.gather_rows(args); }
  void open_step(const ops::OpenStep& args) override { to_.open_step(args); }
  void check_pages(const ops::CheckPages& args) override { to_.check_pages(args); }
  void place_tokens(const ops::PlaceTokens& args) override { to_.place_tokens(args); }
  void sample(const ops::Sample& args) override { to_.sample(args); }

 protected:
  Backend& inner() { return to_; }

 private:
  Backend& to_;
};

}  // namespace quire
