// GPTQ: INT4 weights chosen so that a map's outputs keep their values over the inputs it was
// calibrated with, not so that each weight is the nearest.
//
// Inputs are taken from the last to the first. Each weight is rounded after what the errors of
// those behind it do to the outputs has been added to it, which makes the sum |d L|^2 of
// compress/moments.h least at every step. This is GPTQ's rule in the form that needs no inverse. A
// group's scale is searched (compress/group_fit.h) when its turn comes, for the weights as they are
// then. Arithmetic and order are fixed (docs/compress.md). Source: Frantar and others, GPTQ (arXiv
// 2210.17323), 3; Chen and others, The Geometry of LLM Quantization (arXiv 2507.18553), for the
// rule as back substitution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compress/group_fit.h"
#include "compress/moments.h"

namespace quire {

// A matrix on its way to INT4, transposed, so that neighbours in memory are rows of the map.
struct TransposedWeights {
  std::vector<float> values;  // [n_in, n_lanes], finite; zeros from n_out on
  int64_t n_in = 0;
  int64_t n_out = 0;
  int64_t n_lanes = 0;  // n_out rounded up to whole fits

  void reset(int64_t n_in, int64_t n_out);
  float* input(int64_t i) { return values.data() + i * n_lanes; }
  const float* input(int64_t i) const { return values.data() + i * n_lanes; }
};

struct Int4Codes {
  std::vector<uint8_t> codes;  // [n_in, n_lanes] offset binary
  std::vector<Bf16> scales;    // [n_in / group, n_lanes]
  TransposedWeights error;     // weight - value
};

// Every group by itself: to the nearest value at the scale of the least error.
void round_int4(const TransposedWeights& weights, int64_t group, Int4Codes* out);

// `moments` are factored, of weights.n_in inputs. `carried` is working memory.
void round_int4_for(const InputMoments& moments, const TransposedWeights& weights, int64_t group,
                    TransposedWeights* carried, Int4Codes* out);

// sum of y^2 of the outputs y = rows x, over tokens: `inputs` is [n_in, n_tokens], n_in of `rows`.
double output_square(const std::vector<float>& inputs, const TransposedWeights& rows);

}  // namespace quire
