// Failure: why a request ended without its answer, as its last output says it.
#pragma once

#include <optional>
#include <string>

#include "engine/integrity.h"
#include "engine/request.h"
#include "format/step.h"

namespace quire {

struct Failure {
  FailureKind kind = FailureKind::none;
  Error error;
};

// `what` was found, and nothing unverified has left.
Failure integrity_failure(std::string what);

// The check that a verdict comes from, or nothing when it follows from another row's, or is none.
std::optional<IntegrityCheck> check_of(RowVerdict verdict);

// What a verdict other than ok means for the row's request.
Failure to_failure(const StepRowResult& result);

}  // namespace quire
