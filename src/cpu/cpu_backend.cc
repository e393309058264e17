#include "cpu/cpu_backend.h"

#include <cstring>
#include <vector>

#include "cpu/host_memory.h"
#include "cpu/kernels.h"
#include "cpu/workers.h"

namespace quire {

namespace {

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(int n_threads) : workers_(n_threads, &memory_) {}

  std::string_view name() const override { return "cpu"; }
  Memory& memory() override { return memory_; }
  MemoryInfo memory_info() override { return cpu::host_memory_info(); }
  bool reads_host_memory() const override { return true; }

  void copy_in(std::byte* to, std::span<const std::byte> from_host) override {
    if (!from_host.empty()) std::memcpy(to, from_host.data(), from_host.size());
  }
  void copy_out(std::span<std::byte> to_host, const std::byte* from) override {
    if (!to_host.empty()) std::memcpy(to_host.data(), from, to_host.size());
  }
  void fill(std::byte* to, int64_t bytes, std::byte value) override {
    if (bytes > 0) std::memset(to, static_cast<int>(value), static_cast<size_t>(bytes));
  }

  void random_fill(const ops::RandomFill& args) override { cpu::random_fill(workers_, args); }
  bool keeps_raw_experts() const override { return true; }
  Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable& table) override {
    return cpu::keep_experts(table);
  }

  // There is no launch to save: a recording is the function itself.
  Result<RecordingId> record(const std::function<void()>& calls) override {
    recordings_.push_back(calls);
    return RecordingId{static_cast<int32_t>(recordings_.size()) - 1};
  }
  void replay(RecordingId recording) override {
    CHECK(recording.value >= 0 && static_cast<size_t>(recording.value) < recordings_.size());
    recordings_[static_cast<size_t>(recording.value)]();
  }

  void embed(const ops::Embed& args) override { cpu::embed(workers_, args); }
  void rms_norm(const ops::RmsNorm& args) override { cpu::rms_norm(workers_, args); }
  void add_rms_norm(const ops::AddRmsNorm& args) override { cpu::add_rms_norm(workers_, args); }
  void linear(const ops::Linear& args) override { cpu::linear(workers_, args); }
  void linear_pair(const ops::LinearPair& args) override { cpu::linear_pair(workers_, args); }
  void add(const ops::Add& args) override { cpu::add(workers_, args); }
  void silu_mul(const ops::SiluMul& args) override { cpu::silu_mul(workers_, args); }
  void rope(const ops::Rope& args) override { cpu::rope(workers_, args); }
  void kv_append(const ops::KvAppend& args) override { cpu::kv_append(workers_, args); }
  void append_latent(const ops::AppendLatent& args) override { cpu::append_latent(workers_, args); }
  void absorb_query(const ops::AbsorbQuery& args) override { cpu::absorb_query(workers_, args); }
  void expand_value(const ops::ExpandValue& args) override { cpu::expand_value(workers_, args); }
  void mla_attention(const ops::MlaAttention& args) override { cpu::mla_attention(workers_, args); }
  void mla_prefill_attention(const ops::MlaPrefillAttention& args) override {
    cpu::mla_prefill_attention(workers_, args);
  }
  void moe_experts(const ops::MoeExperts& args) override { cpu::moe_experts(workers_, args); }
  void gather_rows(const ops::GatherRows& args) override { cpu::gather_rows(workers_, args); }
  void open_step(const ops::OpenStep& args) override { cpu::open_step(args); }
  void check_pages(const ops::CheckPages& args) override { cpu::check_pages(args); }
  void place_tokens(const ops::PlaceTokens& args) override { cpu::place_tokens(args); }
  void sample(const ops::Sample& args) override { cpu::sample(workers_, args); }

 private:
  cpu::HostMemory memory_;
  cpu::Workers workers_;
  std::vector<std::function<void()>> recordings_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(int n_threads) {
  return std::make_unique<CpuBackend>(n_threads);
}

}  // namespace quire
