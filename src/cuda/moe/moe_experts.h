// What the experts of a step ask of its other kernels.
#pragma once

#include "cuda/common/context.h"
#include "ops/moe.h"

namespace quire::cuda {

// Whether a step with this op is faster if all its kernels have as much shared memory as there is.
bool experts_want_shared_memory(const Context& context, const ops::MoeExperts& args);

}  // namespace quire::cuda
