// Running one job of a plan: a tensor is read in pieces of a few MB, converted, and written where
// the plan says. Memory does not grow with the tensor.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/output_file.h"
#include "base/result.h"
#include "compress/plan.h"
#include "compress/quantise.h"

namespace quire {

// One thread's buffers, used again from job to job.
struct JobBuffers {
  std::vector<std::byte> in;
  std::vector<float> scales;
  std::vector<float> decoded;
  std::vector<std::byte> out;
  std::vector<std::byte> out_scales;
};

struct JobContext {
  const CompressPlan& plan;
  const OutputShard& shard;
  const CompressJob& job;
  std::span<const InputFile> inputs;  // by shard of the input
  const OutputFile& output;
};

// What the change cost; zeros of a copy. Errors: unavailable (the disk), corruption (weights or
// scales that are no finite numbers), each naming file and tensor.
Result<QuantisationError> run_job(const JobContext& context, JobBuffers* buffers);

}  // namespace quire
