// Which experts a step's tokens take, and what they weigh: the routing of ops/moe.h, as a launch of
// its own.
#pragma once

#include "cuda/common/context.h"
#include "ops/moe.h"

namespace quire::cuda {

// Writes args.experts and args.weights.
void route_tokens(const Context& context, const ops::MoeExperts& args);

}  // namespace quire::cuda
