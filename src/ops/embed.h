// out[t, :] = table[ids[t], :]
//
// Copies bits. ids are in [0, vocab): they were validated at admission; a backend may clamp but
// never reads outside the table. n_tokens may be 0. Errors: none.
#pragma once

#include "ops/backend.h"

namespace quire::ops {

struct Embed {
  View<Bf16, 2> out;           // [n_tokens, hidden]
  View<const int32_t, 1> ids;  // [n_tokens]
  View<const Bf16, 2> table;   // [vocab, hidden]
};

void embed(Backend& backend, const Embed& args);

}  // namespace quire::ops
