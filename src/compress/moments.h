// InputMoments: what a linear map is given, summed up: H = sum of x x^T over the tokens it saw, and
// after factor() the lower triangular L with L L^T = H + lambda I.
//
// What an error d of one output's weights does to the outputs is d H d^T = |d L|^2 - lambda |d|^2.
// Everything is float32 in a fixed order (compress/products.h), so that bits are the same on every
// machine.
#pragma once

#include <cstdint>
#include <vector>

namespace quire {

class InputMoments {
 public:
  // Room for that many inputs: n_in * n_in values, twice.
  void reserve(int64_t n_in);
  // n_in: a multiple of kProductLanes.
  void reset(int64_t n_in);

  // x: [n_tokens, n_in], finite.
  void add(const float* x, int64_t n_tokens);

  // lambda = damping * (the mean of H's diagonal). The moments stay, for another damping. False
  // when a pivot is not positive: there is no factor then. Source: right-looking Cholesky, Golub
  // and Van Loan, Matrix Computations, 4.2.
  bool factor(double damping);

  int64_t n_in() const { return n_in_; }
  // Row c of the factor: L[c, 0 .. c] and, mirrored, L[c + 1 .., c].
  const float* row(int64_t c) const { return factor_.data() + c * n_in_; }
  float lambda() const { return lambda_; }

 private:
  float* row(int64_t c) { return factor_.data() + c * n_in_; }
  bool factor_block(int64_t begin, int64_t end);

  int64_t n_in_ = 0;
  float lambda_ = 0;
  std::vector<float> moments_;  // [n_in, n_in]; only its upper part
  std::vector<float> factor_;   // [n_in, n_in]
};

}  // namespace quire
