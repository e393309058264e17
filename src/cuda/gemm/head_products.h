// The products of each head with a matrix of its own, for any shape and alignment, batch-invariant:
// absorb_query, with the rotation of the rest of the query in the same launch, and expand_value.
#pragma once

#include "cuda/common/context.h"
#include "ops/mla_attention.h"

namespace quire::cuda {

void launch_absorb(const Context& context, const ops::AbsorbQuery& args);
void launch_expand(const Context& context, const ops::ExpandValue& args);

}  // namespace quire::cuda
