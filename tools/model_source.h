// Loading a model for a tool: config, backend, weights, with a progress bar.
//
// The one place where sub-commands choose a backend. What a tool makes of it (an engine, one
// forward pass) is its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "model/model.h"
#include "ops/backend.h"
#include "tools/commands.h"
#include "tools/startup_report.h"
#include "weights/model_weights.h"
#include "weights/shard.h"

namespace quire {

enum class LoadFormat : uint8_t {
  automatic,  // what the folder's safetensors hold
  dummy,      // config.json alone: random weights (weights/dummy.h)
};

struct ModelSource {
  std::string dir;             // config.json and safetensors
  int n_threads = 0;           // of the CPU backend, and that read files; 0: as many as there are
  std::string device = "cpu";  // or "cuda", in a build that has it: the first GPU
  bool deterministic = false;  // of cuda: a row's bits do not depend on its batch
  LoadFormat load_format = LoadFormat::automatic;
  // A rank share: the weights of one rank, whose sums with the others are left out.
  std::optional<Partition> share;
};

// The flags that choose a backend, and what they say: a source without a model.
void add_backend_flags(CLI::App& command);
ModelSource read_backend_flags(const CLI::App& command);

// All flags of a ModelSource, --model-path among them, and what they say. Errors: invalid_argument;
// unsupported (ranks without --rank-share).
void add_model_source_flags(CLI::App& command);
Result<ModelSource> read_model_source(const CLI::App& command);

// The backend that a source names, without a model. Errors: invalid_argument; unsupported; as
// make_cuda_backend.
Result<std::unique_ptr<Backend>> make_backend(const ModelSource& source);

// Members are destroyed in reverse order: a Model made from it must be gone before it is.
struct LoadedModel {
  std::string dir;
  // With the sizes of the weights: of a rank share, that rank's.
  ModelConfig config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ModelWeights> weights;
  Partition partition;  // n_ranks 1: the whole model
  LoadFormat load_format = LoadFormat::automatic;
  StartupReport startup;

  // What every output made with it has to say beside its figures: "rank share, no collectives:
  // rank 0 of 8" and "dummy weights"; empty of a whole model from files.
  std::string caveat() const;

  // A model on these weights. Errors: as quire::make_model.
  Result<std::unique_ptr<Model>> make_model(const ModelLimits& limits,
                                            const ModelOptions& options) const {
    return quire::make_model(config, *weights, *backend, limits, options);
  }
};

// `result`; a lack of memory in it with `advice` on what to lower.
template <class T>
Result<T> advise(Result<T> result, const char* advice) {
  if (result.ok() || result.error().code != ErrorCode::resource_exhausted) return result;
  Error error = std::move(result).error();
  error.message += std::string(". ") + advice;
  return error;
}

// Loads and checks everything, telling standard error how far it is (a bar on a terminal, else a
// line now and then), and what the caveat is. Errors: as read_model_config, check_supported,
// Checkpoint::open, read_partition and load_weights; invalid_argument when the folder holds another
// rank's part than `share` asks for.
Result<LoadedModel> load_model(const ModelSource& source);

}  // namespace quire
