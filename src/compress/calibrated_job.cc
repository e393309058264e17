#include "compress/calibrated_job.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "compress/products.h"

namespace quire {

namespace {

constexpr int64_t kTokensAtOnce = 256;
constexpr int64_t kTile = 16;
// Of the diagonal's mean, as GPTQ's authors have it; ten times more where float32 finds no factor.
constexpr double kDamping = 0.01;
constexpr double kDampingMax = 1;

class CalibratedRun {
 public:
  CalibratedRun(const CalibratedJob& job, ReadBuffers* read, CalibrationBuffers* buffers)
      : at_(job), read_(*read), buffers_(*buffers) {}

  Result<TensorLoss> run();
  void pack(std::vector<std::byte>* packed, std::vector<std::byte>* scales) const;

 private:
  const ExpertInput& input() const { return *at_.job.input; }

  Status read_transposed(const StoredMatrix& matrix, TransposedWeights* out);
  Status add_tokens(std::span<const int64_t> tokens);
  void run_gates(int64_t n_tokens);
  Result<bool> make_moments(std::span<const int64_t> tokens);
  Result<OutputLoss> choose_codes();
  double error_square() const;
  QuantisationError weight_error() const;

  const CalibratedJob& at_;
  ReadBuffers& read_;
  CalibrationBuffers& buffers_;
};

// out[column, row] = in[row, column]
void transpose(const float* in, int64_t n_rows, int64_t n_columns, float* out, int64_t out_stride) {
  for (int64_t row0 = 0; row0 < n_rows; row0 += kTile) {
    const int64_t row_end = std::min(row0 + kTile, n_rows);
    for (int64_t column = 0; column < n_columns; ++column) {
      float* to = out + column * out_stride;
      for (int64_t row = row0; row < row_end; ++row) to[row] = in[row * n_columns + column];
    }
  }
}

Status CalibratedRun::read_transposed(const StoredMatrix& matrix, TransposedWeights* out) {
  out->reset(matrix.n_in, matrix.n_out);
  MatrixReader reader = TRY(MatrixReader::open(matrix, at_.inputs, &read_));
  return reader.each_piece([&](const DecodedRows& rows) -> Status {
    transpose(rows.values.data(), rows.n_rows, rows.n_in, out->input(0) + rows.first_row,
              out->n_lanes);
    return {};
  });
}

// tokens, [n, hidden], become what `down` is given: bf16(silu(gate x) * (up x)), as
// ops::moe_experts rounds it.
void CalibratedRun::run_gates(int64_t n_tokens) {
  const int64_t hidden = buffers_.gate.n_in;
  const int64_t inner = buffers_.gate.n_lanes;
  buffers_.transposed_tokens.resize(static_cast<size_t>(hidden * n_tokens));
  transpose(buffers_.tokens.data(), n_tokens, hidden, buffers_.transposed_tokens.data(), n_tokens);
  buffers_.inner.assign(static_cast<size_t>(2 * n_tokens * inner), 0.0F);
  float* gate = buffers_.inner.data();
  float* up = gate + n_tokens * inner;
  for (const auto& [weights, out] : {std::pair(&buffers_.gate, gate), {&buffers_.up, up}}) {
    add_products({.a = buffers_.transposed_tokens.data(),
                  .b = weights->input(0),
                  .c = out,
                  .a_stride = n_tokens,
                  .b_stride = inner,
                  .c_stride = inner,
                  .n_terms = hidden,
                  .n_rows = n_tokens,
                  .n_columns = inner});
  }
  for (int64_t i = 0; i < n_tokens * inner; ++i) {
    const auto g = static_cast<double>(gate[i]);
    const auto silu = static_cast<float>(g / (1 + std::exp(-g)));
    gate[i] = to_float(to_bf16(silu * up[i]));
  }
}

Status CalibratedRun::add_tokens(std::span<const int64_t> tokens) {
  const int64_t hidden = at_.activations.hidden();
  const auto n = static_cast<int64_t>(tokens.size());
  buffers_.tokens.resize(static_cast<size_t>(n * hidden));
  TRY_OK(at_.activations.read(input().layer, tokens, buffers_.tokens.data()));
  if (input().is_inner()) {
    run_gates(n);
    buffers_.moments.add(buffers_.inner.data(), n);
  } else {
    buffers_.moments.add(buffers_.tokens.data(), n);
  }
  return {};
}

// Whether there is a factor to work with.
Result<bool> CalibratedRun::make_moments(std::span<const int64_t> tokens) {
  const std::array<int64_t, 2> wanted = {input().layer, input().expert};
  if (!input().is_inner() && buffers_.moments_of == wanted) return true;
  buffers_.moments_of = {-1, -1};
  if (input().is_inner()) {
    TRY_OK(read_transposed(input().gate, &buffers_.gate));
    TRY_OK(read_transposed(input().up, &buffers_.up));
  }
  for (double damping = kDamping; damping <= kDampingMax; damping *= 10) {
    buffers_.moments.reset(at_.job.matrix.n_in);
    for (size_t begin = 0; begin < tokens.size(); begin += kTokensAtOnce) {
      TRY_OK(add_tokens(
          tokens.subspan(begin, std::min<size_t>(kTokensAtOnce, tokens.size() - begin))));
    }
    if (!buffers_.moments.factor(damping)) continue;
    if (!input().is_inner()) buffers_.moments_of = wanted;
    return true;
  }
  return false;
}

double CalibratedRun::error_square() const {
  double sum = 0;
  for (const float error : buffers_.codes.error.values) {
    sum += static_cast<double>(error) * static_cast<double>(error);
  }
  return sum;
}

// Rounds to nearest, then by GPTQ, and leaves the codes whose outputs are nearer.
Result<OutputLoss> CalibratedRun::choose_codes() {
  const std::vector<int64_t> tokens = at_.activations.tokens_of(input().layer, input().expert);
  OutputLoss loss{.n_tokens = static_cast<int64_t>(tokens.size())};
  const bool has_moments = !tokens.empty() && TRY(make_moments(tokens));
  TRY_OK(read_transposed(at_.job.matrix, &buffers_.weights));
  round_int4(buffers_.weights, at_.group, &buffers_.codes);
  loss.rtn_weights = error_square();
  if (!has_moments) return loss;
  loss.output = output_square(buffers_.moments, buffers_.weights);
  loss.rtn = output_square(buffers_.moments, buffers_.codes.error);
  if (loss.n_tokens < kCalibrationTokensMin) return loss;
  round_int4_for(buffers_.moments, buffers_.weights, at_.group, &buffers_.carried, &buffers_.codes);
  loss.gptq = output_square(buffers_.moments, buffers_.codes.error);
  loss.is_gptq = loss.gptq < loss.rtn;
  if (!loss.is_gptq) round_int4(buffers_.weights, at_.group, &buffers_.codes);
  return loss;
}

QuantisationError CalibratedRun::weight_error() const {
  QuantisationError out;
  const TransposedWeights& weights = buffers_.weights;
  const TransposedWeights& errors = buffers_.codes.error;
  std::vector<QuantisationError::Group> groups;
  for (int64_t first = 0; first < weights.n_in; first += at_.group) {
    groups.assign(static_cast<size_t>(weights.n_out), {0, 0, 0, 0, first / at_.group});
    for (int64_t i = first; i < first + at_.group; ++i) {
      for (int64_t row = 0; row < weights.n_out; ++row) {
        QuantisationError::Group& group = groups[static_cast<size_t>(row)];
        const auto weight = static_cast<double>(weights.input(i)[row]);
        const auto error = static_cast<double>(errors.input(i)[row]);
        group.row = row;
        group.error += error * error;
        group.weight += weight * weight;
        group.value += (weight - error) * (weight - error);
      }
    }
    for (const QuantisationError::Group& group : groups) out.add(group);
  }
  return out;
}

void CalibratedRun::pack(std::vector<std::byte>* packed, std::vector<std::byte>* scales) const {
  const TransposedWeights& weights = buffers_.weights;
  const int64_t n_in = weights.n_in;
  const int64_t n_groups = n_in / at_.group;
  packed->resize(static_cast<size_t>(weights.n_out * n_in / 2));
  scales->resize(static_cast<size_t>(weights.n_out * n_groups) * sizeof(Bf16));
  for (int64_t row0 = 0; row0 < weights.n_out; row0 += kTile) {
    const int64_t row_end = std::min(row0 + kTile, weights.n_out);
    for (int64_t i = 0; i < n_in; i += 2) {
      const uint8_t* low = buffers_.codes.codes.data() + i * weights.n_lanes;
      const uint8_t* high = low + weights.n_lanes;
      for (int64_t row = row0; row < row_end; ++row) {
        (*packed)[static_cast<size_t>((row * n_in + i) / 2)] =
            static_cast<std::byte>(low[row] | high[row] << 4);
      }
    }
    for (int64_t row = row0; row < row_end; ++row) {
      for (int64_t group = 0; group < n_groups; ++group) {
        const Bf16 scale =
            buffers_.codes.scales[static_cast<size_t>(group * weights.n_lanes + row)];
        std::memcpy(scales->data() + static_cast<size_t>(row * n_groups + group) * sizeof scale,
                    &scale, sizeof scale);
      }
    }
  }
}

Result<TensorLoss> CalibratedRun::run() {
  const OutputLoss loss = TRY(choose_codes());
  return TensorLoss{.weights = weight_error(), .outputs = loss};
}

}  // namespace

Result<TensorLoss> run_calibrated_job(const CalibratedJob& job, ReadBuffers* read,
                                      CalibrationBuffers* buffers, std::vector<std::byte>* packed,
                                      std::vector<std::byte>* scales) {
  CalibratedRun run(job, read, buffers);
  TensorLoss loss = TRY(run.run());
  run.pack(packed, scales);
  return loss;
}

int64_t calibrated_bytes(const CompressPlan& plan) {
  int64_t most = 0;
  for (const OutputShard& shard : plan.shards) {
    for (const CompressJob& job : shard.jobs) {
      if (!job.input) continue;
      constexpr auto kFloat = int64_t{sizeof(float)};
      const StoredMatrix& matrix = job.matrix;
      const int64_t lanes = round_up(matrix.n_out, kFitLanes);
      int64_t bytes = matrix.n_in * matrix.n_in * kFloat;  // moments
      bytes += matrix.n_in * lanes * (3 * kFloat + 1);     // weights, carried, error, codes
      bytes += matrix.n_in * matrix.n_out;                 // packed, scales
      if (job.input->is_inner()) {
        // The maps before it, and tokens on their way through them.
        bytes += 2 * job.input->gate.n_in * matrix.n_in * kFloat;
        bytes += 2 * kTokensAtOnce * (job.input->gate.n_in + matrix.n_in) * kFloat;
      } else {
        bytes += kTokensAtOnce * matrix.n_in * kFloat;
      }
      most = std::max(most, bytes);
    }
  }
  return most;
}

}  // namespace quire
