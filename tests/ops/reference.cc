#include "reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

namespace quire::ops_test {

namespace {

constexpr double kFloat = 0x1p-24;  // unit roundoff of float32
constexpr double kBf16 = 0x1p-8;    // unit roundoff of bfloat16
constexpr double kFp8 = 0x1p-4;     // unit roundoff of e4m3
constexpr double kTiny = 0x1p-126;  // results below the normal range may be flushed to zero

// Roundings on the path of one term through a sum of n products: 16 partial sums, added up.
double sum_depth(int64_t n) { return static_cast<double>(n) / 16 + 24; }

double at(Bf16 x) { return double{to_float(x)}; }
double silu(double x) { return x / (1 + std::exp(-x)); }

// A sum of products with the sum of their magnitudes, which scales its error.
struct Sum {
  double value = 0;
  double size = 0;
  void add(double a, double b) {
    value += a * b;
    size += std::abs(a * b);
  }
  // Every a[i] * b[i], in order; b may be longer. Sanitized builds spend their time here: plain
  // pointers.
  void add(std::span<const double> a, std::span<const double> b) {
    const double* from_a = a.data();
    const double* from_b = b.data();
    for (const double* end = from_a + a.size(); from_a != end;) add(*from_a++, *from_b++);
  }
};

void push(Expected& out, double value, double bound) {
  out.value.push_back(value);
  out.bound.push_back(bound + kBf16 * std::abs(value) + kTiny);
}

}  // namespace

Expected reference(const ops::Add& args) {
  Expected out;
  for (int64_t t = 0; t < args.a[0]; ++t) {
    for (int64_t i = 0; i < args.a[1]; ++i) push(out, at(args.a(t, i)) + at(args.b(t, i)), 0);
  }
  return out;
}

Expected reference(const ops::SiluMul& args) {
  Expected out;
  for (int64_t t = 0; t < args.gate[0]; ++t) {
    for (int64_t i = 0; i < args.gate[1]; ++i) {
      const double gate = at(args.gate(t, i));
      const double value = silu(gate) * at(args.up(t, i));
      // exp(-x) passes float32 below -88.7: silu is -0 there.
      const double lost = gate < -87 ? std::abs(value) : 0;
      push(out, value,
           std::abs(value) * (kBf16 * (1 + kBf16) + 16 * kFloat) + lost +
               kTiny * std::abs(at(args.up(t, i))));
    }
  }
  return out;
}

Expected reference(const ops::RmsNorm& args) {
  Expected out;
  const int64_t dim = args.x[1];
  for (int64_t t = 0; t < args.x[0]; ++t) {
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += at(args.x(t, i)) * at(args.x(t, i));
    const double factor = 1 / std::sqrt(sum / static_cast<double>(dim) + double{args.eps});
    for (int64_t i = 0; i < dim; ++i) {
      const double value = at(args.x(t, i)) * factor * at(args.weight(i));
      push(out, value,
           std::abs(value) * (kBf16 * (1 + kBf16) + sum_depth(dim) * kFloat) +
               kTiny * std::abs(at(args.weight(i))));
    }
  }
  return out;
}

Expected reference(const ops::Rope& args) {
  Expected out;
  for (int64_t t = 0; t < args.x[0]; ++t) {
    for (int64_t h = 0; h < args.x[1]; ++h) {
      for (int64_t i = 0; i < args.x[2] / 2; ++i) {
        const double cos = args.cos(args.positions(t), i);
        const double sin = args.sin(args.positions(t), i);
        const double a = at(args.x(t, h, 2 * i));
        const double b = at(args.x(t, h, 2 * i + 1));
        Sum first;
        first.add(a, cos);
        first.add(-b, sin);
        Sum second;
        second.add(b, cos);
        second.add(a, sin);
        push(out, first.value, 2 * kFloat * first.size);
        push(out, second.value, 2 * kFloat * second.size);
      }
    }
  }
  return out;
}

double weight_at(const WeightMatrix& weight, int64_t o, int64_t i) {
  switch (weight.format) {
    case WeightFormat::bf16:
      return at(weight.bf16(o, i));
    case WeightFormat::fp8_block128:
      return double{to_float(weight.fp8(o, i))} * double{weight.fp8_scale(o / 128, i / 128)};
    case WeightFormat::int4_group: {
      const int byte = weight.int4(o, i / 2);
      const int nibble = i % 2 == 0 ? byte & 15 : byte >> 4;
      return (nibble - 8) * at(weight.int4_scale(o, i / weight.group));
    }
  }
  return 0;
}

namespace {

// The values of a weight, [n_out, n_in].
class Decoded {
 public:
  explicit Decoded(const WeightMatrix& weight) : n_in_(static_cast<size_t>(weight.n_in)) {
    values_.reserve(static_cast<size_t>(weight.n_out) * n_in_);
    for (int64_t o = 0; o < weight.n_out; ++o) {
      for (int64_t i = 0; i < weight.n_in; ++i) values_.push_back(weight_at(weight, o, i));
    }
  }
  std::span<const double> row(int64_t o) const {
    return std::span(values_).subspan(static_cast<size_t>(o) * n_in_, n_in_);
  }

 private:
  size_t n_in_;
  std::vector<double> values_;
};

}  // namespace

std::vector<double> activation_of(View<const Bf16, 1> x, Activation activation) {
  std::vector<double> out;
  for (int64_t i = 0; i < x[0]; ++i) {
    if (activation == Activation::bf16) {
      out.push_back(at(x(i)));
      continue;
    }
    const int64_t begin = i / 128 * 128;
    float amax = 0;
    for (int64_t j = begin; j < std::min(begin + 128, x[0]); ++j) {
      amax = std::max(amax, std::abs(to_float(x(j))));
    }
    const float scale = amax == 0 ? 1.0F : amax / 448.0F;
    out.push_back(double{to_float(to_fp8_e4m3(to_float(x(i)) / scale))} * double{scale});
  }
  return out;
}

Expected reference(const ops::Linear& args) {
  Expected out;
  const int64_t n_in = args.weight.n_in;
  const Decoded weight(args.weight);
  for (int64_t t = 0; t < args.x[0]; ++t) {
    const std::vector<double> x = activation_of(args.x.row(t), args.activation);
    for (int64_t o = 0; o < args.weight.n_out; ++o) {
      Sum sum;
      sum.add(x, weight.row(o));
      push(out, sum.value, (sum_depth(n_in) + 4) * kFloat * sum.size);
      if (args.out_f32.data != nullptr) out.bound.back() -= kBf16 * std::abs(sum.value);
    }
  }
  return out;
}

Expected reference(const ops::AbsorbQuery& args) {
  Expected out;
  const auto depth = static_cast<double>(args.q_nope[2] + 4);
  for (int64_t t = 0; t < args.q_nope[0]; ++t) {
    for (int64_t h = 0; h < args.q_nope[1]; ++h) {
      for (int64_t c = 0; c < args.w_uk[2]; ++c) {
        Sum sum;
        for (int64_t d = 0; d < args.q_nope[2]; ++d) {
          sum.add(at(args.q_nope(t, h, d)), at(args.w_uk(h, d, c)));
        }
        push(out, sum.value, depth * kFloat * sum.size);
      }
    }
  }
  return out;
}

Expected reference(const ops::ExpandValue& args) {
  Expected out;
  for (int64_t t = 0; t < args.x[0]; ++t) {
    for (int64_t h = 0; h < args.x[1]; ++h) {
      for (int64_t v = 0; v < args.w_uv[1]; ++v) {
        Sum sum;
        for (int64_t c = 0; c < args.x[2]; ++c)
          sum.add(at(args.w_uv(h, v, c)), at(args.x(t, h, c)));
        push(out, sum.value, sum_depth(args.x[2]) * kFloat * sum.size);
      }
    }
  }
  return out;
}

namespace {

// Softmax attention of one query over `values` rows, given its scores.
struct Attended {
  std::vector<double> value;  // [dim]
  std::vector<double> bound;  // [dim], before the last rounding
};

// What a weight loses where it meets the values, relative to itself, and to the largest weight
// times the largest value.
struct WeightRounding {
  double relative = 0;
  double absolute = 0;
};
constexpr WeightRounding kBf16Weights{.relative = kBf16};
// Rounded to float16, the largest to less than 2^15: half a unit in the last place, and half the
// smallest step.
constexpr WeightRounding kFloat16Weights{.relative = 0x1p-11, .absolute = 0x1p-39};

Attended attend(const std::vector<Sum>& scores, int64_t score_terms,
                std::span<const std::span<const double>> values, const WeightRounding& rounding) {
  double largest = -INFINITY;
  double score_error = 0;
  for (const Sum& score : scores) {
    largest = std::max(largest, score.value);
    score_error = std::max(score_error, score.size * (sum_depth(score_terms) + 4) * kFloat);
  }
  const size_t n = scores.size();
  const size_t dim = values[0].size();
  // Additions over tokens are in order; each page also rescales what it found.
  const double depth = static_cast<double>(n) + 8 * (static_cast<double>(n) / 64 + 2);
  Attended out;
  std::vector<double> weight(n);
  std::vector<double> error(n);  // relative, of each weight
  double total = 0;
  double total_error = 0;
  for (size_t j = 0; j < n; ++j) {
    const double below = largest - scores[j].value;
    weight[j] = std::exp(-below);
    error[j] = std::expm1(2 * score_error + (2 * below + depth + 8) * kFloat);
    total += weight[j];
    total_error += weight[j] * error[j];
  }
  double largest_value = 0;
  for (const std::span<const double> row : values) {
    for (const double x : row) largest_value = std::max(largest_value, std::abs(x));
  }
  out.value.assign(dim, 0);
  out.bound.assign(dim, static_cast<double>(n) * rounding.absolute * largest_value);
  for (size_t j = 0; j < n; ++j) {
    const double lost = weight[j] * (error[j] + rounding.relative);
    double* sum = out.value.data();
    double* bound = out.bound.data();
    for (const double x : values[j].first(dim)) {
      *sum++ += weight[j] * x;
      *bound++ += lost * std::abs(x);
    }
  }
  for (size_t c = 0; c < dim; ++c) {
    out.value[c] /= total;
    out.bound[c] = (out.bound[c] + total_error * std::abs(out.value[c])) / total;
  }
  return out;
}

// Row j of a sequence as attention reads it.
std::vector<double> stored_row(const ops::MlaAttention& args, int64_t row, int64_t j) {
  const KvPageLayout& layout = *args.kv.layout;
  const int64_t page = args.kv.table(row, j / 64);
  const std::byte* block = args.kv.pool + page * layout.page_bytes +
                           layout.blocks[static_cast<size_t>(args.layer)].offset;
  const auto slot = static_cast<int32_t>(j % 64);
  std::vector<double> out;
  for (int64_t i = 0; i < layout.values(); ++i) {
    if (layout.format == KvFormat::bf16) {
      Bf16 value;
      std::memcpy(&value, block + layout.row_offset(slot) + 2 * i, 2);
      out.push_back(at(value));
    } else {
      const auto code = static_cast<uint8_t>(block[layout.row_offset(slot) + i]);
      const bool is_latent = i < layout.kv_lora_rank;
      const float value =
          is_latent ? to_float(Fp8E4m3{code}) : static_cast<float>(static_cast<int8_t>(code));
      float scale;
      std::memcpy(&scale, block + layout.scale_offset(slot) + (is_latent ? 0 : 4), 4);
      out.push_back(double{value} * double{scale});
    }
  }
  return out;
}

// The two parts of a query, as one.
std::vector<double> scaled(View<const Bf16, 1> first, View<const Bf16, 1> second, float scale) {
  std::vector<double> out;
  for (int64_t i = 0; i < first[0]; ++i) out.push_back(at(first(i)) * double{scale});
  for (int64_t i = 0; i < second[0]; ++i) out.push_back(at(second(i)) * double{scale});
  return out;
}

}  // namespace

Expected reference(const ops::MlaAttention& args) {
  Expected out;
  const int64_t rank = args.q_latent[2];
  for (int64_t t = 0; t < args.q_latent[0]; ++t) {
    const bool is_in_chunk = args.tokens.row_tokens_max > 1 && t >= args.tokens.n_lone;
    const bool is_fp8 = args.kv.layout->format != KvFormat::bf16;
    WeightRounding rounding = is_fp8 ? kFloat16Weights : WeightRounding{};
    if (is_in_chunk) rounding.relative = kBf16;
    std::vector<std::vector<double>> rows;
    std::vector<std::span<const double>> latents;
    for (int64_t j = 0; j <= args.tokens.position(t); ++j) {
      rows.push_back(stored_row(args, args.tokens.row(t), j));
      latents.push_back(std::span(rows.back()).first(static_cast<size_t>(rank)));
    }
    for (int64_t h = 0; h < args.q_latent[1]; ++h) {
      const std::vector<double> query =
          scaled(args.q_latent.row(t).row(h), args.q_rope.row(t).row(h), args.scale);
      std::vector<Sum> scores(rows.size());
      for (size_t j = 0; j < rows.size(); ++j) scores[j].add(query, rows[j]);
      const Attended a = attend(scores, rank + args.q_rope[2], latents, rounding);
      for (size_t c = 0; c < a.value.size(); ++c) push(out, a.value[c], a.bound[c]);
    }
  }
  return out;
}

namespace {

double rounded(double x) { return at(to_bf16(static_cast<float>(x))); }

// w . latent of every row, each value rounded.
std::vector<std::vector<double>> expanded(View<const Bf16, 2> w,
                                          std::span<const std::vector<double>> latents) {
  std::vector<std::vector<double>> out(latents.size());
  for (int64_t d = 0; d < w[0]; ++d) {
    std::vector<double> weight;
    for (int64_t c = 0; c < w[1]; ++c) weight.push_back(at(w(d, c)));
    for (size_t j = 0; j < latents.size(); ++j) {
      Sum sum;
      sum.add(weight, latents[j]);
      out[j].push_back(rounded(sum.value));
    }
  }
  return out;
}

}  // namespace

Expected reference(const ops::MlaPrefillAttention& args) {
  Expected out;
  const ops::MlaAttention stored{.kv = args.kv, .tokens = args.tokens, .layer = args.layer};
  for (int64_t row = args.tokens.n_lone; row < args.kv.table[0]; ++row) {
    const int64_t end = args.tokens.row_begin(row + 1);
    if (end == args.tokens.row_begin(row)) continue;
    std::vector<std::vector<double>> rows;
    for (int64_t j = 0; j <= args.tokens.position(end - 1); ++j) {
      rows.push_back(stored_row(stored, row, j));
      for (double& x : rows.back()) x = rounded(x);
    }
    std::vector<std::vector<std::vector<double>>> keys;
    std::vector<std::vector<std::vector<double>>> values;
    for (int64_t h = 0; h < args.out[1]; ++h) {
      keys.push_back(expanded(args.w_uk.row(h), rows));
      for (size_t j = 0; j < rows.size(); ++j) {
        keys.back()[j].insert(keys.back()[j].end(), rows[j].begin() + args.w_uk[2], rows[j].end());
      }
      values.push_back(expanded(args.w_uv.row(h), rows));
    }
    for (int64_t t = args.tokens.row_begin(row); t < end; ++t) {
      const auto n_keys = static_cast<size_t>(args.tokens.position(t)) + 1;
      for (int64_t h = 0; h < args.out[1]; ++h) {
        const auto& key = keys[static_cast<size_t>(h)];
        std::vector<Sum> scores(n_keys);
        const std::vector<double> query =
            scaled(args.q_nope.row(t).row(h), args.q_rope.row(t).row(h), args.scale);
        for (size_t j = 0; j < n_keys; ++j) scores[j].add(query, key[j]);
        const auto& value = values[static_cast<size_t>(h)];
        const std::vector<std::span<const double>> attended(
            value.begin(), value.begin() + static_cast<int64_t>(n_keys));
        const Attended a = attend(scores, args.q_nope[2] + args.q_rope[2], attended, kBf16Weights);
        for (size_t v = 0; v < a.value.size(); ++v) push(out, a.value[v], a.bound[v]);
      }
    }
  }
  return out;
}

namespace {

struct Vector {
  std::vector<double> value;
  std::vector<double> error;  // bounds; none of an exact one
};

struct DecodedExpert {
  explicit DecodedExpert(const ops::ExpertWeights& expert)
      : gate(expert.gate), up(expert.up), down(expert.down) {}
  Decoded gate, up, down;
};

// weight . x rounded to bf16, with the errors of x carried through. INT4 weights may be off by
// `scaled_error` of their size.
Vector product(const WeightMatrix& weight, const Decoded& values, const Vector& x,
               double scaled_error) {
  const double weight_error = weight.format == WeightFormat::int4_group ? scaled_error : 0;
  Vector out;
  for (int64_t o = 0; o < weight.n_out; ++o) {
    Sum sum;
    sum.add(values.row(o), x.value);
    Sum carrying;
    if (!x.error.empty()) carrying.add(values.row(o), x.error);
    const double carried = carrying.size;
    out.value.push_back(sum.value);
    const double error =
        carried + (weight_error + (sum_depth(weight.n_in) + 4) * kFloat) * sum.size;
    out.error.push_back(error + kBf16 * (std::abs(sum.value) + error));
  }
  return out;
}

Vector expert_of(const ops::ExpertWeights& expert, const DecodedExpert& values,
                 View<const Bf16, 1> row, Activation asked, double scaled_error) {
  const Activation activation =
      expert.gate.format == WeightFormat::fp8_block128 ? asked : Activation::bf16;
  Vector x;
  x.value = activation_of(row, activation);
  constexpr double kSiluSlope = 1.1;  // the largest slope of silu is 1.0999
  const Vector gate = product(expert.gate, values.gate, x, scaled_error);
  const Vector up = product(expert.up, values.up, x, scaled_error);
  Vector inner;
  for (size_t i = 0; i < gate.value.size(); ++i) {
    const double s = silu(gate.value[i]);
    const double s_error = kSiluSlope * gate.error[i] * (1 + kBf16) + kBf16 * std::abs(s);
    const double value = s * up.value[i];
    const double error =
        s_error * (std::abs(up.value[i]) + up.error[i]) + std::abs(s) * up.error[i];
    inner.value.push_back(value);
    inner.error.push_back(error + kBf16 * (std::abs(value) + error));
  }
  if (activation == Activation::fp8_group128) {
    // The reference keeps the inner values; the op rounds them to e4m3, down to its subnormals.
    for (size_t begin = 0; begin < inner.value.size(); begin += 128) {
      const size_t end = std::min(begin + 128, inner.value.size());
      double amax = 0;
      for (size_t i = begin; i < end; ++i) {
        amax = std::max(amax, std::abs(inner.value[i]) + inner.error[i]);
      }
      for (size_t i = begin; i < end; ++i) {
        inner.error[i] += kFp8 * (std::abs(inner.value[i]) + inner.error[i]) + amax / 448 * 0x1p-10;
      }
    }
  }
  return product(expert.down, values.down, inner, scaled_error);
}

}  // namespace

Expected reference(const ops::MoeExperts& args, const ops::ExpertTable& table) {
  Expected out;
  if (args.activation == Activation::fp8_group128) out.cosine_loss += kFp8 * kFp8 / 2;
  const int64_t top_k = args.experts[1];
  const double scaled_error = args.x[0] > 128 ? kBf16 : 0;                     // ops/moe.h
  std::vector<std::optional<DecodedExpert>> decoded(table.routed.size() + 1);  // the shared last
  for (int64_t t = 0; t < args.x[0]; ++t) {
    std::vector<double> sum(static_cast<size_t>(args.x[1]));
    std::vector<double> error(sum.size());
    const auto add = [&](const ops::ExpertWeights& expert, size_t index, double weight) {
      if (!decoded[index]) decoded[index].emplace(expert);
      const Vector y =
          expert_of(expert, *decoded[index], args.x.row(t), args.activation, scaled_error);
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += weight * y.value[i];
        error[i] += std::abs(weight) *
                    (y.error[i] + static_cast<double>(top_k + 3) * kFloat * std::abs(y.value[i]));
      }
    };
    for (int64_t k = 0; k < top_k; ++k) {
      const auto index = static_cast<size_t>(args.experts(t, k));
      add(table.routed[index], index, double{args.weights(t, k)});
    }
    if (table.shared) add(*table.shared, table.routed.size(), 1);
    for (size_t i = 0; i < sum.size(); ++i) push(out, sum[i], error[i] * (1 + kBf16));
  }
  return out;
}

namespace {

struct CastRow {
  std::vector<uint8_t> codes;
  float scale;
};

CastRow cast_latent(View<const Bf16, 1> x) {
  float amax = 0;
  for (int64_t i = 0; i < x[0]; ++i) amax = std::max(amax, std::abs(to_float(x(i))));
  CastRow out{.scale = amax == 0 ? 1.0F : amax / 448.0F};
  for (int64_t i = 0; i < x[0]; ++i) {
    out.codes.push_back(to_fp8_e4m3(to_float(x(i)) / out.scale).bits);
  }
  return out;
}

CastRow cast_key(View<const Bf16, 1> x) {
  float most = 0x1p-100F;
  bool is_finite = true;
  for (int64_t i = 0; i < x[0]; ++i) {
    is_finite = is_finite && std::isfinite(to_float(x(i)));
    most = std::max(most, std::abs(to_float(x(i))));
  }
  CastRow out{.scale = is_finite ? most / 127.0F : std::numeric_limits<float>::quiet_NaN()};
  for (int64_t i = 0; i < x[0]; ++i) {
    const float integer = is_finite ? std::nearbyint(to_float(x(i)) * (127.0F / most)) : 0.0F;
    out.codes.push_back(static_cast<uint8_t>(static_cast<int8_t>(integer)));
  }
  return out;
}

}  // namespace

void append_reference(Cache* cache) {
  const KvPageLayout& layout = cache->layout;
  for (int64_t t = 0; t < cache->latent[0]; ++t) {
    const int32_t position = cache->all_position.view()(t);
    const int64_t page = cache->table.view()(cache->all_row.view()(t), position / 64);
    std::byte* block = cache->pool.data() + page * layout.page_bytes +
                       layout.blocks[static_cast<size_t>(cache->layer)].offset;
    const int32_t slot = position % 64;
    for (const int part : {0, 1}) {
      const auto& values = part == 0 ? std::as_const(cache->latent) : std::as_const(cache->rope);
      const View<const Bf16, 1> x = values.view().row(t);
      const int64_t begin = part == 0 ? 0 : layout.kv_lora_rank;
      std::byte* row = block + layout.row_offset(slot);
      if (layout.format == KvFormat::bf16) {
        std::memcpy(row + 2 * begin, x.data, 2 * static_cast<size_t>(x[0]));
        continue;
      }
      const CastRow cast = part == 0 ? cast_latent(x) : cast_key(x);
      std::memcpy(row + begin, cast.codes.data(), cast.codes.size());
      std::memcpy(block + layout.scale_offset(slot) + 4 * part, &cast.scale, 4);
    }
  }
}

}  // namespace quire::ops_test
