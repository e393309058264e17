#include <algorithm>

#include "cpu/kernels.h"
#include "cpu/multiply.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

constexpr int64_t kRowUnit = 4;           // outputs of a register tile
constexpr int64_t kTokensPerWorker = 32;  // from here on workers divide tokens, not outputs

// What one worker computes.
struct Part {
  Share tokens;
  Share rows;
  const float* x;  // all tokens, padded rows; or null: converted block by block
};

void store_rows(const ops::Linear& args, const Part& part, Share tokens, const float* sums) {
  const int64_t n = part.rows.end - part.rows.begin;
  for (int64_t token = tokens.begin; token < tokens.end; ++token) {
    const float* row = sums + (token - tokens.begin) * n;
    float_to_bf16(row, n, args.out.row(token).data + part.rows.begin);
  }
}

void multiply_part(const ops::Linear& args, const Part& part, Scratch& scratch) {
  const int64_t n_in = args.weight.n_in;
  const int64_t n_rows = part.rows.end - part.rows.begin;
  const int64_t at_once = tokens_at_once(n_in);
  const bool to_bf16 = args.out.data != nullptr;
  const float** x = scratch.take<const float*>(at_once);
  float* block = part.x == nullptr ? scratch.take<float>(at_once * padded(n_in)) : nullptr;
  float* sums = to_bf16 ? scratch.take<float>(at_once * n_rows) : nullptr;
  for (int64_t begin = part.tokens.begin; begin < part.tokens.end; begin += at_once) {
    const Share tokens{begin, std::min(begin + at_once, part.tokens.end)};
    for (int64_t token = begin; token < tokens.end; ++token) {
      const int64_t i = token - begin;
      if (block != nullptr) {
        load_activation(args.x.row(token).data, n_in, args.activation, block + i * padded(n_in));
        x[i] = block + i * padded(n_in);
      } else {
        x[i] = part.x + token * padded(n_in);
      }
    }
    multiply({.weight = &args.weight,
              .rows = part.rows,
              .x = x,
              .n_tokens = tokens.end - begin,
              .out = to_bf16 ? sums : args.out_f32.row(begin).data + part.rows.begin,
              .out_stride = to_bf16 ? n_rows : args.out_f32.stride[0]},
             scratch);
    if (to_bf16) store_rows(args, part, tokens, sums);
  }
}

}  // namespace

void linear_pair(Workers& workers, const ops::LinearPair& args) {
  for (const ops::LinearPair::Side* side : {&args.first, &args.second}) {
    linear(workers, {.out = side->out,
                     .out_f32 = {},
                     .x = args.x,
                     .weight = side->weight,
                     .activation = side->activation});
  }
}

void linear(Workers& workers, const ops::Linear& args) {
  const int64_t n_tokens = args.x[0];
  const int64_t n_in = args.weight.n_in;
  const int64_t n_out = args.weight.n_out;
  const int n_workers = workers.count_for(n_tokens * n_in * n_out);
  if (n_tokens >= kTokensPerWorker * n_workers) {
    workers.each(n_workers, [&](int worker, Scratch& scratch) {
      const Share tokens = share_of(worker, n_workers, n_tokens, kRowUnit);
      multiply_part(args, {.tokens = tokens, .rows = {0, n_out}, .x = nullptr}, scratch);
    });
    return;
  }
  workers.shared().reset();
  float* x = workers.shared().take<float>(n_tokens * padded(n_in));
  for (int64_t token = 0; token < n_tokens; ++token) {
    load_activation(args.x.row(token).data, n_in, args.activation, x + token * padded(n_in));
  }
  workers.each(n_workers, [&](int worker, Scratch& scratch) {
    const Share rows = share_of(worker, n_workers, n_out, kRowUnit);
    multiply_part(args, {.tokens = {0, n_tokens}, .rows = rows, .x = x}, scratch);
  });
}

}  // namespace quire::cpu
