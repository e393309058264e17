// absorb_query for any shape and alignment, batch-invariant: the product of a head's queries with
// its W_UK, and the rotation of the rest of the query in the same launch.
#pragma once

#include "cuda/common/context.h"
#include "ops/mla_attention.h"

namespace quire::cuda {

void launch_absorb(const Context& context, const ops::AbsorbQuery& args);

}  // namespace quire::cuda
