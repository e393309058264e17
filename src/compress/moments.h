// InputMoments: what a linear map is given, summed up: H = sum of x x^T over the tokens it saw, and
// after factor() the lower triangular L with L L^T = H + lambda I.
//
// The error of a map's outputs over those tokens is sum |x . d|^2 = d H d^T for an error d of one
// output's weights, which is |d L|^2 - lambda |d|^2. Everything is float32 in a fixed order
// (compress/products.h), so that bits are the same on every machine.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

class InputMoments {
 public:
  // n_in: a multiple of kProductLanes.
  void reset(int64_t n_in);

  // x: [n_tokens, n_in], finite.
  void add(const float* x, int64_t n_tokens);

  // lambda = damping * (the mean of H's diagonal). False when a pivot is not positive: the factor
  // is then of no use, and the moments are gone.
  // Source: right-looking Cholesky, Golub and Van Loan, Matrix Computations, 4.2.
  bool factor(double damping);

  int64_t n_in() const { return n_in_; }
  // Once factored: row c holds L[c, 0 .. c] and, mirrored, L[c + 1 .., c].
  const float* row(int64_t c) const { return values_.data() + c * n_in_; }
  double lambda() const { return static_cast<double>(lambda_); }

 private:
  float* row(int64_t c) { return values_.data() + c * n_in_; }
  bool factor_block(int64_t begin, int64_t end);

  int64_t n_in_ = 0;
  float lambda_ = 0;
  std::vector<float> values_;  // [n_in, n_in]; only the upper part until it is factored
};

}  // namespace quire
