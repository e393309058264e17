// Attention by head, in its plain form: no engine path on the CPU takes it
// (ops/mla_prefill_attention.h).
#include <algorithm>
#include <cmath>
#include <limits>

#include "cpu/kernels.h"
#include "cpu/rows.h"

namespace quire::cpu {

namespace {

// A value that was rounded to bf16.
float rounded(float x) { return to_float(to_bf16(x)); }

// Row j of a sequence as stored: latent, then rope.
void read_row(const ops::MlaPrefillAttention& args, int64_t row, int64_t j, float* out) {
  const KvPageLayout& layout = *args.kv.layout;
  const int64_t page = args.kv.table(row, j / kPageTokens);
  const std::byte* block = args.kv.pool + page * layout.page_bytes +
                           layout.blocks[static_cast<size_t>(args.layer)].offset;
  const auto slot = static_cast<int32_t>(j % kPageTokens);
  const std::byte* values = block + layout.row_offset(slot);
  const int64_t rank = layout.kv_lora_rank;
  switch (layout.format) {
    case KvFormat::bf16:
      bf16_to_float(reinterpret_cast<const Bf16*>(values), layout.values(), out);
      return;
    case KvFormat::fp8_e4m3_584: {
      const auto* scales = reinterpret_cast<const float*>(block + layout.scale_offset(slot));
      fp8_to_float(reinterpret_cast<const Fp8E4m3*>(values), rank, scales[0], out);
      int8_to_float(reinterpret_cast<const int8_t*>(values + rank), layout.rope_dim, scales[1],
                    out + rank);
      for (int64_t i = 0; i < layout.values(); ++i) out[i] = rounded(out[i]);
      return;
    }
  }
}

// out[d] = sum_c w[d, c] * latent[c]
void expand(View<const Bf16, 2> w, const float* latent, float* out) {
  for (int64_t d = 0; d < w[0]; ++d) {
    float sum = 0;
    for (int64_t c = 0; c < w[1]; ++c) sum += to_float(w(d, c)) * latent[c];
    out[d] = rounded(sum);
  }
}

// One head of one row of the step.
class HeadOfRow {
 public:
  HeadOfRow(const ops::MlaPrefillAttention& args, int64_t row, int64_t head)
      : args_(args),
        head_(head),
        nope_dim_(args.q_nope[2]),
        rope_dim_(args.q_rope[2]),
        v_dim_(args.out[2]),
        row_(row),
        begin_(args.tokens.row_begin(row)),
        end_(args.tokens.row_begin(row + 1)) {}

  void attend(Scratch& scratch) {
    if (begin_ == end_) return;
    const int64_t n_keys = args_.tokens.position(end_ - 1) + 1;
    const int64_t rank = args_.w_uk[2];
    keys_ = scratch.take<float>(n_keys * (nope_dim_ + rope_dim_));
    values_ = scratch.take<float>(n_keys * v_dim_);
    weights_ = scratch.take<float>(n_keys);
    sum_ = scratch.take<float>(v_dim_);
    float* stored = scratch.take<float>(rank + rope_dim_);
    for (int64_t j = 0; j < n_keys; ++j) {
      float* key = keys_ + j * (nope_dim_ + rope_dim_);
      read_row(args_, row_, j, stored);
      expand(args_.w_uk.row(head_), stored, key);
      std::copy_n(stored + rank, rope_dim_, key + nope_dim_);
      expand(args_.w_uv.row(head_), stored, values_ + j * v_dim_);
    }
    for (int64_t token = begin_; token < end_; ++token) attend_token(token);
  }

 private:
  float score(int64_t token, int64_t j) const {
    const float* key = keys_ + j * (nope_dim_ + rope_dim_);
    float sum = 0;
    for (int64_t d = 0; d < nope_dim_; ++d) {
      sum += to_float(args_.q_nope(token, head_, d)) * key[d];
    }
    for (int64_t r = 0; r < rope_dim_; ++r) {
      sum += to_float(args_.q_rope(token, head_, r)) * key[nope_dim_ + r];
    }
    return sum * args_.scale;
  }

  void attend_token(int64_t token) {
    const int64_t n = args_.tokens.position(token) + 1;
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < n; ++j) {
      weights_[j] = score(token, j);
      largest = std::max(largest, weights_[j]);
    }
    float total = 0;
    std::fill_n(sum_, v_dim_, 0.0F);
    for (int64_t j = 0; j < n; ++j) {
      const float weight = std::exp(weights_[j] - largest);
      total += weight;
      for (int64_t v = 0; v < v_dim_; ++v) sum_[v] += weight * values_[j * v_dim_ + v];
    }
    for (int64_t v = 0; v < v_dim_; ++v) args_.out(token, head_, v) = to_bf16(sum_[v] / total);
  }

  const ops::MlaPrefillAttention& args_;
  int64_t head_, nope_dim_, rope_dim_, v_dim_;
  int64_t row_, begin_, end_;
  float* keys_ = nullptr;     // [n_keys, nope_dim + rope_dim]
  float* values_ = nullptr;   // [n_keys, v_dim]
  float* weights_ = nullptr;  // [n_keys]
  float* sum_ = nullptr;      // [v_dim]
};

}  // namespace

void mla_prefill_attention(Workers& workers, const ops::MlaPrefillAttention& args) {
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    const int64_t n_heads = args.out[1];
    const int64_t n = args.kv.table[0] * n_heads;
    for (int64_t i = args.tokens.n_lone * n_heads + worker; i < n; i += workers.count()) {
      scratch.reset();
      HeadOfRow(args, i / n_heads, i % n_heads).attend(scratch);
    }
  });
}

}  // namespace quire::cpu
