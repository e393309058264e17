// DeviceExpertBank: a layer's experts, packed as moe/packed_layout.h says.
#pragma once

#include <utility>

#include "cuda/common/context.h"
#include "cuda/moe/packed_layout.h"
#include "ops/expert_bank.h"
#include "tensor/buffer.h"

namespace quire::cuda {

// The two matrices of experts of one shape: gate and up interleaved, and down.
struct PackedExperts {
  PackedMatrix gate_up;
  PackedMatrix down;
};

class DeviceExpertBank final : public ops::ExpertBank {
 public:
  DeviceExpertBank(const ops::ExpertShape& shape, Buffer memory, const PackedExperts& routed,
                   const PackedExperts& shared)
      : ExpertBank(shape), memory_(std::move(memory)), routed_(routed), shared_(shared) {}

  int64_t bytes() const override { return memory_.bytes(); }
  const PackedExperts& routed() const { return routed_; }
  const PackedExperts& shared() const { return shared_; }  // data null without a shared expert

 private:
  Buffer memory_;
  PackedExperts routed_, shared_;
};

// A matrix of an expert as a checkpoint has it; the format and the shape are the launch's.
struct RawMatrix {
  const void* values;
  const void* scales;    // float32 or Bf16; null for bf16
  int64_t value_stride;  // bytes between rows
  int64_t scale_stride;  // elements between rows of scales
};

// Packs matrices of every expert. `sources` is in device memory: gate and up of each expert, or
// down of each.
struct PackMatrices {
  PackedMatrix to;
  const RawMatrix* sources;
  int n_sources;     // of an expert: 2, rows of gate and up interleaved by eight; or 1
  int scale_inputs;  // int4_group: inputs that share a scale
  int64_t n_out;     // of one source
  int64_t n_in;
};
void pack_matrices(const Context& context, const PackMatrices& args);

}  // namespace quire::cuda
