// Ops that touch each value once: a row is one worker's.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

constexpr int64_t kLanes = 16;  // partial sums of a row: lane l adds values l, l + 16, ...

// The sum of 16 partial sums, in the one order that all kernels use.
float sum_lanes(const float* lanes) {
  float eight[8];
  for (int i = 0; i < 8; ++i) eight[i] = lanes[i] + lanes[i + 8];
  return ((eight[0] + eight[4]) + (eight[2] + eight[6])) +
         ((eight[1] + eight[5]) + (eight[3] + eight[7]));
}

float sum_of_squares(const Bf16* x, int64_t n) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) {
    const float value = to_float(x[i]);
    lanes[i % kLanes] += value * value;
  }
  return sum_lanes(lanes);
}

float silu(float x) { return x / (1.0F + std::exp(-x)); }

}  // namespace

void embed(Workers& workers, const ops::Embed& args) {
  const auto row_bytes = static_cast<size_t>(args.out[1]) * sizeof(Bf16);
  workers.split(args.out[0], [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t id = std::clamp<int64_t>(args.ids(token), 0, args.table[0] - 1);
      std::memcpy(args.out.row(token).data, args.table.row(id).data, row_bytes);
    }
  });
}

void gather_rows(Workers& workers, const ops::GatherRows& args) {
  const auto row_bytes = static_cast<size_t>(args.out[1]) * sizeof(Bf16);
  workers.split(args.out[0], [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = args.rows(i);
      CHECK(0 <= row && row < args.x[0]);
      std::memcpy(args.out.row(i).data, args.x.row(row).data, row_bytes);
    }
  });
}

void rms_norm(Workers& workers, const ops::RmsNorm& args) {
  const int64_t dim = args.out[1];
  workers.split(args.out[0], [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const Bf16* x = args.x.row(token).data;
      Bf16* out = args.out.row(token).data;
      const float mean = sum_of_squares(x, dim) / static_cast<float>(dim);
      const float factor = 1.0F / std::sqrt(mean + args.eps);
      for (int64_t i = 0; i < dim; ++i) {
        const float normalised = to_float(to_bf16(to_float(x[i]) * factor));
        out[i] = to_bf16(normalised * to_float(args.weight.data[i]));
      }
    }
  });
}

void add(Workers& workers, const ops::Add& args) {
  workers.split(args.out[0], [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const Bf16* a = args.a.row(token).data;
      const Bf16* b = args.b.row(token).data;
      Bf16* out = args.out.row(token).data;
      for (int64_t i = 0; i < args.out[1]; ++i) out[i] = to_bf16(to_float(a[i]) + to_float(b[i]));
    }
  });
}

void silu_mul(Workers& workers, const ops::SiluMul& args) {
  workers.split(args.out[0], [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const Bf16* gate = args.gate.row(token).data;
      const Bf16* up = args.up.row(token).data;
      Bf16* out = args.out.row(token).data;
      for (int64_t i = 0; i < args.out[1]; ++i) {
        out[i] = to_bf16(to_float(to_bf16(silu(to_float(gate[i])))) * to_float(up[i]));
      }
    }
  });
}

void rope(Workers& workers, const ops::Rope& args) {
  const int64_t n_pairs = args.x[2] / 2;
  workers.split(args.x[0], [&](int64_t begin, int64_t end) {
    for (int64_t token = begin; token < end; ++token) {
      const int64_t position = args.positions(token);
      CHECK(0 <= position && position < args.cos[0]);
      const float* cos = args.cos.row(position).data;
      const float* sin = args.sin.row(position).data;
      for (int64_t head = 0; head < args.x[1]; ++head) {
        Bf16* x = args.x.row(token).row(head).data;
        for (int64_t i = 0; i < n_pairs; ++i) {
          const float a = to_float(x[2 * i]);
          const float b = to_float(x[2 * i + 1]);
          x[2 * i] = to_bf16(a * cos[i] - b * sin[i]);
          x[2 * i + 1] = to_bf16(b * cos[i] + a * sin[i]);
        }
      }
    }
  });
}

}  // namespace quire::cpu
