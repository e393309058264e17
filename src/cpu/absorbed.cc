// The two small per-head products around absorbed attention.
#include <algorithm>

#include "cpu/kernels.h"
#include "cpu/multiply.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

constexpr int64_t kColumnUnit = 64;  // columns of a register tile of accumulate_rows

// All tokens of columns `columns` of one head.
void absorb_columns(const ops::AbsorbQuery& args, int64_t head, Share columns, Scratch& scratch) {
  const int64_t n_tokens = args.out[0];
  const int64_t nope = args.q_nope[2];
  const int64_t n = columns.end - columns.begin;
  const int64_t at_once = tokens_at_once(std::max(nope, n));
  const auto w_uk = args.w_uk.row(head);
  const bool in_place = n % kRowAlignment == 0;
  float* copy = in_place ? nullptr : scratch.take<float>(nope * padded(n));
  for (int64_t d = 0; d < nope && !in_place; ++d) {
    bf16_to_float(w_uk.row(d).data + columns.begin, n, copy + d * padded(n));
    std::fill(copy + d * padded(n) + n, copy + (d + 1) * padded(n), 0.0F);
  }
  float* q = scratch.take<float>(at_once * nope);
  float* sums = scratch.take<float>(at_once * padded(n));
  for (int64_t begin = 0; begin < n_tokens; begin += at_once) {
    const int64_t count = std::min(at_once, n_tokens - begin);
    for (int64_t i = 0; i < count; ++i) {
      bf16_to_float(args.q_nope.row(begin + i).row(head).data, nope, q + i * nope);
    }
    accumulate_rows({.a = q,
                     .a_stride = nope,
                     .m = count,
                     .b = copy,
                     .b_bf16 = w_uk.data + columns.begin,
                     .b_stride = in_place ? w_uk.stride[0] : padded(n),
                     .n = padded(n),
                     .depth = nope,
                     .out = sums,
                     .out_stride = padded(n),
                     .scale = nullptr});
    for (int64_t i = 0; i < count; ++i) {
      float_to_bf16(sums + i * padded(n), n,
                    args.out.row(begin + i).row(head).data + columns.begin);
    }
  }
}

// All tokens of rows `rows` of one head's W_UV.
void expand_rows(const ops::ExpandValue& args, int64_t head, Share rows, Scratch& scratch) {
  const int64_t n_tokens = args.out[0];
  const int64_t rank = args.x[2];
  const int64_t n = rows.end - rows.begin;
  const int64_t at_once = tokens_at_once(rank);
  const WeightMatrix w_uv{.format = WeightFormat::bf16,
                          .n_out = args.w_uv[1],
                          .n_in = rank,
                          .bf16 = args.w_uv.row(head),
                          .fp8 = {},
                          .fp8_scale = {},
                          .int4 = {},
                          .int4_scale = {}};
  const float** x = scratch.take<const float*>(at_once);
  float* values = scratch.take<float>(at_once * padded(rank));
  float* sums = scratch.take<float>(at_once * n);
  for (int64_t begin = 0; begin < n_tokens; begin += at_once) {
    const int64_t count = std::min(at_once, n_tokens - begin);
    for (int64_t i = 0; i < count; ++i) {
      x[i] = values + i * padded(rank);
      load_activation(args.x.row(begin + i).row(head).data, rank, Activation::bf16,
                      values + i * padded(rank));
    }
    multiply(
        {.weight = &w_uv, .rows = rows, .x = x, .n_tokens = count, .out = sums, .out_stride = n},
        scratch);
    for (int64_t i = 0; i < count; ++i) {
      float_to_bf16(sums + i * n, n, args.out.row(begin + i).row(head).data + rows.begin);
    }
  }
}

// The outputs of all heads, and how they are divided: `unit` neighbours stay together.
struct Heads {
  int64_t n_heads;
  int64_t width;  // outputs of a head
  int64_t unit;
};

// Calls body(head, share of [0, width), scratch) for every head that a worker has a part of.
template <class Body>
void each_head(Workers& workers, int n_workers, const Heads& heads, const Body& body) {
  const int64_t n_heads = heads.n_heads;
  const int64_t width = heads.width;
  const int64_t unit = heads.unit;
  const int64_t units = (width + unit - 1) / unit;  // of a head
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    const Share mine = share_of(worker, n_workers, n_heads * units);
    for (int64_t head = mine.begin / units; head < n_heads; ++head) {
      const int64_t begin = std::max(mine.begin - head * units, int64_t{0}) * unit;
      const int64_t end = std::min((mine.end - head * units) * unit, width);
      if (begin >= end) break;
      scratch.reset();
      body(head, Share{begin, end}, scratch);
    }
  });
}

}  // namespace

void absorb_query(Workers& workers, const ops::AbsorbQuery& args) {
  if (args.q_rope.data != nullptr) {
    rope(workers,
         {.x = args.q_rope, .positions = args.positions, .cos = args.cos, .sin = args.sin});
  }
  const int n_workers = workers.count_for(args.out.size() * args.q_nope[2]);
  each_head(workers, n_workers, {args.out[1], args.out[2], kColumnUnit},
            [&](int64_t head, Share columns, Scratch& scratch) {
              absorb_columns(args, head, columns, scratch);
            });
}

void expand_value(Workers& workers, const ops::ExpandValue& args) {
  constexpr int64_t kRowUnit = 4;
  const int n_workers = workers.count_for(args.out.size() * args.x[2]);
  each_head(
      workers, n_workers, {args.out[1], args.out[2], kRowUnit},
      [&](int64_t head, Share rows, Scratch& scratch) { expand_rows(args, head, rows, scratch); });
}

}  // namespace quire::cpu
