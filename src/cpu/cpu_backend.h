// The Backend on the host: every op of ops/, on a fixed number of threads.
//
// The embedded default, and what other backends are held against. A row's bits depend on that row's
// sequence alone: not on the batch around it, the chunking of its prompt, or the thread count
// (docs/numerics.md). Vector code is chosen at run time (Highway).
#pragma once

#include <memory>

#include "ops/backend.h"

namespace quire {

// `n_threads` >= 1, the calling thread included.
std::unique_ptr<Backend> make_cpu_backend(int n_threads);

}  // namespace quire
