// Programmatic dependent launch, as a kernel sees it.
//
// A kernel that common/launch.cuh starts may begin while the one ahead of it in the stream still
// runs. Until `wait_for_earlier_kernels` returns it may touch only what no earlier op writes:
// weights, and its own shared memory. Source: PTX ISA 9.0, 9.7.13 "griddepcontrol".
#pragma once

namespace quire::cuda {

// Returns when every earlier kernel of the stream is done and its writes can be seen. Each thread
// that touches an op's inputs or outputs calls it first, and each block calls it at least once
// before it ends: else this kernel could be done before an earlier one is, and the next kernel
// would be told so.
__device__ inline void wait_for_earlier_kernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The next kernel may begin as soon as all blocks of this one have called this or ended. Worth it
// when its blocks find room beside those that still run. It promises nothing of what was written.
__device__ inline void let_next_kernel_begin() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace quire::cuda
