// out[i, :] = x[rows[i], :]: the tokens whose logits are wanted. Copies bits. n may be 0. No
// aliasing. Errors: none; rows are in [0, x rows).
#pragma once

#include "ops/backend.h"

namespace quire::ops {

struct GatherRows {
  View<Bf16, 2> out;            // [n, dim]
  View<const Bf16, 2> x;        // [n_tokens, dim]
  View<const int32_t, 1> rows;  // [n]
};

void gather_rows(Backend& backend, const GatherRows& args);

}  // namespace quire::ops
