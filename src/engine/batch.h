// From what was scheduled to what an executor is told: the rows of a step's plan.
#pragma once

#include <cstdint>
#include <span>

#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "format/step.h"

namespace quire {

// Makes `row` the row of `sequence` for the tokens that `scheduled` names. `pages` holds all of
// them; `vocab_size` is the model's. What the row held before is kept for its memory only.
void fill_row(const Sequence& sequence, const ScheduledRow& scheduled,
              std::span<const TaggedPage> pages, int32_t vocab_size, StepRow* row);

}  // namespace quire
