// Running one job of a plan: a tensor is read in pieces of a few MB, converted, and written where
// the plan says. Memory does not grow with the tensor, unless it is calibrated.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "compress/calibrated_job.h"
#include "compress/matrix_reader.h"
#include "compress/plan.h"
#include "compress/tensor_loss.h"

namespace quire {

// One thread's buffers, used again from job to job.
struct JobBuffers {
  ReadBuffers read;
  std::vector<std::byte> out;
  std::vector<std::byte> out_scales;
  CalibrationBuffers calibration;
};

struct JobContext {
  const CompressPlan& plan;
  const OutputShard& shard;
  const CompressJob& job;
  std::span<const InputFile> inputs;  // by shard of the input
  const OutputFile& output;
  const ActivationRecord* activations = nullptr;  // of a plan that calibrates
};

// What the change cost. Errors: unavailable (the disk), corruption (weights or scales that are no
// finite numbers), each naming file and tensor.
Result<TensorLoss> run_job(const JobContext& context, JobBuffers* buffers);

}  // namespace quire
