#include <algorithm>
#include <cmath>

#include "cpu/dequantise.h"
#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

float dot(const float* a, const float* b, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// One token as the product sees it.
void load_activation(const Bf16* x, int64_t n, Activation activation, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = to_float(x[i]);
  if (activation == Activation::bf16) return;
  for (int64_t begin = 0; begin < n; begin += kFp8Block) {
    const int64_t end = std::min(begin + kFp8Block, n);
    float amax = 0;
    for (int64_t i = begin; i < end; ++i) amax = std::max(amax, std::abs(out[i]));
    const float scale = amax == 0 ? 1.0F : amax / kFp8Max;
    for (int64_t i = begin; i < end; ++i) out[i] = to_float(to_fp8_e4m3(out[i] / scale)) * scale;
  }
}

}  // namespace

void linear(Workers& workers, const ops::Linear& args) {
  const int64_t n_in = args.weight.n_in;
  const int64_t n_tokens = args.x[0];
  workers.shared().reset();
  float* x = workers.shared().take<float>(n_tokens * n_in);
  for (int64_t token = 0; token < n_tokens; ++token) {
    load_activation(args.x.row(token).data, n_in, args.activation, x + token * n_in);
  }
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    const int64_t begin = args.weight.n_out * worker / workers.count();
    const int64_t end = args.weight.n_out * (worker + 1) / workers.count();
    float* row = scratch.take<float>(n_in);
    for (int64_t o = begin; o < end; ++o) {
      dequantise_row(args.weight, o, row);
      for (int64_t token = 0; token < n_tokens; ++token) {
        const float sum = dot(x + token * n_in, row, n_in);
        if (args.out.data != nullptr) {
          args.out(token, o) = to_bf16(sum);
        } else {
          args.out_f32(token, o) = sum;
        }
      }
    }
  });
}

}  // namespace quire::cpu
