// The promise of cpu/lanes-inl.h: AVX2 and AVX-512 give the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/rng.h"
#include "cpu/products.h"
#include "cpu/rows.h"
#include "tensor/targets.h"

// After tensor/targets.h, which it must agree with.
#include <hwy/targets.h>

namespace quire::cpu {

namespace {

// Everything that kernels compute from one seed, as bytes.
class Outputs {
 public:
  explicit Outputs(uint64_t seed) : rng_(seed) {}

  std::string run() {
    for (const int64_t n : {1, 5, 16, 31, 64, 250}) {
      rows(n);
      for (const int64_t m : {1, 3, 4, 9}) products(m, n);
    }
    for (const int64_t n : {1, 17, 64}) softmax(n);
    return bytes_;
  }

 private:
  template <class T>
  void keep(const std::vector<T>& values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void keep(float value) { keep(std::vector<float>{value}); }

  std::vector<float> floats(int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (float& x : out) x = (rng_.next_float() - 0.5F) * 20;
    return out;
  }
  std::vector<Bf16> bf16s(int64_t n) {
    std::vector<Bf16> out;
    for (const float x : floats(n)) out.push_back(to_bf16(x));
    return out;
  }

  void rows(int64_t n) {
    const auto size = static_cast<size_t>(n);
    const std::vector<float> x = floats(n);
    const std::vector<float> y = floats(n);
    const std::vector<Bf16> a = bf16s(n);
    const std::vector<Bf16> b = bf16s(n);
    std::vector<float> out(size);
    std::vector<Bf16> narrow(size);
    keep(static_cast<float>(exp_row(x.data(), n, 3.0F, 0.7F, out.data())));
    keep(out);
    sigmoid_row(x.data(), n, out.data());
    keep(out);
    silu_mul_row(x.data(), y.data(), n, out.data());
    keep(out);
    add_weighted_row(x.data(), 0.3F, n, out.data());
    keep(out);
    rms_norm_row(a.data(), b.data(), n, 1e-6F, narrow.data());
    keep_bits(narrow);
    silu_mul_row(a.data(), b.data(), n, narrow.data());
    keep_bits(narrow);
    divide_row(x.data(), 3.0F, n, narrow.data());
    keep_bits(narrow);
    keep(largest(x.data(), n));
    keep(largest_magnitude(x.data(), n));
  }

  void keep_bits(const std::vector<Bf16>& values) {
    for (const Bf16 x : values) keep(to_float(x));
  }

  void products(int64_t m, int64_t n) {
    const int64_t depth = 48;
    const std::vector<float> a = floats(m * depth);
    const std::vector<float> b = floats(n * depth);
    std::vector<const float*> a_rows;
    for (int64_t i = 0; i < m; ++i) a_rows.push_back(a.data() + i * depth);
    std::vector<float> out(static_cast<size_t>(m * n));
    dot_rows({.a = a_rows.data(),
              .m = m,
              .b = b.data(),
              .b_bf16 = nullptr,
              .b_stride = depth,
              .n = n,
              .depth = depth,
              .out = out.data(),
              .out_stride = n});
    keep(out);
    const int64_t columns = (n + 15) / 16 * 16;
    const std::vector<Bf16> wide = bf16s(depth * columns);
    std::vector<float> sums = floats(m * columns);
    const std::vector<float> scale = floats(m);
    accumulate_rows({.a = a.data(),
                     .a_stride = depth,
                     .m = m,
                     .b = nullptr,
                     .b_bf16 = wide.data(),
                     .b_stride = columns,
                     .n = columns,
                     .depth = depth,
                     .out = sums.data(),
                     .out_stride = columns,
                     .scale = scale.data()});
    keep(sums);
  }

  void softmax(int64_t n) {
    OnlineSoftmax state{.largest = -3.0F, .total = 2.0F};
    std::vector<float> scores = floats(64);
    keep(softmax_page(scores.data(), n, 0.5F, &state));
    keep(state.largest);
    keep(state.total);
    keep(scores);
  }

  Rng rng_;
  std::string bytes_;
};

// Runs with exactly this instruction set; SSE4 is always there.
std::string run_on(int64_t target) {
  hwy::SetSupportedTargetsForTest(target | HWY_SSE4);
  hwy::GetChosenTarget().DeInit();
  std::string out = Outputs(7).run();
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
  return out;
}

TEST(Isa, Avx2AndAvx512GiveTheSameBits) {
  const int64_t supported = hwy::SupportedTargets();
  if ((supported & HWY_AVX2) == 0 || (supported & HWY_AVX3) == 0) {
    GTEST_SKIP() << "this machine has not both AVX2 and AVX-512";
  }
  const std::string narrow = run_on(HWY_AVX2);
  const std::string wide = run_on(HWY_AVX3);
  ASSERT_EQ(narrow.size(), wide.size());
  EXPECT_EQ(std::memcmp(narrow.data(), wide.data(), wide.size()), 0);
}

// Without this, the test above could compare one instruction set with itself.
TEST(Isa, TheTestsChooseTheInstructionSet) {
  const int64_t supported = hwy::SupportedTargets();
  if ((supported & HWY_AVX2) == 0) GTEST_SKIP() << "this machine has no AVX2";
  // SSE4 has no fused multiply-add: some sum of this many must round differently.
  EXPECT_NE(run_on(HWY_SSE4), run_on(HWY_AVX2));
}

}  // namespace

}  // namespace quire::cpu
