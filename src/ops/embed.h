// out[t, :] = table[ids[t] - first_id, :], or zeros when another rank has the row
//
// Copies bits. ids were validated at admission: without ranks each has its row. n_tokens may be 0.
// Errors: none.
#pragma once

#include "ops/backend.h"

namespace quire::ops {

struct Embed {
  View<Bf16, 2> out;           // [n_tokens, hidden]
  View<const int32_t, 1> ids;  // [n_tokens]
  View<const Bf16, 2> table;   // [n_rows, hidden] of ids [first_id, first_id + n_rows)
  int32_t first_id = 0;
};

void embed(Backend& backend, const Embed& args);

}  // namespace quire::ops
