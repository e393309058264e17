// A backend of ordinary memory that computes nothing, for tests of loading. Test code.
#pragma once

#include <cstring>
#include <new>
#include <vector>

#include "ops/backend.h"
#include "ops/expert_bank.h"
#include "ops/random_fill.h"
#include "weights/model_weights.h"

namespace quire {

// Remembers what it was made from.
class RawBank final : public ops::ExpertBank {
 public:
  explicit RawBank(const ops::ExpertTable& table)
      : ExpertBank(ops::shape_of(table)),
        routed(table.routed.begin(), table.routed.end()),
        shared(table.shared.value_or(ops::ExpertWeights{})) {}
  int64_t bytes() const override { return 0; }
  std::vector<ops::ExpertWeights> routed;
  ops::ExpertWeights shared;
};

inline const RawBank& bank_of(const LayerWeights& layer) {
  return dynamic_cast<const RawBank&>(*layer.experts);
}

// Ordinary memory, and no arithmetic: loading never computes.
class MemoryBackend final : public Backend, private Memory {
 public:
  enum class Reads { host_memory, own_memory };
  explicit MemoryBackend(Reads reads) : reads_(reads) {}
  std::string_view name() const override { return "memory"; }
  Memory& memory() override { return *this; }
  MemoryInfo memory_info() override { return {}; }
  bool reads_host_memory() const override { return reads_ == Reads::host_memory; }
  void copy_in(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void copy_out(std::span<std::byte> to, const std::byte* from) override {
    if (!to.empty()) std::memcpy(to.data(), from, to.size());
  }
  void fill(std::byte* to, int64_t bytes, std::byte value) override {
    std::memset(to, static_cast<int>(value), static_cast<size_t>(bytes));
  }
  void random_fill(const ops::RandomFill& args) override {
    for (int64_t row = 0; row < args.values.n_rows; ++row) {
      random_row(args.values, row, args.out + row * args.values.row_bytes());
    }
  }
  bool keeps_raw_experts() const override { return reads_host_memory(); }
  Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable& table) override {
    const View<const uint8_t, 2>& up = table.routed[0].up.int4;
    packed_up.assign(up.data, up.data + up.size());
    return std::unique_ptr<ops::ExpertBank>(std::make_unique<RawBank>(table));
  }
  void embed(const ops::Embed&) override { CHECK(false); }
  void rms_norm(const ops::RmsNorm&) override { CHECK(false); }
  void add_rms_norm(const ops::AddRmsNorm&) override { CHECK(false); }
  void linear(const ops::Linear&) override { CHECK(false); }
  void linear_pair(const ops::LinearPair&) override { CHECK(false); }
  void add(const ops::Add&) override { CHECK(false); }
  void silu_mul(const ops::SiluMul&) override { CHECK(false); }
  void rope(const ops::Rope&) override { CHECK(false); }
  void kv_append(const ops::KvAppend&) override { CHECK(false); }
  void append_latent(const ops::AppendLatent&) override { CHECK(false); }
  void absorb_query(const ops::AbsorbQuery&) override { CHECK(false); }
  void expand_value(const ops::ExpandValue&) override { CHECK(false); }
  void mla_attention(const ops::MlaAttention&) override { CHECK(false); }
  void mla_prefill_attention(const ops::MlaPrefillAttention&) override { CHECK(false); }
  void moe_experts(const ops::MoeExperts&) override { CHECK(false); }
  void gather_rows(const ops::GatherRows&) override { CHECK(false); }
  void open_step(const ops::OpenStep&) override { CHECK(false); }
  void check_pages(const ops::CheckPages&) override { CHECK(false); }
  void place_tokens(const ops::PlaceTokens&) override { CHECK(false); }
  void sample(const ops::Sample&) override { CHECK(false); }

  std::vector<uint8_t> packed_up;  // of expert 0 in INT4, as it was when the last layer was packed

 private:
  std::byte* allocate(int64_t bytes) override {
    return static_cast<std::byte*>(
        ::operator new (static_cast<size_t>(bytes), std::align_val_t{kBufferAlignment}));
  }
  void release(std::byte* data, int64_t) override {
    ::operator delete (data, std::align_val_t{kBufferAlignment});
  }

  Reads reads_;
};

}  // namespace quire
