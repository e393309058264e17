// A routed expert's map by GPTQ: from what calibration text gave the expert to codes, scales and
// what they cost. Whole matrices in memory: CalibrationSizes says how much.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "base/input_file.h"
#include "base/result.h"
#include "compress/activation_record.h"
#include "compress/gptq.h"
#include "compress/matrix_reader.h"
#include "compress/moments.h"
#include "compress/plan.h"
#include "compress/tensor_loss.h"

namespace quire {

// An expert that saw fewer tokens, or fewer that are held out, is rounded to nearest: there is
// nothing to judge by.
inline constexpr int64_t kCalibrationTokensMin = 64;
inline constexpr int64_t kHeldOutTokensMin = 16;

constexpr bool has_enough_tokens(const OutputLoss& loss) {
  return loss.n_tokens >= kCalibrationTokensMin && loss.n_held_out >= kHeldOutTokensMin;
}

// The largest of each kind of what a plan calibrates. All zero: nothing.
struct CalibrationSizes {
  int64_t group = 0;
  int64_t n_in = 0;     // inputs of a map
  int64_t weights = 0;  // [n_in, n_lanes] of a map
  int64_t gates = 0;    // the same of what makes the inputs of `down`
  int64_t hidden = 0;   // inputs of an expert
  int64_t inner = 0;    // inputs of `down`

  static CalibrationSizes of(const CompressPlan& plan);
  // What one thread needs beside what the process has. docs/compress.md has the sum.
  int64_t thread_bytes() const;
};

// How many of `n_threads` fit into `available` bytes. Errors: resource_exhausted, not one does.
Result<int> threads_that_fit(const CompressPlan& plan, int n_threads, int64_t available);

// One thread's working memory, used again from job to job. The moments stay: of the next map with
// the same inputs they are the same.
struct CalibrationBuffers {
  // Nothing grows after that.
  void reserve(const CalibrationSizes& sizes);

  InputMoments moments;
  std::array<int64_t, 2> moments_of = {-1, -1};  // layer and expert, of gate and up; else -1
  TransposedWeights weights;
  TransposedWeights carried;
  Int4Codes codes;
  Int4Codes best;
  std::vector<float> held_out;  // [n_in, tokens held out]; goes with the moments
  TransposedWeights gate;       // of what makes the inputs of `down`
  TransposedWeights up;
  std::vector<float> tokens;             // [tokens at once, hidden]
  std::vector<float> transposed_tokens;  // [hidden, tokens at once]
  std::vector<float> inner;              // [2, tokens at once, inner]
};

struct CalibratedJob {
  const CompressJob& job;
  int64_t group;
  const ActivationRecord& activations;
  std::span<const InputFile> inputs;  // by shard of the input
};

// packed: [n_out, n_in / 2] bytes and scales: [n_out, n_in / group] BF16, as quantise_int4 writes
// them; both are resized. Errors: as MatrixReader and ActivationRecord::read.
Result<TensorLoss> run_calibrated_job(const CalibratedJob& job, ReadBuffers* read,
                                      CalibrationBuffers* buffers, std::vector<std::byte>* packed,
                                      std::vector<std::byte>* scales);

}  // namespace quire
