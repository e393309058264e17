// The backends that goldens run on: the CPU, and a device where the build and the machine have one.
// Test code.
#pragma once

#include <memory>
#include <utility>

#include "cpu/cpu_backend.h"
#ifdef QUIRE_CUDA
#include "cuda/cuda_backend.h"
#endif

namespace quire {

enum class Device { cpu, cuda };

// Null when the machine, or the build, has no such device.
inline std::unique_ptr<Backend> make_backend(Device device) {
  if (device == Device::cpu) return make_cpu_backend(2);
#ifdef QUIRE_CUDA
  Result<std::unique_ptr<Backend>> made = make_cuda_backend({});
  if (made.ok()) return std::move(made).value();
#endif
  return nullptr;
}

}  // namespace quire
