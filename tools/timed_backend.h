// TimedBackend: passes every call on to another backend, and can note what each op takes.
//
// For benches. What it notes is one pass: the ops between begin_pass and end_pass, each with the
// bytes that it has to move by its arguments. Marks go into recordings too: a pass that was
// recorded can be replayed and read again. Knows nothing of models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/kv_page.h"
#include "ops/backend.h"
#include "ops/expert_bank.h"

namespace quire {

struct OpNote {
  std::string name;  // the op and its shape
  double bytes = 0;  // weights, inputs and outputs, each counted once
};

// What the arguments of a step's ops do not tell.
struct StepFacts {
  int64_t kv_tokens = 0;        // cached tokens that attention reads, over all rows
  std::vector<int32_t> chosen;  // distinct experts of each call of moe_experts, in order
};

class TimedBackend final : public Backend {
 public:
  // A pass has at most `ops_max` ops. `inner` outlives this.
  TimedBackend(Backend& inner, int32_t ops_max);

  // From here on, ops are noted; with time, each is followed by a mark of the stopwatch.
  enum class Noting : uint8_t { ops, ops_and_time };
  void begin_pass(Noting noting);
  std::vector<OpNote> end_pass();
  // Microseconds of each op of the latest timed pass, or of the latest replay of it. Waits.
  std::vector<double> read_times();

  void set_facts(StepFacts facts) { facts_ = std::move(facts); }

  std::string_view name() const override { return inner_.name(); }
  Memory& memory() override { return inner_.memory(); }
  MemoryInfo memory_info() override { return inner_.memory_info(); }
  bool reads_host_memory() const override { return inner_.reads_host_memory(); }
  void copy_in(std::byte* to, std::span<const std::byte> from_host) override {
    inner_.copy_in(to, from_host);
  }
  void copy_out(std::span<std::byte> to_host, const std::byte* from) override {
    inner_.copy_out(to_host, from);
  }
  void fill(std::byte* to, int64_t bytes, std::byte value) override {
    inner_.fill(to, bytes, value);
  }
  std::unique_ptr<Upload> start_upload(int n_threads) override {
    return inner_.start_upload(n_threads);
  }
  void random_fill(const ops::RandomFill& args) override { inner_.random_fill(args); }
  bool keeps_raw_experts() const override { return inner_.keeps_raw_experts(); }
  Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable& table) override {
    return inner_.pack_experts(table);
  }
  bool is_asynchronous() const override { return inner_.is_asynchronous(); }
  Memory& host_memory() override { return inner_.host_memory(); }
  void send(std::byte* to, std::span<const std::byte> from_host) override {
    inner_.send(to, from_host);
  }
  void fetch(std::span<std::byte> to_host, const std::byte* from) override {
    inner_.fetch(to_host, from);
  }
  void copy_out_settled(std::span<std::byte> to_host, const std::byte* from) override {
    inner_.copy_out_settled(to_host, from);
  }
  std::unique_ptr<Fence> make_fence() override { return inner_.make_fence(); }
  std::unique_ptr<Stopwatch> make_stopwatch(int32_t n_marks) override {
    return inner_.make_stopwatch(n_marks);
  }
  Result<RecordingId> record(const std::function<void()>& calls) override {
    return inner_.record(calls);
  }
  void replay(RecordingId recording) override { inner_.replay(recording); }

  void embed(const ops::Embed& args) override;
  void rms_norm(const ops::RmsNorm& args) override;
  void add_rms_norm(const ops::AddRmsNorm& args) override;
  void linear(const ops::Linear& args) override;
  void linear_pair(const ops::LinearPair& args) override;
  void add(const ops::Add& args) override;
  void silu_mul(const ops::SiluMul& args) override;
  void rope(const ops::Rope& args) override;
  void kv_append(const ops::KvAppend& args) override;
  void append_latent(const ops::AppendLatent& args) override;
  void absorb_query(const ops::AbsorbQuery& args) override;
  void expand_value(const ops::ExpandValue& args) override;
  void mla_attention(const ops::MlaAttention& args) override;
  void mla_prefill_attention(const ops::MlaPrefillAttention& args) override;
  bool attends_by_head(const ops::MlaPrefillAttention& args) const override {
    return inner_.attends_by_head(args);
  }
  void moe_route(const ops::MoeRoute& args) override;
  void moe_experts(const ops::MoeExperts& args) override;
  void gather_rows(const ops::GatherRows& args) override;
  void open_step(const ops::OpenStep& args) override { inner_.open_step(args); }
  void sample(const ops::Sample& args) override;

 private:
  enum class State : uint8_t { idle, noting, timing };
  void note(std::string name, double bytes);
  double cached_bytes(const KvPageLayout& layout) const;

  Backend& inner_;
  const int32_t ops_max_;
  std::unique_ptr<Stopwatch> stopwatch_;
  State state_ = State::idle;
  std::vector<OpNote> notes_;
  size_t n_timed_ = 0;   // ops of the latest timed pass
  size_t moe_call_ = 0;  // of the pass
  StepFacts facts_;
};

}  // namespace quire
