// The rate at which a plain kernel reads memory of a device: what floors of benches divide by.
#pragma once

#include "base/result.h"

namespace quire {

// Bytes a second, the best of several passes over more memory than any cache holds. Errors: as
// make_cuda_backend; resource_exhausted without 4 GiB of free memory.
Result<double> measure_cuda_read_ceiling(int device);

}  // namespace quire
