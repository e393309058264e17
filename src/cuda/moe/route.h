// Which experts a step's tokens take, and what they weigh: the routing of ops/moe.h, as a launch of
// its own.
#pragma once

#include "cuda/common/context.h"
#include "ops/moe.h"

namespace quire::cuda {

// Where the next kernel may begin: beside kernels ahead of this one, or when they are done.
enum class NextKernel : uint8_t { beside_earlier, behind_earlier };

// Writes args.experts and args.weights.
void route_tokens(const Context& context, const ops::MoeExperts& args, NextKernel next);

}  // namespace quire::cuda
