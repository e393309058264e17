#include "compress/moments.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compress/products.h"

namespace quire {

namespace {

// Rows of the factor at a time: what is left is passed over once for them all.
constexpr int64_t kFactorRows = 128;
constexpr int64_t kMirrorTile = 64;

}  // namespace

void InputMoments::reserve(int64_t n_in) {
  moments_.reserve(static_cast<size_t>(n_in * n_in));
  factor_.reserve(static_cast<size_t>(n_in * n_in));
}

void InputMoments::reset(int64_t n_in) {
  CHECK(n_in > 0 && n_in % kProductLanes == 0);
  n_in_ = n_in;
  lambda_ = 0;
  moments_.assign(static_cast<size_t>(n_in * n_in), 0.0F);
}

void InputMoments::add(const float* x, int64_t n_tokens) {
  add_products({.a = x,
                .b = x,
                .c = moments_.data(),
                .a_stride = n_in_,
                .b_stride = n_in_,
                .c_stride = n_in_,
                .n_terms = n_tokens,
                .n_rows = n_in_,
                .n_columns = n_in_,
                .part = ProductPart::upper});
}

// Rows [begin, end) of the factor's transpose, of what earlier rows have left.
bool InputMoments::factor_block(int64_t begin, int64_t end) {
  for (int64_t k = begin; k < end; ++k) {
    float* pivot_row = row(k);
    if (!(pivot_row[k] > 0) || !std::isfinite(pivot_row[k])) return false;
    const float pivot = std::sqrt(pivot_row[k]);
    for (int64_t j = k; j < n_in_; ++j) pivot_row[j] /= pivot;
    for (int64_t i = k + 1; i < end; ++i) {
      const float factor = pivot_row[i];
      float* to = row(i);
      for (int64_t j = i; j < n_in_; ++j) to[j] -= factor * pivot_row[j];
    }
  }
  return true;
}

bool InputMoments::factor(double damping) {
  factor_ = moments_;
  double trace = 0;
  for (int64_t i = 0; i < n_in_; ++i) trace += static_cast<double>(row(i)[i]);
  lambda_ = static_cast<float>(damping * trace / static_cast<double>(n_in_));
  for (int64_t i = 0; i < n_in_; ++i) row(i)[i] += lambda_;
  for (int64_t begin = 0; begin < n_in_; begin += kFactorRows) {
    const int64_t end = std::min(begin + kFactorRows, n_in_);
    if (!factor_block(begin, end)) return false;
    const int64_t n_left = n_in_ - end;
    add_products({.a = row(begin) + end,
                  .b = row(begin) + end,
                  .c = row(0) + end * n_in_ + end,
                  .a_stride = n_in_,
                  .b_stride = n_in_,
                  .c_stride = n_in_,
                  .n_terms = end - begin,
                  .n_rows = n_left,
                  .n_columns = n_left,
                  .sign = ProductSign::minus,
                  .part = ProductPart::upper});
  }
  for (int64_t i0 = 0; i0 < n_in_; i0 += kMirrorTile) {
    for (int64_t j0 = 0; j0 <= i0; j0 += kMirrorTile) {
      for (int64_t i = i0; i < std::min(i0 + kMirrorTile, n_in_); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kMirrorTile, i); ++j) row(i)[j] = row(j)[i];
      }
    }
  }
  return true;
}

}  // namespace quire
