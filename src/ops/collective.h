// Collective: what the ranks of a tensor-parallel model say to each other within a step.
//
// Every rank calls the same functions in the same order, with views of the same shape in its own
// backend's memory. Without a Collective a model is of one rank, or a share of a larger one whose
// sums are left out. Calls are ordered with the ops around them.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "tensor/view.h"

namespace quire {

class Collective {
 public:
  virtual ~Collective() = default;

  virtual Rank rank() const = 0;
  virtual int32_t n_ranks() const = 0;

  // x = bf16(sum over ranks of x), in place: in float32, in order of rank, rounded once.
  virtual void sum(View<Bf16, 2> x) = 0;
  // out[t, r * n + i] = x[t, i] of rank r, n being the columns of x: [n_tokens, n_ranks * n].
  virtual void gather_columns(View<float, 2> out, View<const float, 2> x) = 0;
};

}  // namespace quire
