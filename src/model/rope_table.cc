#include "model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire {

namespace {

constexpr int64_t kPositionsPerCopy = 4096;

double magnitude(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

// The pair (as a real number) that makes `rotations` turns within the trained context.
double pair_of_rotations(const RopeConfig& rope, double rotations, int64_t rope_dim) {
  const double wavelengths =
      static_cast<double>(rope.yarn->original_max_positions) / (rotations * 2 * std::numbers::pi);
  return static_cast<double>(rope_dim) * std::log(wavelengths) / (2 * std::log(rope.theta));
}

}  // namespace

double yarn_cos_sin_factor(const YarnConfig& yarn) {
  if (yarn.attention_factor) return *yarn.attention_factor;
  if (yarn.mscale == 0 || yarn.mscale_all_dim == 0) return magnitude(yarn.factor, 1);
  return magnitude(yarn.factor, yarn.mscale) / magnitude(yarn.factor, yarn.mscale_all_dim);
}

double yarn_softmax_factor(const YarnConfig& yarn) {
  if (yarn.mscale_all_dim == 0) return 1;
  const double m = magnitude(yarn.factor, yarn.mscale_all_dim);
  return m * m;
}

std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t rope_dim) {
  std::vector<double> frequencies(static_cast<size_t>(rope_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double exponent = -2 * static_cast<double>(i) / static_cast<double>(rope_dim);
    frequencies[i] = std::pow(rope.theta, exponent);
  }
  if (!rope.yarn) return frequencies;
  // Pairs below `low` turn often enough within the trained context to be left alone; pairs from
  // `high` on are interpolated; between them, a ramp.
  double low = std::floor(pair_of_rotations(rope, rope.yarn->beta_fast, rope_dim));
  double high = std::ceil(pair_of_rotations(rope, rope.yarn->beta_slow, rope_dim));
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(rope_dim - 1));
  if (low == high) high += 0.001;  // as published: a step, not a division by zero
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / rope.yarn->factor * ramp + frequencies[i] * (1 - ramp);
  }
  return frequencies;
}

Result<RopeTable> RopeTable::make(Backend& backend, const RopeConfig& rope, int64_t rope_dim,
                                  int64_t n_positions) {
  const std::vector<double> frequencies = rope_frequencies(rope, rope_dim);
  const double factor = rope.yarn ? yarn_cos_sin_factor(*rope.yarn) : 1;
  const int64_t pairs = rope_dim / 2;
  const int64_t count = n_positions * pairs;
  RopeTable table;
  table.memory_ =
      TRY(allocate(backend, 2 * count * static_cast<int64_t>(sizeof(float)), "the rope table"));
  auto* cos_data = reinterpret_cast<float*>(table.memory_.data());
  auto* sin_data = cos_data + count;
  table.cos_ = view_of<const float>(cos_data, n_positions, pairs);
  table.sin_ = view_of<const float>(sin_data, n_positions, pairs);
  // A block of positions at a time: few copies, and no second table on the host.
  const int64_t block = std::min<int64_t>(n_positions, kPositionsPerCopy);
  std::vector<float> cos_block(static_cast<size_t>(block * pairs));
  std::vector<float> sin_block(static_cast<size_t>(block * pairs));
  for (int64_t begin = 0; begin < n_positions; begin += block) {
    const int64_t n = std::min(block, n_positions - begin);
    for (int64_t i = 0; i < n * pairs; ++i) {
      const auto at = static_cast<size_t>(i);
      const double angle =
          static_cast<double>(begin + i / pairs) * frequencies[at % frequencies.size()];
      cos_block[at] = static_cast<float>(std::cos(angle) * factor);
      sin_block[at] = static_cast<float>(std::sin(angle) * factor);
    }
    const auto count_now = static_cast<size_t>(n * pairs);
    backend.copy_in(reinterpret_cast<std::byte*>(cos_data + begin * pairs),
                    std::as_bytes(std::span(cos_block).first(count_now)));
    backend.copy_in(reinterpret_cast<std::byte*>(sin_data + begin * pairs),
                    std::as_bytes(std::span(sin_block).first(count_now)));
  }
  return table;
}

}  // namespace quire
