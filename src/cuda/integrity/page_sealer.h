// The seals of pages, hashed on the device beside whatever step runs there (ops/page_sealer.h).
#pragma once

#include <memory>

#include "cuda/common/pinned_memory.h"
#include "ops/page_sealer.h"

namespace quire::cuda {

// `pinned` outlives it. Errors: resource_exhausted.
Result<std::unique_ptr<PageSealer>> make_page_sealer(int device, PinnedMemory* pinned,
                                                     const PoolPages& pool);

}  // namespace quire::cuda
