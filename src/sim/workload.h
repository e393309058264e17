// Workload: what a case draws before anything runs. Sizes, features, and every request there will
// be, with the moment it comes, the moment its client leaves, and its right answer.
//
// Pure: request n is the same whether or not request m ever arrives, so that a failing run can be
// made smaller one request at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/engine_config.h"
#include "engine/request.h"
#include "engine/sim_executor.h"
#include "sim/case.h"

namespace quire::sim {

struct PlannedRequest {
  int64_t arrives_us = 0;
  std::optional<int64_t> aborts_us;
  std::optional<int64_t> deadline_us;
  int32_t tenant = 0;
  uint64_t salt = 0;  // of the tenant, for the model
  GenerateRequest request;
  bool fits = false;         // it can run at all, alone
  std::vector<Token> right;  // its whole right answer, when it fits
};

// How long things take, in microseconds, at most; the least is 1.
struct Pace {
  int64_t turn_us = 0;  // between two steps of the engine
  int64_t row_us = 0;   // the device's time for a row of a step
};

struct Workload {
  EngineConfig engine;
  FeatureSet features;
  SimModel model;
  Pace pace;
  int64_t audit_every = 1;               // events between two whole audits
  std::vector<PlannedRequest> requests;  // by number; in the order of arrival
};

Workload draw_workload(const Case& drawn);

}  // namespace quire::sim
