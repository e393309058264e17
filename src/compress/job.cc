#include "compress/job.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "ops/weight_matrix.h"

namespace quire {

namespace {

// Of values as stored: large enough for a disk, small enough to stay near the core.
constexpr int64_t kPieceBytes = int64_t{1} << 20;
constexpr int64_t kCopyBytes = int64_t{8} << 20;

// Activations of a format that rounds them too are scaled by this before they are: neutral, since
// their own groups have scales. Publishers calibrate it.
constexpr float kInputScale = 1;

class JobRun {
 public:
  JobRun(const JobContext& context, JobBuffers* buffers) : at_(context), buffers_(*buffers) {}

  Result<QuantisationError> run();

 private:
  const CompressJob& job() const { return at_.job; }
  const TensorEntry& array(size_t i) const { return at_.shard.arrays[job().arrays[i]]; }
  const InputFile& file_of(const CheckpointTensor& tensor) const {
    return at_.inputs[static_cast<size_t>(tensor.shard)];
  }
  Error damaged(const CheckpointTensor& tensor, const std::string& what) const {
    return corruption(format("%s: tensor \"%s\": %s", file_of(tensor).path().c_str(),
                             excerpt(tensor.entry.name).c_str(), what.c_str()));
  }
  // A failure of a disk, told with the tensor that it hit.
  Error about(const CheckpointTensor& tensor, Error error) const {
    error.message += format(" (tensor \"%s\")", excerpt(tensor.entry.name).c_str());
    return error;
  }

  Status read(const CheckpointTensor& tensor, int64_t offset, std::span<std::byte> out) const;
  Status write(size_t array_index, int64_t offset, std::span<const std::byte> bytes) const;
  Status copy() const;
  Status read_scales();
  Result<DecodedRows> read_rows(int64_t first, int64_t n);
  Status convert_rows(const DecodedRows& rows);
  Status write_rows(size_t array_index, int64_t first_row, int64_t row_bytes,
                    const std::vector<std::byte>& rows) const;
  Result<float> largest_weight();
  Status write_constants() const;
  int64_t rows_at_once() const;

  const JobContext& at_;
  JobBuffers& buffers_;
  float tensor_scale_ = 1;  // NVFP4
  QuantisationError error_;
};

Status JobRun::read(const CheckpointTensor& tensor, int64_t offset,
                    std::span<std::byte> out) const {
  Status status = file_of(tensor).read_at(tensor.entry.offset + offset, out);
  return status.ok() ? status : about(tensor, std::move(status).error());
}

Status JobRun::write(size_t array_index, int64_t offset, std::span<const std::byte> bytes) const {
  Status status = at_.output.write_at(array(array_index).offset + offset, bytes);
  return status.ok() ? status : about(*job().values, std::move(status).error());
}

Status JobRun::copy() const {
  const CheckpointTensor& tensor = *job().values;
  for (int64_t begin = 0; begin < tensor.entry.bytes; begin += kCopyBytes) {
    const int64_t n = std::min(kCopyBytes, tensor.entry.bytes - begin);
    buffers_.in.resize(static_cast<size_t>(n));
    TRY_OK(read(tensor, begin, buffers_.in));
    TRY_OK(write(0, begin, buffers_.in));
  }
  return {};
}

Status JobRun::read_scales() {
  if (job().scales == nullptr) return {};
  const CheckpointTensor& scales = *job().scales;
  buffers_.scales.resize(static_cast<size_t>(scales.entry.bytes) / sizeof(float));
  TRY_OK(read(scales, 0, std::as_writable_bytes(std::span(buffers_.scales))));
  const int64_t bad = find_not_finite(buffers_.scales);
  if (bad < 0) return {};
  return damaged(scales, format("scale %lld is not a finite number", static_cast<long long>(bad)));
}

// Whole blocks of 128 rows, so that FP8 scales of a piece are its own.
int64_t JobRun::rows_at_once() const {
  const int64_t row_bytes = job().n_in * size_of(job().values->entry.dtype);
  return round_up(std::max<int64_t>(kPieceBytes / row_bytes, 1), kFp8Block);
}

Result<DecodedRows> JobRun::read_rows(int64_t first, int64_t n) {
  const CheckpointTensor& tensor = *job().values;
  const int64_t row_bytes = job().n_in * size_of(tensor.entry.dtype);
  buffers_.in.resize(static_cast<size_t>(n * row_bytes));
  buffers_.decoded.resize(static_cast<size_t>(n * job().n_in));
  TRY_OK(read(tensor, first * row_bytes, buffers_.in));
  decode_rows({.dtype = tensor.entry.dtype,
               .values = buffers_.in,
               .block_scales = buffers_.scales,
               .first_row = first,
               .n_rows = n,
               .n_in = job().n_in},
              buffers_.decoded.data());
  const int64_t bad = find_not_finite(buffers_.decoded);
  if (bad >= 0) {
    return damaged(tensor, format("weight [%lld, %lld] is not a finite number",
                                  static_cast<long long>(first + bad / job().n_in),
                                  static_cast<long long>(bad % job().n_in)));
  }
  return DecodedRows{
      .values = buffers_.decoded, .first_row = first, .n_rows = n, .n_in = job().n_in};
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

Result<float> JobRun::largest_weight() {
  float largest = 0;
  for (int64_t first = 0; first < job().n_out; first += rows_at_once()) {
    const DecodedRows rows = TRY(read_rows(first, std::min(rows_at_once(), job().n_out - first)));
    for (const float weight : rows.values) largest = std::max(largest, std::abs(weight));
  }
  return largest;
}

// Arrays that say the same of the whole tensor.
Status JobRun::write_constants() const {
  if (job().conversion == Conversion::to_int4) {
    const int64_t shape[] = {job().n_out, job().n_in};
    return write(2, 0, std::as_bytes(std::span(shape)));
  }
  if (job().conversion == Conversion::to_nvfp4) {
    TRY_OK(write(2, 0, std::as_bytes(std::span(&tensor_scale_, 1))));
    return write(3, 0, std::as_bytes(std::span(&kInputScale, 1)));
  }
  return {};
}

Result<QuantisationError> JobRun::run() {
  if (job().conversion == Conversion::copy) {
    TRY_OK(copy());
    return error_;
  }
  TRY_OK(read_scales());
  if (job().conversion == Conversion::to_nvfp4) {
    tensor_scale_ = nvfp4_tensor_scale(TRY(largest_weight()));
  }
  for (int64_t first = 0; first < job().n_out; first += rows_at_once()) {
    const DecodedRows rows = TRY(read_rows(first, std::min(rows_at_once(), job().n_out - first)));
    TRY_OK(convert_rows(rows));
  }
  TRY_OK(write_constants());
  return error_;
}

}  // namespace

Result<QuantisationError> run_job(const JobContext& context, JobBuffers* buffers) {
  return JobRun(context, buffers).run();
}

}  // namespace quire
