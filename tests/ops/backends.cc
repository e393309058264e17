#include "backends.h"

#include "cpu/cpu_backend.h"
#include "tensor/targets.h"
#ifdef QUIRE_CUDA
#include "cuda/cuda_backend.h"
#endif

// After cpu/targets.h, which it must agree with.
#include <hwy/targets.h>

namespace quire::ops_test {

namespace {

// A CPU backend that uses no newer instruction set than `target` (0: the best there is). The choice
// is the process's, so that it holds until the next one is made.
BackendFactory cpu(std::string name, int n_threads, int64_t target) {
  return {.name = std::move(name),
          .make =
              [n_threads, target] {
                hwy::SetSupportedTargetsForTest(target == 0 ? 0 : target | HWY_SSE4);
                hwy::GetChosenTarget().DeInit();
                return make_cpu_backend(n_threads);
              },
          .family = "cpu" + std::to_string(target)};
}

#ifdef QUIRE_CUDA
BackendFactory cuda(std::string name, Deterministic deterministic) {
  const auto make = [deterministic]() -> std::unique_ptr<Backend> {
    Result<std::unique_ptr<Backend>> made = make_cuda_backend({.deterministic = deterministic});
    return made.ok() ? std::move(made).value() : nullptr;
  };
  return {.name = name,
          .make = make,
          .family = deterministic == Deterministic::yes ? std::move(name) : ""};
}
#endif

}  // namespace

std::vector<BackendFactory> backends() {
  std::vector<BackendFactory> out;
  for (const int n_threads : {1, 2, 3}) {
    out.push_back(cpu("cpu" + std::to_string(n_threads), n_threads, 0));
  }
#if defined(__x86_64__)
  const int64_t supported = hwy::SupportedTargets();
  if ((supported & HWY_AVX2) != 0) out.push_back(cpu("cpu2_avx2", 2, HWY_AVX2));
  out.push_back(cpu("cpu2_sse4", 2, HWY_SSE4));
#endif
#ifdef QUIRE_CUDA
  out.push_back(cuda("cuda", Deterministic::no));
  out.push_back(cuda("cuda_deterministic", Deterministic::yes));
#endif
  return out;
}

}  // namespace quire::ops_test
