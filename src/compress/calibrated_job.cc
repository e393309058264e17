#include "compress/calibrated_job.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/bytes.h"
#include "base/text.h"
#include "compress/products.h"

namespace quire {

namespace {

constexpr int64_t kTokensAtOnce = 256;
constexpr size_t kHeldOutTokensMax = 1024;  // enough to judge by
constexpr int64_t kTile = 16;
// A thread's stack, pieces of what it reads, lists of tokens.
constexpr int64_t kThreadBytes = int64_t{32} << 20;
// Of the diagonal's mean. GPTQ's authors take the first; the more, the nearer to rounding. Which is
// best depends on how many tokens there were and on how much others are like them.
constexpr double kDampings[] = {0.01, 0.1, 1};

// Calls visit(buffer, how many elements it has at most) for those that a plan's maps fill.
template <class Visit>
void each_buffer(const CalibrationSizes& sizes, CalibrationBuffers* buffers, const Visit& visit) {
  visit(buffers->weights.values, sizes.weights);
  visit(buffers->carried.values, sizes.weights);
  for (Int4Codes* codes : {&buffers->codes, &buffers->best}) {
    visit(codes->codes, sizes.weights);
    visit(codes->scales, sizes.weights / sizes.group);
    visit(codes->error.values, sizes.weights);
  }
  visit(buffers->held_out, sizes.n_in * int64_t{kHeldOutTokensMax});
  visit(buffers->gate.values, sizes.gates);
  visit(buffers->up.values, sizes.gates);
  visit(buffers->tokens, kTokensAtOnce * sizes.hidden);
  visit(buffers->transposed_tokens, kTokensAtOnce * sizes.hidden);
  visit(buffers->inner, 2 * kTokensAtOnce * sizes.inner);
}

class CalibratedRun {
 public:
  CalibratedRun(const CalibratedJob& job, ReadBuffers* read, CalibrationBuffers* buffers)
      : at_(job), read_(*read), buffers_(*buffers) {}

  Result<TensorLoss> run();
  void pack(std::vector<std::byte>* packed, std::vector<std::byte>* scales) const;

 private:
  const ExpertInput& input() const { return *at_.job.input; }

  Status read_transposed(const StoredMatrix& matrix, TransposedWeights* out);
  void run_gates(int64_t n_tokens);
  Result<std::span<const float>> read_inputs(std::span<const int64_t> tokens);
  Status make_moments(const ActivationRecord::ExpertTokens& tokens);
  Result<OutputLoss> choose_codes();
  void try_dampings(OutputLoss* loss);
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

// [tokens.size(), n_in] of what the map is given, until the next call.
Result<std::span<const float>> CalibratedRun::read_inputs(std::span<const int64_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  buffers_.tokens.resize(static_cast<size_t>(n * at_.activations.hidden()));
  TRY_OK(at_.activations.read(input().layer, tokens, buffers_.tokens.data()));
  if (!input().is_inner()) return std::span<const float>(buffers_.tokens);
  run_gates(n);
  return std::span<const float>(buffers_.inner).first(static_cast<size_t>(n * at_.job.matrix.n_in));
}

// And what is held out beside them.
Status CalibratedRun::make_moments(const ActivationRecord::ExpertTokens& tokens) {
  const std::array<int64_t, 2> wanted = {input().layer, input().expert};
  if (!input().is_inner() && buffers_.moments_of == wanted) return {};
  buffers_.moments_of = {-1, -1};
  if (input().is_inner()) {
    TRY_OK(read_transposed(input().gate, &buffers_.gate));
    TRY_OK(read_transposed(input().up, &buffers_.up));
  }
  const int64_t n_in = at_.job.matrix.n_in;
  const auto each_block = [&](std::span<const int64_t> all, const auto& body) -> Status {
    for (size_t begin = 0; begin < all.size(); begin += kTokensAtOnce) {
      const size_t n = std::min<size_t>(kTokensAtOnce, all.size() - begin);
      body(TRY(read_inputs(all.subspan(begin, n))), static_cast<int64_t>(n),
           static_cast<int64_t>(begin));
    }
    return {};
  };
  buffers_.moments.reset(n_in);
  TRY_OK(each_block(tokens.fit, [&](std::span<const float> inputs, int64_t n, int64_t) {
    buffers_.moments.add(inputs.data(), n);
  }));
  const std::span<const int64_t> held_out(tokens.held_out.data(),
                                          std::min(kHeldOutTokensMax, tokens.held_out.size()));
  const auto n_held_out = static_cast<int64_t>(held_out.size());
  buffers_.held_out.resize(static_cast<size_t>(n_in * n_held_out));
  TRY_OK(each_block(held_out, [&](std::span<const float> inputs, int64_t n, int64_t begin) {
    transpose(inputs.data(), n, n_in, buffers_.held_out.data() + begin, n_held_out);
  }));
  if (!input().is_inner()) buffers_.moments_of = wanted;
  return {};
}

// Leaves the codes whose outputs are nearest, of these and of those that `codes` holds.
void CalibratedRun::try_dampings(OutputLoss* loss) {
  std::swap(buffers_.best, buffers_.codes);
  for (const double damping : kDampings) {
    if (!buffers_.moments.factor(damping)) continue;
    round_int4_for(buffers_.moments, buffers_.weights, at_.group, &buffers_.carried,
                   &buffers_.codes);
    const double square = output_square(buffers_.held_out, buffers_.codes.error);
    if (!(square < loss->kept)) continue;
    loss->kept = square;
    loss->damping = damping;
    std::swap(buffers_.best, buffers_.codes);
  }
  std::swap(buffers_.best, buffers_.codes);
}

Result<OutputLoss> CalibratedRun::choose_codes() {
  const ActivationRecord::ExpertTokens tokens =
      at_.activations.tokens_of(input().layer, input().expert);
  OutputLoss loss{.n_tokens = static_cast<int64_t>(tokens.fit.size() + tokens.held_out.size()),
                  .n_held_out = static_cast<int64_t>(tokens.held_out.size())};
  TRY_OK(read_transposed(at_.job.matrix, &buffers_.weights));
  round_int4(buffers_.weights, at_.group, &buffers_.codes);
  for (const float error : buffers_.codes.error.values) {
    loss.rtn_weights += static_cast<double>(error) * static_cast<double>(error);
  }
  if (tokens.held_out.empty()) return loss;
  TRY_OK(make_moments(tokens));
  loss.output = output_square(buffers_.held_out, buffers_.weights);
  loss.rtn = output_square(buffers_.held_out, buffers_.codes.error);
  loss.kept = loss.rtn;
  if (has_enough_tokens(loss)) try_dampings(&loss);
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

CalibrationSizes CalibrationSizes::of(const CompressPlan& plan) {
  CalibrationSizes out{.group = plan.options.group};
  for (const OutputShard& shard : plan.shards) {
    for (const CompressJob& job : shard.jobs) {
      if (!job.input) continue;
      const int64_t n_in = job.matrix.n_in;
      out.n_in = std::max(out.n_in, n_in);
      out.weights = std::max(out.weights, n_in * round_up(job.matrix.n_out, kFitLanes));
      int64_t& tokens = job.input->is_inner() ? out.inner : out.hidden;
      tokens = std::max(tokens, n_in);
      if (!job.input->is_inner()) continue;
      const StoredMatrix& gate = job.input->gate;
      out.hidden = std::max(out.hidden, gate.n_in);
      out.gates = std::max(out.gates, gate.n_in * round_up(gate.n_out, kFitLanes));
    }
  }
  return out;
}

int64_t CalibrationSizes::thread_bytes() const {
  if (n_in == 0) return 0;
  int64_t bytes = kThreadBytes;
  bytes += 2 * n_in * n_in * int64_t{sizeof(float)};               // moments and their factor
  bytes += weights / 2 + weights / group * int64_t{sizeof(Bf16)};  // what is written
  CalibrationBuffers none;
  each_buffer(*this, &none,
              [&]<class T>(const std::vector<T>&, int64_t n) { bytes += n * int64_t{sizeof(T)}; });
  return bytes;
}

void CalibrationBuffers::reserve(const CalibrationSizes& sizes) {
  moments.reserve(sizes.n_in);
  each_buffer(sizes, this, [](auto& buffer, int64_t n) { buffer.reserve(static_cast<size_t>(n)); });
}

Result<int> threads_that_fit(const CompressPlan& plan, int n_threads, int64_t available) {
  const int64_t needed = CalibrationSizes::of(plan).thread_bytes();
  if (needed == 0) return n_threads;
  if (needed <= available) {
    return static_cast<int>(std::min<int64_t>(n_threads, available / needed));
  }
  return resource_exhausted(format(
      "calibrating an expert takes %s of memory (%lld bytes), and %s (%lld bytes) are "
      "available: free some, raise the limit of the process (RLIMIT_DATA, RLIMIT_AS) or of its "
      "control group, or take --method rtn",
      human_bytes(needed).c_str(), static_cast<long long>(needed), human_bytes(available).c_str(),
      static_cast<long long>(available)));
}

}  // namespace quire
