#include "compress/gptq.h"

#include <algorithm>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
#include "compress/products.h"

namespace quire {

namespace {

static_assert(kFitLanes == kProductLanes);

// Inputs whose errors are carried on together to all before them.
constexpr int64_t kInputsAtOnce = 128;
// Tokens whose outputs are held at a time.
constexpr int64_t kTokensAtOnce = 64;

// Sixteen rows of one group: small enough for the first cache.
struct Stripe {
  alignas(64) float weights[kInt4GroupMax * kFitLanes];
  alignas(64) float carried[kInt4GroupMax * kFitLanes];
};

float nearest_code(float weight, float inverse) {
  return std::max(std::min(std::nearbyint(weight * inverse), 7.0F), -8.0F);
}

class Rounding {
 public:
  Rounding(const InputMoments& moments, const TransposedWeights& weights, int64_t group,
           TransposedWeights* carried, Int4Codes* out)
      : moments_(moments), weights_(weights), group_(group), carried_(*carried), out_(*out) {}

  void run() {
    for (int64_t end = weights_.n_in; end > 0;) {
      const int64_t begin = std::max<int64_t>((end - 1) / kInputsAtOnce * kInputsAtOnce, 0);
      for (int64_t group_end = end; group_end > begin; group_end -= group_) {
        const int64_t group_begin = group_end - group_;
        for (int64_t row = 0; row < weights_.n_lanes; row += kFitLanes) {
          round_stripe(group_begin, row);
        }
        carry({group_begin, group_end}, {begin, group_begin});
      }
      carry({begin, end}, {0, begin});
      end = begin;
    }
  }

 private:
  struct Inputs {
    int64_t begin, end;
  };

  // carried[to] += L[from, to]^T error[from], the last of `from` first.
  void carry(Inputs from, Inputs to) {
    if (to.begin == to.end) return;
    add_products({.a = moments_.row(from.end - 1) + to.begin,
                  .b = out_.error.input(from.end - 1),
                  .c = carried_.input(to.begin),
                  .a_stride = -moments_.n_in(),
                  .b_stride = -weights_.n_lanes,
                  .c_stride = weights_.n_lanes,
                  .n_terms = from.end - from.begin,
                  .n_rows = to.end - to.begin,
                  .n_columns = weights_.n_lanes});
  }

  // Inputs [first, first + group) of rows [row, row + kFitLanes).
  void round_stripe(int64_t first, int64_t row) {
    for (int64_t i = 0; i < group_; ++i) {
      const float pivot = moments_.row(first + i)[first + i];
      const float* weight = weights_.input(first + i) + row;
      const float* carried = carried_.input(first + i) + row;
      for (int64_t lane = 0; lane < kFitLanes; ++lane) {
        stripe_.carried[i * kFitLanes + lane] = carried[lane];
        stripe_.weights[i * kFitLanes + lane] = weight[lane] + carried[lane] / pivot;
      }
    }
    fit_int4(stripe_.weights, group_, &fit_);
    float scales[kFitLanes];
    float inverses[kFitLanes];
    for (int64_t lane = 0; lane < kFitLanes; ++lane) {
      const Bf16 scale = fit_.scale[static_cast<size_t>(lane)];
      scales[lane] = to_float(scale);
      inverses[lane] = 1 / scales[lane];
      out_.scales[static_cast<size_t>(first / group_ * weights_.n_lanes + row + lane)] = scale;
    }
    for (int64_t i = group_ - 1; i >= 0; --i) round_input(first, i, row, scales, inverses);
  }

  void round_input(int64_t first, int64_t i, int64_t row, const float* scales,
                   const float* inverses) {
    const float* factor = moments_.row(first + i) + first;
    const float* weight = weights_.input(first + i) + row;
    const float* carried = stripe_.carried + i * kFitLanes;
    float* error = out_.error.input(first + i) + row;
    uint8_t* code = out_.codes.data() + (first + i) * weights_.n_lanes + row;
    for (int64_t lane = 0; lane < kFitLanes; ++lane) {
      const float q = nearest_code(weight[lane] + carried[lane] / factor[i], inverses[lane]);
      code[lane] = static_cast<uint8_t>(q + 8);
      error[lane] = weight[lane] - q * scales[lane];
    }
    for (int64_t to = 0; to < i; ++to) {
      float* sums = stripe_.carried + to * kFitLanes;
      for (int64_t lane = 0; lane < kFitLanes; ++lane) sums[lane] += factor[to] * error[lane];
    }
  }

  const InputMoments& moments_;
  const TransposedWeights& weights_;
  const int64_t group_;
  TransposedWeights& carried_;
  Int4Codes& out_;
  Stripe stripe_;
  Int4Fit fit_;
};

void make_room(const TransposedWeights& weights, int64_t group, Int4Codes* out) {
  CHECK((group == 32 || group == kInt4GroupMax) && weights.n_in % group == 0);
  out->codes.resize(weights.values.size());
  out->scales.resize(static_cast<size_t>(weights.n_in / group * weights.n_lanes));
  out->error.reset(weights.n_in, weights.n_out);
}

}  // namespace

void TransposedWeights::reset(int64_t inputs, int64_t outputs) {
  n_in = inputs;
  n_out = outputs;
  n_lanes = round_up(outputs, kFitLanes);
  values.assign(static_cast<size_t>(n_in * n_lanes), 0.0F);
}

void round_int4(const TransposedWeights& weights, int64_t group, Int4Codes* out) {
  make_room(weights, group, out);
  Int4Fit fit;
  Stripe stripe;
  for (int64_t first = 0; first < weights.n_in; first += group) {
    for (int64_t row = 0; row < weights.n_lanes; row += kFitLanes) {
      for (int64_t i = 0; i < group; ++i) {
        std::copy_n(weights.input(first + i) + row, kFitLanes, stripe.weights + i * kFitLanes);
      }
      fit_int4(stripe.weights, group, &fit);
      Bf16* scales = out->scales.data() + first / group * weights.n_lanes + row;
      std::copy_n(fit.scale.data(), kFitLanes, scales);
      for (int64_t i = 0; i < group; ++i) {
        const uint8_t* codes = fit.codes.data() + i * kFitLanes;
        std::copy_n(codes, kFitLanes, out->codes.data() + (first + i) * weights.n_lanes + row);
        float* error = out->error.input(first + i) + row;
        for (int64_t lane = 0; lane < kFitLanes; ++lane) {
          error[lane] = stripe.weights[i * kFitLanes + lane] -
                        static_cast<float>(codes[lane] - 8) * to_float(scales[lane]);
        }
      }
    }
  }
}

void round_int4_for(const InputMoments& moments, const TransposedWeights& weights, int64_t group,
                    TransposedWeights* carried, Int4Codes* out) {
  CHECK(moments.n_in() == weights.n_in);
  make_room(weights, group, out);
  carried->reset(weights.n_in, weights.n_out);
  Rounding(moments, weights, group, carried, out).run();
}

double output_square(const std::vector<float>& inputs, const TransposedWeights& rows) {
  const int64_t n_tokens = static_cast<int64_t>(inputs.size()) / rows.n_in;
  std::vector<float> outputs;
  double sum = 0;
  for (int64_t first = 0; first < n_tokens; first += kTokensAtOnce) {
    const int64_t n = std::min(kTokensAtOnce, n_tokens - first);
    outputs.assign(static_cast<size_t>(n * rows.n_lanes), 0.0F);
    add_products({.a = inputs.data() + first,
                  .b = rows.input(0),
                  .c = outputs.data(),
                  .a_stride = n_tokens,
                  .b_stride = rows.n_lanes,
                  .c_stride = rows.n_lanes,
                  .n_terms = rows.n_in,
                  .n_rows = n,
                  .n_columns = rows.n_lanes});
    for (const float y : outputs) sum += static_cast<double>(y) * static_cast<double>(y);
  }
  return sum;
}

}  // namespace quire
