// Warm-up: the largest steps that a model will run, once, before anything is promised.
//
// Afterwards the backend's working memory is as large as it gets, so that what is left can be
// measured and given to the KV pool. The pages and the inputs are its own, and are gone when it
// returns.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "ops/backend.h"

namespace quire {

struct WarmUpSizes {
  int64_t tokens_max = 0;   // of a step; >= rows_max
  int64_t rows_max = 0;     // sequences of a step, each with one logit row
  int64_t context_max = 0;  // tokens of a sequence
};

// Tokens of the rows of the largest step: rows_max rows, together as near tokens_max as contexts
// allow. The last ones are as long as a context, those before them have one token each.
std::vector<int64_t> largest_step_rows(const WarmUpSizes& sizes);

// Runs a step of prompts with tokens_max tokens, and one in which rows_max sequences decode at the
// end of their context. `model` was made on `backend` for these sizes. Errors: resource_exhausted.
Status warm_up(Model& model, Backend& backend, const WarmUpSizes& sizes);

}  // namespace quire
