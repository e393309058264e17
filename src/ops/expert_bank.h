// ExpertBank: the experts of one layer, in whatever layout a backend's kernels read.
//
// Made once, when a layer's weights are loaded, and never changed: `ops::moe_experts` takes it and
// nothing else looks into it. Not a weight table: it has no names and no checkpoint.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "ops/backend.h"
#include "ops/weight_matrix.h"

namespace quire::ops {

// One expert: a gated MLP, its matrices in one format.
struct ExpertWeights {
  WeightMatrix gate;  // [inner, hidden]
  WeightMatrix up;    // [inner, hidden]
  WeightMatrix down;  // [hidden, inner]
};

// A layer's experts as a checkpoint has them. The span is the caller's; views are in the backend's
// memory.
struct ExpertTable {
  std::span<const ExpertWeights> routed;  // [n_experts], all of one shape and format
  std::optional<ExpertWeights> shared;    // works on every token; its inner and format are its own
};

struct ExpertShape {
  int64_t hidden = 0;
  int64_t n_experts = 0;  // routed ones
  int64_t inner = 0;      // of a routed one
  WeightFormat format = WeightFormat::bf16;
  int group = 0;             // int4_group only
  int64_t shared_inner = 0;  // 0: there is no shared expert
  WeightFormat shared_format = WeightFormat::bf16;
  int shared_group = 0;  // int4_group only
};

ExpertShape shape_of(const ExpertTable& table);

class ExpertBank {
 public:
  explicit ExpertBank(const ExpertShape& shape) : shape_(shape) {}
  virtual ~ExpertBank() = default;
  ExpertBank(const ExpertBank&) = delete;
  ExpertBank& operator=(const ExpertBank&) = delete;

  const ExpertShape& shape() const { return shape_; }
  // Of the backend's memory, owned by this; 0 when it borrows.
  virtual int64_t bytes() const = 0;

 private:
  ExpertShape shape_;
};

// Packs a layer's experts. Where Backend::keeps_raw_experts() the bank reads the table's matrices,
// which must outlive it. Elsewhere it owns what it reads: the matrices are read in order with the
// calls around this one, so that the next copy_in may overwrite them. Errors: resource_exhausted.
Result<std::unique_ptr<ExpertBank>> pack_experts(Backend& backend, const ExpertTable& table);

}  // namespace quire::ops
