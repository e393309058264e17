#include "backends.h"

#include "cpu/cpu_backend.h"

namespace quire::ops_test {

std::vector<BackendFactory> backends() {
  std::vector<BackendFactory> out;
  for (const int n_threads : {1, 2, 3}) {
    out.push_back({.name = "cpu" + std::to_string(n_threads),
                   .make = [n_threads] { return make_cpu_backend(n_threads); },
                   .family = "cpu"});
  }
  return out;
}

}  // namespace quire::ops_test
