#include "compress/job.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "ops/weight_matrix.h"
#include "tensor/convert.h"

namespace quire {

namespace {

constexpr int64_t kCopyBytes = int64_t{8} << 20;

// Activations of a format that rounds them too are scaled by this before they are: neutral, since
// their own groups have scales. Publishers calibrate it.
constexpr float kInputScale = 1;

class JobRun {
 public:
  JobRun(const JobContext& context, JobBuffers* buffers) : at_(context), buffers_(*buffers) {}

  Result<TensorLoss> run();

 private:
  const CompressJob& job() const { return at_.job; }
  const TensorEntry& array(size_t i) const { return at_.shard.arrays[job().arrays[i]]; }

  Status write(size_t array_index, int64_t offset, std::span<const std::byte> bytes) const;
  Status copy() const;
  Status convert_rows(const DecodedRows& rows);
  Result<TensorLoss> calibrated();
  Status write_rows(size_t array_index, int64_t first_row, int64_t row_bytes,
                    const std::vector<std::byte>& rows) const;
  static Result<float> largest_weight(MatrixReader* weights);
  Status write_constants() const;

  const JobContext& at_;
  JobBuffers& buffers_;
  float tensor_scale_ = 1;  // NVFP4
  QuantisationError error_;
};

Status JobRun::write(size_t array_index, int64_t offset, std::span<const std::byte> bytes) const {
  Status status = at_.output.write_at(array(array_index).offset + offset, bytes);
  return status.ok() ? status : about_tensor(*job().matrix.values, std::move(status).error());
}

Status JobRun::copy() const {
  const CheckpointTensor& tensor = *job().matrix.values;
  for (int64_t begin = 0; begin < tensor.entry.bytes; begin += kCopyBytes) {
    const int64_t n = std::min(kCopyBytes, tensor.entry.bytes - begin);
    buffers_.read.in.resize(static_cast<size_t>(n));
    TRY_OK(read_tensor(tensor, at_.inputs, begin, buffers_.read.in));
    TRY_OK(write(0, begin, buffers_.read.in));
  }
  return {};
}

Status JobRun::write_rows(size_t array_index, int64_t first_row, int64_t row_bytes,
                          const std::vector<std::byte>& rows) const {
  return write(array_index, first_row * row_bytes, rows);
}

Status JobRun::convert_rows(const DecodedRows& rows) {
  const int64_t n = rows.n_rows;
  const int64_t n_in = rows.n_in;
  std::vector<std::byte>& out = buffers_.out;
  std::vector<std::byte>& scales = buffers_.out_scales;
  int64_t row_bytes = 0;
  int64_t scale_bytes = 0;  // a row; of FP8 a block of rows
  switch (job().conversion) {
    case Conversion::copy:
      CHECK(false);
      return {};
    case Conversion::to_bf16:
      row_bytes = n_in * int64_t{sizeof(Bf16)};
      out.resize(static_cast<size_t>(n * row_bytes));
      round_to_bf16(rows, out.data(), &error_);
      return write_rows(0, rows.first_row, row_bytes, out);
    case Conversion::to_int4: {
      const int64_t group = at_.plan.options.group;
      row_bytes = n_in / 2;
      scale_bytes = n_in / group * int64_t{sizeof(Bf16)};
      out.resize(static_cast<size_t>(n * row_bytes));
      scales.resize(static_cast<size_t>(n * scale_bytes));
      quantise_int4(rows, group, out.data(), scales.data(), &error_);
      break;
    }
    case Conversion::to_fp8:
      row_bytes = n_in;
      scale_bytes = div_up(n_in, kFp8Block) * int64_t{sizeof(float)};
      out.resize(static_cast<size_t>(n * row_bytes));
      scales.resize(static_cast<size_t>(div_up(n, kFp8Block) * scale_bytes));
      quantise_fp8(rows, out.data(), scales.data(), &error_);
      TRY_OK(write_rows(0, rows.first_row, row_bytes, out));
      return write_rows(1, rows.first_row / kFp8Block, scale_bytes, scales);
    case Conversion::to_nvfp4:
      row_bytes = n_in / 2;
      scale_bytes = n_in / kNvfp4Group;
      out.resize(static_cast<size_t>(n * row_bytes));
      scales.resize(static_cast<size_t>(n * scale_bytes));
      quantise_nvfp4(rows, tensor_scale_, out.data(), scales.data(), &error_);
      break;
  }
  TRY_OK(write_rows(0, rows.first_row, row_bytes, out));
  return write_rows(1, rows.first_row, scale_bytes, scales);
}

Result<float> JobRun::largest_weight(MatrixReader* weights) {
  float largest = 0;
  TRY_OK(weights->each_piece([&](const DecodedRows& rows) -> Status {
    const auto n = static_cast<int64_t>(rows.values.size());
    largest = std::max(largest, largest_magnitude(rows.values.data(), n));
    return {};
  }));
  return largest;
}

// Arrays that say the same of the whole tensor.
Status JobRun::write_constants() const {
  if (job().conversion == Conversion::to_int4) {
    const int64_t shape[] = {job().matrix.n_out, job().matrix.n_in};
    return write(2, 0, std::as_bytes(std::span(shape)));
  }
  if (job().conversion == Conversion::to_nvfp4) {
    TRY_OK(write(2, 0, std::as_bytes(std::span(&tensor_scale_, 1))));
    return write(3, 0, std::as_bytes(std::span(&kInputScale, 1)));
  }
  return {};
}

Result<TensorLoss> JobRun::calibrated() {
  CHECK(at_.activations != nullptr && job().conversion == Conversion::to_int4);
  TensorLoss loss = TRY(run_calibrated_job({.job = job(),
                                            .group = at_.plan.options.group,
                                            .activations = *at_.activations,
                                            .inputs = at_.inputs},
                                           &buffers_.read, &buffers_.calibration, &buffers_.out,
                                           &buffers_.out_scales));
  TRY_OK(write(0, 0, buffers_.out));
  TRY_OK(write(1, 0, buffers_.out_scales));
  TRY_OK(write_constants());
  return loss;
}

Result<TensorLoss> JobRun::run() {
  if (job().conversion == Conversion::copy) {
    TRY_OK(copy());
    return TensorLoss{};
  }
  if (job().input) return calibrated();
  MatrixReader weights = TRY(MatrixReader::open(job().matrix, at_.inputs, &buffers_.read));
  if (job().conversion == Conversion::to_nvfp4) {
    tensor_scale_ = nvfp4_tensor_scale(TRY(largest_weight(&weights)));
  }
  TRY_OK(weights.each_piece([&](const DecodedRows& rows) { return convert_rows(rows); }));
  TRY_OK(write_constants());
  return TensorLoss{.weights = error_, .outputs = std::nullopt};
}

}  // namespace

Result<TensorLoss> run_job(const JobContext& context, JobBuffers* buffers) {
  return JobRun(context, buffers).run();
}

}  // namespace quire
