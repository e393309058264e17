#include "backends.h"

#include "cpu/cpu_backend.h"
#ifdef QUIRE_CUDA
#include "cuda/cuda_backend.h"
#endif

namespace quire::ops_test {

std::vector<BackendFactory> backends() {
  std::vector<BackendFactory> out;
  for (const int n_threads : {1, 2, 3}) {
    out.push_back({.name = "cpu" + std::to_string(n_threads),
                   .make = [n_threads] { return make_cpu_backend(n_threads); },
                   .family = "cpu"});
  }
#ifdef QUIRE_CUDA
  const auto make_cuda = []() -> std::unique_ptr<Backend> {
    Result<std::unique_ptr<Backend>> made = make_cuda_backend(0);
    return made.ok() ? std::move(made).value() : nullptr;
  };
  out.push_back({.name = "cuda", .make = make_cuda, .family = ""});
#endif
  return out;
}

}  // namespace quire::ops_test
