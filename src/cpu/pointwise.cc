// Ops that touch each value once: a row is one worker's.
#include <algorithm>
#include <cstring>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

// Values of a row that take about as long as waking another worker.
constexpr int64_t kWorthAThread = 8192;

// Calls body(token) for each of n tokens of `width` values.
template <class Body>
void each_token(Workers& workers, int64_t n, int64_t width, const Body& body) {
  const auto n_workers =
      static_cast<int>(std::clamp<int64_t>(n * width / kWorthAThread, 1, workers.count()));
  workers.each(n_workers, [&](int worker, Scratch&) {
    const Share tokens = share_of(worker, n_workers, n);
    for (int64_t token = tokens.begin; token < tokens.end; ++token) body(token);
  });
}

}  // namespace

void embed(Workers& workers, const ops::Embed& args) {
  const auto row_bytes = static_cast<size_t>(args.out[1]) * sizeof(Bf16);
  each_token(workers, args.out[0], args.out[1], [&](int64_t token) {
    const int64_t row = int64_t{args.ids(token)} - args.first_id;
    Bf16* out = args.out.row(token).data;
    if (0 <= row && row < args.table[0]) {
      std::memcpy(out, args.table.row(row).data, row_bytes);
    } else {
      std::fill_n(out, args.out[1], Bf16{});
    }
  });
}

void gather_rows(Workers& workers, const ops::GatherRows& args) {
  const auto row_bytes = static_cast<size_t>(args.out[1]) * sizeof(Bf16);
  each_token(workers, args.out[0], args.out[1], [&](int64_t i) {
    const int64_t row = args.rows(i);
    CHECK(0 <= row && row < args.x[0]);
    std::memcpy(args.out.row(i).data, args.x.row(row).data, row_bytes);
  });
}

void rms_norm(Workers& workers, const ops::RmsNorm& args) {
  each_token(workers, args.out[0], args.out[1], [&](int64_t token) {
    rms_norm_row(args.x.row(token).data, args.weight.data, args.out[1], args.eps,
                 args.out.row(token).data);
  });
}

void add_rms_norm(Workers& workers, const ops::AddRmsNorm& args) {
  each_token(workers, args.out[0], args.out[1], [&](int64_t token) {
    Bf16* h = args.h.row(token).data;
    add_row(h, args.delta.row(token).data, args.out[1], h);
    rms_norm_row(h, args.weight.data, args.out[1], args.eps, args.out.row(token).data);
  });
}

void add(Workers& workers, const ops::Add& args) {
  each_token(workers, args.out[0], args.out[1], [&](int64_t token) {
    add_row(args.a.row(token).data, args.b.row(token).data, args.out[1], args.out.row(token).data);
  });
}

void silu_mul(Workers& workers, const ops::SiluMul& args) {
  each_token(workers, args.out[0], args.out[1], [&](int64_t token) {
    silu_mul_row(args.gate.row(token).data, args.up.row(token).data, args.out[1],
                 args.out.row(token).data);
  });
}

void rope(Workers& workers, const ops::Rope& args) {
  const int64_t n_pairs = args.x[2] / 2;
  each_token(workers, args.x[0], args.x[1] * args.x[2], [&](int64_t token) {
    const int64_t position = args.positions(token);
    CHECK(0 <= position && position < args.cos[0]);
    const float* cos = args.cos.row(position).data;
    const float* sin = args.sin.row(position).data;
    for (int64_t head = 0; head < args.x[1]; ++head) {
      rotate_row(cos, sin, n_pairs, args.x.row(token).row(head).data);
    }
  });
}

}  // namespace quire::cpu
