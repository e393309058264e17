// Loading a model folder for a tool: config, backend, weights, with a progress bar.
//
// The one place where sub-commands choose a backend. What a tool makes of it (an engine, one
// forward pass) is its own.
#pragma once

#include <memory>
#include <string>

#include "model/model.h"
#include "ops/backend.h"
#include "weights/model_weights.h"

namespace quire {

inline constexpr const char* kDeterministicHelp =
    "On a GPU: a request's bytes do not depend on the others'; slower (a CPU is always so)";

struct ModelSource {
  std::string dir;             // config.json and safetensors
  int n_threads = 0;           // of the CPU backend; 0: as many as the process may use
  std::string device = "cpu";  // or "cuda", in a build that has it: the first GPU
  bool deterministic = false;  // of cuda: a row's bits do not depend on its batch
};

// Members are destroyed in reverse order: a Model made from it must be gone before it is.
struct LoadedModel {
  std::string dir;
  ModelConfig config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ModelWeights> weights;

  // A model on these weights. Errors: as quire::make_model.
  Result<std::unique_ptr<Model>> make_model(const ModelLimits& limits,
                                            const ModelOptions& options) const {
    return quire::make_model(config, *weights, *backend, limits, options);
  }
};

// Loads and checks everything, telling standard error how far it is: a bar on a terminal, else a
// line now and then. Errors: as read_model_config, check_supported, Checkpoint::open and
// load_weights.
Result<LoadedModel> load_model(const ModelSource& source);

}  // namespace quire
