// DeviceExpertBank: a layer's experts in device memory, and where each one's matrices are.
#pragma once

#include <array>

#include "cuda/gemm/gemm.h"
#include "ops/expert_bank.h"
#include "tensor/buffer.h"

namespace quire::cuda {

class DeviceExpertBank final : public ops::ExpertBank {
 public:
  static constexpr size_t kParts = 3;  // gate, up, down
  using Refs = std::array<WeightRef, kParts>;

  DeviceExpertBank(const ops::ExpertShape& shape, Buffer memory)
      : ExpertBank(shape), memory_(std::move(memory)) {}

  int64_t bytes() const override { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }

  std::array<WeightRef*, kParts> tables{};  // [n_experts] each, in device memory, owned by this
  Refs shared{};                            // empty without a shared expert
  bool is_aligned = true;                   // rows can be read in whole vectors

 private:
  Buffer memory_;
};

}  // namespace quire::cuda
