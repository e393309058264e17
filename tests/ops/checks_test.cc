// What ops/*.cc do before a backend is asked: refuse shapes that cannot agree, and return when
// there is nothing to do.
#include <gtest/gtest.h>

#include <cmath>

#include "arrays.h"
#include "cpu/host_memory.h"
#include "ops/elementwise.h"
#include "ops/embed.h"
#include "ops/gather_rows.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/random_fill.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/sample.h"

namespace quire::ops_test {

namespace {

// Computes nothing and counts how often it was asked to.
class CountingBackend final : public Backend {
 public:
  std::string_view name() const override { return "counting"; }
  Memory& memory() override { return memory_; }
  MemoryInfo memory_info() override { return cpu::host_memory_info(); }
  void copy_in(std::byte*, std::span<const std::byte>) override {}
  void copy_out(std::span<std::byte>, const std::byte*) override {}
  void fill(std::byte*, int64_t, std::byte) override {}
  void random_fill(const ops::RandomFill&) override { ++calls; }
  Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable&) override {
    ++calls;
    return unsupported("no arithmetic");
  }
  void embed(const ops::Embed&) override { ++calls; }
  void rms_norm(const ops::RmsNorm&) override { ++calls; }
  void add_rms_norm(const ops::AddRmsNorm&) override { ++calls; }
  void linear(const ops::Linear&) override { ++calls; }
  void linear_pair(const ops::LinearPair&) override { ++calls; }
  void add(const ops::Add&) override { ++calls; }
  void silu_mul(const ops::SiluMul&) override { ++calls; }
  void rope(const ops::Rope&) override { ++calls; }
  void kv_append(const ops::KvAppend&) override { ++calls; }
  void append_latent(const ops::AppendLatent&) override { ++calls; }
  void absorb_query(const ops::AbsorbQuery&) override { ++calls; }
  void expand_value(const ops::ExpandValue&) override { ++calls; }
  void mla_attention(const ops::MlaAttention&) override { ++calls; }
  void mla_prefill_attention(const ops::MlaPrefillAttention&) override { ++calls; }
  void moe_experts(const ops::MoeExperts&) override { ++calls; }
  void gather_rows(const ops::GatherRows&) override { ++calls; }
  void open_step(const ops::OpenStep&) override { ++calls; }
  void check_pages(const ops::CheckPages&) override { ++calls; }
  void place_tokens(const ops::PlaceTokens&) override { ++calls; }
  void sample(const ops::Sample&) override { ++calls; }

  int calls = 0;

 private:
  cpu::HostMemory memory_;
};

class ChecksDeathTest : public testing::Test {
 protected:
  // A contiguous view of nothing in particular: shapes are all that counts here.
  template <class T, class... Size>
  View<T, int{sizeof...(Size)}> shaped(Size... size) {
    return view_of(reinterpret_cast<T*>(storage_), int64_t{size}...);
  }
  WeightMatrix bf16_weight(int64_t n_out, int64_t n_in) {
    WeightMatrix out;
    out.n_out = n_out;
    out.n_in = n_in;
    out.bf16 = shaped<const Bf16>(n_out, n_in);
    return out;
  }

  CountingBackend backend_;

 private:
  alignas(64) std::byte storage_[64] = {};
};

TEST_F(ChecksDeathTest, NothingToDoDoesNotReachTheBackend) {
  ops::add(backend_, {shaped<Bf16>(0, 8), shaped<const Bf16>(0, 8), shaped<const Bf16>(0, 8)});
  ops::embed(backend_, {shaped<Bf16>(0, 8), shaped<const int32_t>(0), shaped<const Bf16>(10, 8)});
  ops::rms_norm(backend_,
                {shaped<Bf16>(0, 8), shaped<const Bf16>(0, 8), shaped<const Bf16>(8), 1e-6F});
  ops::linear(backend_, {.out = shaped<Bf16>(0, 4),
                         .out_f32 = {},
                         .x = shaped<const Bf16>(0, 8),
                         .weight = bf16_weight(4, 8)});
  ops::sample(backend_, {.out = shaped<ops::SampledRow>(0),
                         .logits = shaped<float>(0, 9),
                         .rows = shaped<const SamplerRow>(0),
                         .words = shaped<const int32_t>(0),
                         .recent = shaped<int32_t>(1, 1),
                         .step = shaped<const uint64_t>(1)});
  EXPECT_EQ(backend_.calls, 0);
  ops::add(backend_, {shaped<Bf16>(1, 8), shaped<const Bf16>(1, 8), shaped<const Bf16>(1, 8)});
  EXPECT_EQ(backend_.calls, 1);
}

TEST_F(ChecksDeathTest, ShapesMustAgree) {
  EXPECT_DEATH(
      ops::add(backend_, {shaped<Bf16>(2, 8), shaped<const Bf16>(2, 8), shaped<const Bf16>(1, 8)}),
      "CHECK failed");
  EXPECT_DEATH(ops::rms_norm(backend_, {shaped<Bf16>(2, 8), shaped<const Bf16>(2, 8),
                                        shaped<const Bf16>(9), 1e-6F}),
               "CHECK failed");
  EXPECT_DEATH(ops::rope(backend_, {shaped<Bf16>(2, 3, 7), shaped<const int32_t>(2),
                                    shaped<const float>(9, 3), shaped<const float>(9, 3)}),
               "CHECK failed");
  EXPECT_DEATH(ops::gather_rows(backend_, {shaped<Bf16>(2, 8), shaped<const Bf16>(5, 9),
                                           shaped<const int32_t>(2)}),
               "CHECK failed");
  EXPECT_DEATH(ops::absorb_query(backend_, {shaped<Bf16>(2, 3, 16), shaped<const Bf16>(2, 3, 8),
                                            shaped<const Bf16>(3, 9, 16)}),
               "CHECK failed");
}

TEST_F(ChecksDeathTest, LinearWantsOneOutputAndAWholeWeight) {
  const auto x = shaped<const Bf16>(2, 8);
  const auto run = [&](View<Bf16, 2> out, View<float, 2> out_f32, const WeightMatrix& weight,
                       Activation activation = Activation::bf16) {
    ops::linear(backend_, {out, out_f32, x, weight, activation});
  };
  EXPECT_DEATH(run({}, {}, bf16_weight(4, 8)), "CHECK failed");
  EXPECT_DEATH(run(shaped<Bf16>(2, 4), shaped<float>(2, 4), bf16_weight(4, 8)), "CHECK failed");
  EXPECT_DEATH(run(shaped<Bf16>(2, 5), {}, bf16_weight(4, 8)), "CHECK failed");
  EXPECT_DEATH(run(shaped<Bf16>(2, 4), {}, bf16_weight(4, 8), Activation::fp8_group128),
               "CHECK failed");
  WeightMatrix int4 = bf16_weight(4, 8);
  int4.format = WeightFormat::int4_group;  // and none of its views
  EXPECT_DEATH(run(shaped<Bf16>(2, 4), {}, int4), "CHECK failed");
}

TEST_F(ChecksDeathTest, AttentionWantsPagesOf64TokensAndAPositiveScale) {
  const KvPageLayout small = make_mla_layout(KvFormat::bf16, 1, 16, 8, 32);
  const KvPageLayout layout = make_mla_layout(KvFormat::bf16, 1, 16, 8);
  std::byte pool[64];
  const auto run = [&](const KvPageLayout& pages, int32_t layer, float scale) {
    ops::mla_attention(
        backend_,
        {.out = shaped<Bf16>(1, 2, 16),
         .q_latent = shaped<const Bf16>(1, 2, 16),
         .q_rope = shaped<const Bf16>(1, 2, 8),
         .kv = {.pool = pool, .n_pages = 1, .layout = &pages, .table = shaped<const int32_t>(1, 1)},
         .tokens = {.row = shaped<const int32_t>(1), .position = shaped<const int32_t>(1)},
         .layer = layer,
         .scale = scale});
  };
  run(layout, 0, 0.5F);
  EXPECT_EQ(backend_.calls, 1);
  EXPECT_DEATH(run(small, 0, 0.5F), "CHECK failed");
  EXPECT_DEATH(run(layout, 1, 0.5F), "CHECK failed");
  EXPECT_DEATH(run(layout, 0, NAN), "CHECK failed");
}

TEST_F(ChecksDeathTest, ExpertsAreAllOfOneShape) {
  const std::vector<ops::ExpertWeights> table = {
      {bf16_weight(4, 8), bf16_weight(4, 8), bf16_weight(8, 4)},
      {bf16_weight(6, 8), bf16_weight(6, 8), bf16_weight(8, 6)}};
  const auto pack = [&](size_t n, std::optional<ops::ExpertWeights> shared) {
    return ops::pack_experts(backend_,
                             {.routed = std::span(table).first(n), .shared = std::move(shared)});
  };
  EXPECT_DEATH(static_cast<void>(pack(2, {})), "CHECK failed");
  EXPECT_DEATH(static_cast<void>(pack(0, {})), "CHECK failed");
  EXPECT_DEATH(static_cast<void>(pack(
                   1, ops::ExpertWeights{bf16_weight(6, 9), bf16_weight(6, 9), bf16_weight(9, 6)})),
               "CHECK failed");
  EXPECT_FALSE(pack(1, table[1]).ok());
  EXPECT_EQ(backend_.calls, 1);
}

}  // namespace

}  // namespace quire::ops_test
