// A tiny random checkpoint, loaded for a test: tests/golden's, on the CPU.
#pragma once

#include <memory>
#include <string>

#include "base/check.h"
#include "cpu/cpu_backend.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "weights/loader.h"

namespace quire {

// Members are destroyed in reverse order.
struct TinyModel {
  ModelConfig config;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<ModelWeights> weights;
};

inline TinyModel load_tiny_model(const std::string& name, std::unique_ptr<Backend> backend) {
  const std::string dir = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/" + name;
  TinyModel tiny{.config = read_model_config(dir).value()};
  tiny.backend = std::move(backend);
  tiny.weights = load_weights({.checkpoint = Checkpoint::open(dir).value(),
                               .shape = tiny.config.shape,
                               .source = tiny.config.weights},
                              *tiny.backend, {})
                     .value();
  return tiny;
}

inline TinyModel load_tiny_model(const std::string& name, int n_threads) {
  return load_tiny_model(name, make_cpu_backend(n_threads));
}

// A model and its executor for the plans of `config`.
struct TinyExecutor {
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelExecutor> executor;
};

// Steps run on `backend`, which is the tiny model's own or passes on to it, and outlives them.
inline TinyExecutor make_tiny_executor(const TinyModel& tiny, Backend& backend,
                                       const EngineConfig& config, RecordSteps record) {
  const PlanLimits limits = executor_limits(config);
  TinyExecutor out;
  out.model = make_model(tiny.config, *tiny.weights, backend,
                         {.tokens_max = limits.tokens_max, .logits_max = limits.rows_max},
                         {.kv_format = config.domain.kv_format})
                  .value();
  out.executor = ModelExecutor::make(backend, *out.model, limits,
                                     {.record = record, .checks = {step_checks(config.integrity)}})
                     .value();
  return out;
}

inline TinyExecutor make_tiny_executor(const TinyModel& tiny, const EngineConfig& config,
                                       RecordSteps record = RecordSteps::no) {
  return make_tiny_executor(tiny, *tiny.backend, config, record);
}

}  // namespace quire
