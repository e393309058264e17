// Failure: why a request ended without its answer, as its last output says it.
#pragma once

#include <string>

#include "engine/request.h"
#include "format/step.h"

namespace quire {

struct Failure {
  FailureKind kind = FailureKind::none;
  Error error;
};

// `what` was found, and nothing unverified has left.
Failure integrity_failure(std::string what);

// What a verdict other than ok means for the row's request.
Failure to_failure(const StepRowResult& result);

}  // namespace quire
