#include "compress/products.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compress/products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace quire::HWY_NAMESPACE {

namespace {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using Vec = hn::Vec<F32>;

// Terms at a time: a strip of b stays in the first cache while all rows of c pass.
constexpr int64_t kTermsAtOnce = 128;
constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kStripMax = 32;

template <ProductSign kSign>
HWY_INLINE Vec add_term(Vec sum, Vec a, Vec b) {
  const Vec term = hn::Mul(a, b);
  return kSign == ProductSign::plus ? hn::Add(sum, term) : hn::Sub(sum, term);
}

// kRows rows of c by kVectors registers of columns; `strip` is b's part, [n_terms, width].
template <ProductSign kSign, int kRows, int kVectors>
HWY_INLINE void add_tile(const Products& p, const float* a, const float* strip, int64_t n_terms,
                         float* c) {
  const F32 f32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(f32));
  Vec sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::LoadU(f32, c + r * p.c_stride + v * lanes);
  }
  for (int64_t k = 0; k < n_terms; ++k) {
    Vec b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = hn::LoadU(f32, strip + (k * kVectors + v) * lanes);
    for (int r = 0; r < kRows; ++r) {
      const Vec one = hn::Set(f32, a[k * p.a_stride + r]);
      for (int v = 0; v < kVectors; ++v) sums[r][v] = add_term<kSign>(sums[r][v], one, b[v]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[r][v], f32, c + r * p.c_stride + v * lanes);
  }
}

// Columns [column, column + kVectors registers) of c, all terms from `term` on that fit a strip.
template <ProductSign kSign, int kVectors>
void add_strip(const Products& p, int64_t term, int64_t column) {
  const int64_t width = kVectors * static_cast<int64_t>(hn::Lanes(F32()));
  const int64_t n_terms = std::min(kTermsAtOnce, p.n_terms - term);
  alignas(64) float strip[kTermsAtOnce * kStripMax];
  for (int64_t k = 0; k < n_terms; ++k) {
    std::copy_n(p.b + (term + k) * p.b_stride + column, width, strip + k * width);
  }
  const float* a = p.a + term * p.a_stride;
  const int64_t n_rows =
      p.part == ProductPart::upper ? std::min(p.n_rows, column + width) : p.n_rows;
  int64_t row = 0;
  for (; row + kRowsAtOnce <= n_rows; row += kRowsAtOnce) {
    add_tile<kSign, kRowsAtOnce, kVectors>(p, a + row, strip, n_terms,
                                           p.c + row * p.c_stride + column);
  }
  for (; row < n_rows; ++row) {
    add_tile<kSign, 1, kVectors>(p, a + row, strip, n_terms, p.c + row * p.c_stride + column);
  }
}

template <ProductSign kSign>
void add_all(const Products& p) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(F32()));
  for (int64_t term = 0; term < p.n_terms; term += kTermsAtOnce) {
    int64_t column = 0;
    for (; column + 2 * lanes <= p.n_columns; column += 2 * lanes) {
      add_strip<kSign, 2>(p, term, column);
    }
    for (; column < p.n_columns; column += lanes) add_strip<kSign, 1>(p, term, column);
  }
}

}  // namespace

void add_products_target(const Products& args) {
  if (args.sign == ProductSign::plus) {
    add_all<ProductSign::plus>(args);
  } else {
    add_all<ProductSign::minus>(args);
  }
}

}  // namespace quire::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire {

HWY_EXPORT(add_products_target);

void add_products(const Products& args) {
  CHECK(args.n_columns % kProductLanes == 0);
  HWY_DYNAMIC_DISPATCH(add_products_target)(args);
}

}  // namespace quire
#endif  // HWY_ONCE
