// mla_attention for the rows of a step behind its lone ones (TokenRows.n_lone): tiles of
// neighbouring tokens. Needs to know where rows begin (TokenRows.row_begin).
#pragma once

#include "cuda/common/context.h"
#include "ops/mla_attention.h"

namespace quire::cuda {

void absorbed_tiles(const Context& context, const ops::MlaAttention& args);

}  // namespace quire::cuda
