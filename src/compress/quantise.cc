#include "compress/quantise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/bytes.h"
#include "compress/lanes.h"
#include "ops/weight_matrix.h"
#include "tensor/convert.h"

namespace quire {

namespace {

void add_lanes(const FitSums& sums, int64_t row, int64_t first_group, int64_t n_lanes,
               QuantisationError* error) {
  for (int64_t lane = 0; lane < n_lanes; ++lane) {
    const auto i = static_cast<size_t>(lane);
    error->add({static_cast<double>(sums.error[i]), static_cast<double>(sums.weight[i]),
                static_cast<double>(sums.value[i]), row, first_group + lane});
  }
}

// Calls body(row, first group, lanes, gathered weights) for every sixteen groups.
template <class Body>
void each_fit(const DecodedRows& rows, int64_t group, const Body& body) {
  alignas(64) float gathered[kInt4GroupMax * kFitLanes];
  const int64_t n_groups = rows.n_in / group;
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    for (int64_t first = 0; first < n_groups; first += kFitLanes) {
      const int64_t n_lanes = std::min(kFitLanes, n_groups - first);
      gather_groups(rows.row(row) + first * group, group, n_lanes, gathered);
      body(row, first, n_lanes, gathered);
    }
  }
}

struct Block {
  int64_t row, n_rows;        // of the rows at hand
  int64_t column, n_columns;  // inputs
};

// What FP8 blocks and rows of BF16 lost: lane after lane.
void add_group(const FitSums& sums, int64_t row, int64_t index, QuantisationError* error) {
  QuantisationError::Group group{0, 0, 0, row, index};
  for (size_t lane = 0; lane < kFitLanes; ++lane) {
    group.error += static_cast<double>(sums.error[lane]);
    group.weight += static_cast<double>(sums.weight[lane]);
    group.value += static_cast<double>(sums.value[lane]);
  }
  error->add(group);
}

void quantise_block(const DecodedRows& rows, const Block& block, std::byte* codes, float* scale,
                    QuantisationError* error) {
  float largest = 0;
  for (int64_t row = block.row; row < block.row + block.n_rows; ++row) {
    const float* weights = rows.row(row) + block.column;
    largest = std::max(largest, largest_magnitude(weights, block.n_columns));
  }
  *scale = largest / kFp8Max;
  if (!(*scale >= std::numeric_limits<float>::min())) *scale = 1;
  FitSums sums{};
  float values[kFp8Block];
  for (int64_t row = block.row; row < block.row + block.n_rows; ++row) {
    const float* weights = rows.row(row) + block.column;
    auto* to = reinterpret_cast<Fp8E4m3*>(codes) + row * rows.n_in + block.column;
    float_to_fp8(weights, block.n_columns, *scale, to);
    fp8_to_float(to, block.n_columns, *scale, values);
    add_squares(weights, values, block.n_columns, &sums);
  }
  add_group(sums, rows.first_row + block.row, block.column / kFp8Block, error);
}

}  // namespace

double QuantisationError::relative() const { return weight > 0 ? std::sqrt(error / weight) : 0; }

double QuantisationError::cosine() const {
  if (!(weight > 0) || !(value > 0)) return 1;
  // w.v = (w.w + v.v - |w - v|^2) / 2
  return (weight + value - error) / 2 / std::sqrt(weight * value);
}

void QuantisationError::add(const Group& group) {
  error += group.error;
  weight += group.weight;
  value += group.value;
  if (group.error <= worst * worst * group.weight) return;
  worst = std::sqrt(group.error / group.weight);
  worst_row = group.row;
  worst_group = group.index;
}

void QuantisationError::merge(const QuantisationError& later) {
  error += later.error;
  weight += later.weight;
  value += later.value;
  if (later.worst <= worst) return;
  worst = later.worst;
  worst_row = later.worst_row;
  worst_group = later.worst_group;
}

int64_t decode_rows(const StoredRows& rows, float* out) {
  CHECK(rows.dtype == Dtype::bf16 || rows.dtype == Dtype::f8_e4m3);
  const int64_t scale_columns = div_up(rows.n_in, kFp8Block);
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    float* to = out + row * rows.n_in;
    if (rows.dtype == Dtype::bf16) {
      const auto* from = reinterpret_cast<const Bf16*>(rows.values.data()) + row * rows.n_in;
      bf16_to_float(from, rows.n_in, to);
    } else {
      const auto* from = reinterpret_cast<const Fp8E4m3*>(rows.values.data()) + row * rows.n_in;
      const float* scales =
          rows.block_scales.data() + (rows.first_row + row) / kFp8Block * scale_columns;
      for (int64_t begin = 0; begin < rows.n_in; begin += kFp8Block) {
        const int64_t n = std::min(kFp8Block, rows.n_in - begin);
        fp8_to_float(from + begin, n, scales[begin / kFp8Block], to + begin);
      }
    }
    // While the row is in the first cache.
    const int64_t bad = find_not_finite({to, static_cast<size_t>(rows.n_in)});
    if (bad >= 0) return row * rows.n_in + bad;
  }
  return -1;
}

int64_t find_not_finite(std::span<const float> values) {
  // All bits of the exponent set: an infinity or NaN. Whole pieces first, which vectorise.
  constexpr uint32_t kExponent = 0x7f800000U;
  constexpr size_t kPiece = 1024;
  for (size_t begin = 0; begin < values.size(); begin += kPiece) {
    const size_t end = std::min(begin + kPiece, values.size());
    uint32_t n_bad = 0;
    for (size_t i = begin; i < end; ++i) {
      n_bad += (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent ? 1U : 0U;
    }
    if (n_bad == 0) continue;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) return static_cast<int64_t>(i);
    }
  }
  return -1;
}

void quantise_int4(const DecodedRows& rows, int64_t group, std::byte* packed, std::byte* scales,
                   QuantisationError* error) {
  CHECK((group == 32 || group == kInt4GroupMax) && rows.n_in % group == 0);
  const int64_t n_groups = rows.n_in / group;
  Int4Fit fit;
  each_fit(rows, group, [&](int64_t row, int64_t first, int64_t n_lanes, const float* gathered) {
    fit_int4(gathered, group, &fit);
    scatter_nibbles(fit.codes.data(), group, n_lanes,
                    packed + (row * n_groups + first) * group / 2);
    std::memcpy(scales + (row * n_groups + first) * int64_t{sizeof(Bf16)}, fit.scale.data(),
                static_cast<size_t>(n_lanes) * sizeof(Bf16));
    add_lanes(fit.sums, rows.first_row + row, first, n_lanes, error);
  });
}

void quantise_fp8(const DecodedRows& rows, std::byte* codes, std::byte* scales,
                  QuantisationError* error) {
  CHECK(rows.first_row % kFp8Block == 0);
  for (int64_t row = 0; row < rows.n_rows; row += kFp8Block) {
    for (int64_t column = 0; column < rows.n_in; column += kFp8Block) {
      const Block block{.row = row,
                        .n_rows = std::min(kFp8Block, rows.n_rows - row),
                        .column = column,
                        .n_columns = std::min(kFp8Block, rows.n_in - column)};
      float scale = 1;
      quantise_block(rows, block, codes, &scale, error);
      std::memcpy(scales, &scale, sizeof scale);
      scales += sizeof scale;
    }
  }
}

void quantise_nvfp4(const DecodedRows& rows, float tensor_scale, std::byte* packed,
                    std::byte* scales, QuantisationError* error) {
  CHECK(rows.n_in % kNvfp4Group == 0);
  const int64_t n_groups = rows.n_in / kNvfp4Group;
  Nvfp4Fit fit;
  each_fit(rows, kNvfp4Group,
           [&](int64_t row, int64_t first, int64_t n_lanes, const float* gathered) {
             fit_nvfp4(gathered, tensor_scale, &fit);
             const int64_t at = row * n_groups + first;
             scatter_nibbles(fit.codes.data(), kNvfp4Group, n_lanes, packed + at * kNvfp4Group / 2);
             std::memcpy(scales + at, fit.scale.data(), static_cast<size_t>(n_lanes));
             add_lanes(fit.sums, rows.first_row + row, first, n_lanes, error);
           });
}

void round_to_bf16(const DecodedRows& rows, std::byte* out, QuantisationError* error) {
  std::vector<float> values(static_cast<size_t>(rows.n_in));
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    auto* to = reinterpret_cast<Bf16*>(out) + row * rows.n_in;
    float_to_bf16(rows.row(row), rows.n_in, to);
    bf16_to_float(to, rows.n_in, values.data());
    FitSums sums{};
    add_squares(rows.row(row), values.data(), rows.n_in, &sums);
    add_group(sums, rows.first_row + row, 0, error);
  }
}

}  // namespace quire
