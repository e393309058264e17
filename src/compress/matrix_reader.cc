#include "compress/matrix_reader.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "ops/weight_matrix.h"

namespace quire {

namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;  // of values as stored

}  // namespace

Error about_tensor(const CheckpointTensor& tensor, Error error) {
  error.message += format(" (tensor \"%s\")", excerpt(tensor.entry.name).c_str());
  return error;
}

Status read_tensor(const CheckpointTensor& tensor, std::span<const InputFile> inputs,
                   int64_t offset, std::span<std::byte> out) {
  const InputFile& file = inputs[static_cast<size_t>(tensor.shard)];
  Status status = file.read_at(tensor.entry.offset + offset, out);
  return status.ok() ? status : about_tensor(tensor, std::move(status).error());
}

Error MatrixReader::damaged(const CheckpointTensor& tensor, const std::string& what) const {
  const InputFile& file = inputs_[static_cast<size_t>(tensor.shard)];
  return corruption(format("%s: tensor \"%s\": %s", file.path().c_str(),
                           excerpt(tensor.entry.name).c_str(), what.c_str()));
}

Result<MatrixReader> MatrixReader::open(const StoredMatrix& matrix,
                                        std::span<const InputFile> inputs, ReadBuffers* buffers) {
  MatrixReader out(matrix, inputs, buffers);
  TRY_OK(out.read_scales());
  return out;
}

Status MatrixReader::read_scales() {
  if (matrix_.scales == nullptr) return {};
  const CheckpointTensor& scales = *matrix_.scales;
  buffers_.scales.resize(static_cast<size_t>(scales.entry.bytes) / sizeof(float));
  TRY_OK(read_tensor(scales, inputs_, 0, std::as_writable_bytes(std::span(buffers_.scales))));
  const int64_t bad = find_not_finite(buffers_.scales);
  if (bad < 0) return {};
  return damaged(scales, format("scale %lld is not a finite number", static_cast<long long>(bad)));
}

int64_t MatrixReader::rows_at_once() const {
  const int64_t row_bytes = matrix_.n_in * size_of(matrix_.values->entry.dtype);
  return round_up(std::max<int64_t>(kPieceBytes / row_bytes, 1), kFp8Block);
}

Result<DecodedRows> MatrixReader::rows(int64_t first, int64_t n) {
  const CheckpointTensor& tensor = *matrix_.values;
  const int64_t n_in = matrix_.n_in;
  const int64_t row_bytes = n_in * size_of(tensor.entry.dtype);
  buffers_.in.resize(static_cast<size_t>(n * row_bytes));
  buffers_.decoded.resize(static_cast<size_t>(n * n_in));
  TRY_OK(read_tensor(tensor, inputs_, first * row_bytes, buffers_.in));
  const int64_t bad = decode_rows({.dtype = tensor.entry.dtype,
                                   .values = buffers_.in,
                                   .block_scales = buffers_.scales,
                                   .first_row = first,
                                   .n_rows = n,
                                   .n_in = n_in},
                                  buffers_.decoded.data());
  if (bad >= 0) {
    return damaged(tensor, format("weight [%lld, %lld] is not a finite number",
                                  static_cast<long long>(first + bad / n_in),
                                  static_cast<long long>(bad % n_in)));
  }
  return DecodedRows{.values = buffers_.decoded, .first_row = first, .n_rows = n, .n_in = n_in};
}

}  // namespace quire
