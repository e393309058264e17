#include "tools/read_ceiling.h"

#ifdef QUIRE_CUDA
#include "cuda/bench/read_ceiling.h"
#endif

namespace quire {

Result<std::optional<double>> measure_read_ceiling(const std::string& device) {
#ifdef QUIRE_CUDA
  if (device == "cuda") return std::optional(TRY(measure_cuda_read_ceiling(0)));
#endif
  (void)device;
  return std::optional<double>();
}

}  // namespace quire
