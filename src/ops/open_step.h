// Makes the inputs of a step, as they arrived, fit for the ops after it (format/step_inputs.h).
//
//   1. counts the step: counter += 1;
//   2. compares the header with what arrived: the hash of the words, the sum of the nonces, and its
//      step with the counter, which came another way;
//   3. on a match, puts tokens in place of references: ids[t] = recent[place]. A place that holds
//      no token (a row that failed) gives token 0: that row's result is void, and others' are not
//      touched;
//   4. on a mismatch, makes the inputs harmless: nothing in them is used to find memory. Every row
//      points at page 0, token 0, position 0, and its sampler is greedy. `is_good` says which.
//   5. on a match, and where there is a mirror of the page directory, brings it up to date:
//      lives[page] = what the change of that page says. A page has one change at most.
//
// The inputs may be of any bits. Everything is in the backend's memory. Errors: none.
#pragma once

#include "format/step_inputs.h"
#include "ops/backend.h"

namespace quire::ops {

struct StepOpening {
  uint64_t step = 0;     // of the counter
  uint64_t is_good = 0;  // 1: the header was right
};

// Words of `state`; the first is the counter, the others are the backend's.
inline constexpr int64_t kStepStateWords = 4;

struct OpenStep {
  View<StepOpening, 1> out;       // [1]
  View<uint64_t, 1> state;        // [kStepStateWords], zero before the first call
  StepInputs inputs;              // in and out
  View<const int32_t, 2> recent;  // [steps, rows] tokens that the last steps sampled
  View<PageLife, 1> lives = {};   // [n_pages] the mirror; empty: there is none
};

void open_step(Backend& backend, const OpenStep& args);

}  // namespace quire::ops
