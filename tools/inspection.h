// Inspection: what a model folder holds. Read from config.json and, where there are weights, their
// headers; without weights, from the tensors that publishers write for such a config.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"
#include "format/checkpoint.h"
#include "model/config.h"
#include "tools/rank_estimate.h"
#include "weights/resolve.h"
#include "weights/shard.h"

namespace quire {

struct TensorTotal {
  int64_t tensors = 0;  // a matrix with its scales is one
  int64_t bytes = 0;
};

// Neighbouring layers whose parts have the same formats.
struct LayerRun {
  int64_t first = 0;
  int64_t last = 0;
  std::map<std::string, std::string> formats;  // of "attention", "mlp", "experts", ...
  int64_t bytes = 0;
};

struct Inspection {
  std::string dir;
  ModelConfig config;
  std::vector<std::string> unsupported;
  std::optional<Checkpoint> checkpoint;        // none: there is only a config
  std::map<std::string, TensorTotal> dtypes;   // of every tensor in the files, by element type
  std::map<std::string, TensorTotal> formats;  // of the tensors of the text model
  std::vector<LayerRun> layers;
  std::vector<RankEstimate> ranks;
  std::optional<Partition> part;  // of a rank's folder: whose it is
  int64_t checkpoint_bytes = 0;   // of the files, or that they would have
  std::string weights_error;      // why the weights do not fit the config; empty when they do

  bool runs() const { return unsupported.empty() && weights_error.empty(); }
};

// Errors: those of the config alone; what is wrong with the weights is in the inspection.
Result<Inspection> inspect_model(const std::string& dir, const GpuBudget& gpu);

// "BF16", "FP8 128x128", "INT4 group 32".
std::string format_of(const ResolvedTensor& tensor);

Json to_json(const Inspection& found);

}  // namespace quire
