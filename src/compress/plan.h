// CompressPlan: every array of the checkpoint to be written, and what each is made from.
//
// A pure function of the input's names and shapes and of what was asked: the same plan on every
// machine, so that work that was broken off goes on where it stopped, and its bytes are the same.
// Reads headers, no weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/checkpoint.h"
#include "weights/model_shape.h"
#include "weights/name_pattern.h"
#include "weights/resolve.h"
#include "weights/weight_scheme.h"

namespace quire {

enum class TargetFormat : uint8_t { int4, fp8, nvfp4 };

// "int4", "fp8", "nvfp4". Errors: invalid_argument.
Result<TargetFormat> parse_target_format(std::string_view text);
std::string_view name(TargetFormat format);

// How the values of a tensor are chosen (docs/compress.md).
enum class Method : uint8_t {
  rtn,   // each weight to the nearest, at the scale of the least error
  gptq,  // int4 only: routed experts by what calibration text gave them; others as rtn
};

struct CompressOptions {
  TargetFormat format = TargetFormat::int4;
  int group = 32;  // int4 only: 32 or 128
  Method method = Method::rtn;
  std::string calibration;  // gptq: which text, for the record
  // Modules beside the default ones, and modules that stay as they are. The default: the routed
  // experts; of fp8, every linear map that publishers convert (all but lm_head and routers).
  std::vector<NamePattern> include;
  std::vector<NamePattern> exclude;
  int64_t shard_bytes = 4'295'000'000;     // of a file's arrays: 4 GiB, as publishers cut them
  std::vector<std::string> pattern_texts;  // of both, in order, with their flag: for the record
};

// What happens to a tensor.
enum class Conversion : uint8_t {
  copy,     // the bytes as they are
  to_bf16,  // FP8 that is not asked for in a smaller format
  to_int4,
  to_fp8,
  to_nvfp4,
};

// A tensor of the input, which outlives the plan.
struct StoredMatrix {
  const CheckpointTensor* values = nullptr;
  const CheckpointTensor* scales = nullptr;  // of FP8 that is converted
  int64_t n_out = 0;                         // of what is converted
  int64_t n_in = 0;
};

// Where a calibrated map's inputs come from: tokens that a layer sent to an expert. Of `down` they
// go through the other two first.
struct ExpertInput {
  int64_t layer = 0;
  int64_t expert = 0;
  StoredMatrix gate;  // of `down` alone: without values else
  StoredMatrix up;

  bool is_inner() const { return gate.values != nullptr; }
};

struct CompressJob {
  Conversion conversion = Conversion::copy;
  StoredMatrix matrix;
  std::optional<ExpertInput> input;  // gptq: of a routed expert
  // Places in the shard's arrays: the values, and what goes with them in the order of the format.
  std::vector<size_t> arrays;

  int64_t bytes_in() const {
    return matrix.values->entry.bytes + (matrix.scales == nullptr ? 0 : matrix.scales->entry.bytes);
  }
};

struct OutputShard {
  std::string file_name;
  std::vector<TensorEntry> arrays;  // in order of offset; offsets count from the file's begin
  std::vector<CompressJob> jobs;    // in the order in which the input's bytes lie
  int64_t bytes = 0;                // of the file
};

struct CompressPlan {
  CompressOptions options;
  std::vector<OutputShard> shards;
  std::vector<std::string> quantised;  // modules, in the order of the table
  std::vector<std::string> kept;       // linear maps that stay BF16 (of fp8: or F32)
  int64_t bytes_in = 0;                // of arrays, before
  int64_t bytes_out = 0;               // and after
};

// `input` is resolved against the shape: whatever is missing, misshapen or unknown is an error, as
// in load_weights. Errors beside: unsupported, when the input is packed already;
// invalid_argument, when a pattern matches nothing or inputs are not whole groups.
Result<CompressPlan> plan_compression(const Checkpoint& input, const ModelShape& shape,
                                      const WeightSource& source, const CompressOptions& options);

// What the written checkpoint holds, without its bytes.
Checkpoint planned_checkpoint(const CompressPlan& plan, const std::string& dir);

}  // namespace quire
