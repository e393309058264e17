// MatrixReader: rows of a BF16 or FP8 matrix of a checkpoint, read in pieces and checked, in
// float32. Memory is that of a piece, in buffers that the next matrix uses again.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "compress/plan.h"
#include "compress/quantise.h"

namespace quire {

// One thread's buffers, used again from matrix to matrix.
struct ReadBuffers {
  std::vector<std::byte> in;
  std::vector<float> scales;
  std::vector<float> decoded;
};

class MatrixReader {
 public:
  // `inputs` by shard of the checkpoint; all outlive this. FP8 scales are read at once. Errors: as
  // rows().
  static Result<MatrixReader> open(const StoredMatrix& matrix, std::span<const InputFile> inputs,
                                   ReadBuffers* buffers);

  // Valid until the next call. Errors: unavailable (the disk), corruption (weights or scales that
  // are no finite numbers), each naming file and tensor.
  Result<DecodedRows> rows(int64_t first, int64_t n);

  // A piece: large enough for a disk, small enough to stay near the core, and whole blocks of 128
  // rows, so that FP8 scales of a piece are its own.
  int64_t rows_at_once() const;

  // Calls body(DecodedRows) -> Status for piece after piece.
  template <class Body>
  Status each_piece(const Body& body) {
    for (int64_t first = 0; first < matrix_.n_out; first += rows_at_once()) {
      TRY_OK(body(TRY(rows(first, std::min(rows_at_once(), matrix_.n_out - first)))));
    }
    return {};
  }

 private:
  MatrixReader(const StoredMatrix& matrix, std::span<const InputFile> inputs, ReadBuffers* buffers)
      : matrix_(matrix), inputs_(inputs), buffers_(*buffers) {}

  Status read_scales();
  Error damaged(const CheckpointTensor& tensor, const std::string& what) const;

  StoredMatrix matrix_;
  std::span<const InputFile> inputs_;
  ReadBuffers& buffers_;
};

// Part of a tensor's bytes. Errors: as InputFile::read_at, with the tensor named.
Status read_tensor(const CheckpointTensor& tensor, std::span<const InputFile> inputs,
                   int64_t offset, std::span<std::byte> out);

// A failure of a disk, told with the tensor that it hit.
Error about_tensor(const CheckpointTensor& tensor, Error error);

}  // namespace quire
