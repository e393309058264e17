// Bytes that an op has to move, from the views of its arguments. For benches.
#pragma once

#include "ops/expert_bank.h"
#include "ops/weight_matrix.h"
#include "tensor/view.h"

namespace quire {

template <class T, int Rank>
double bytes_of(const View<T, Rank>& view) {
  return view.data == nullptr ? 0 : static_cast<double>(view.size()) * sizeof(T);
}

inline double bytes_of(const WeightMatrix& weight) {
  return bytes_of(weight.bf16) + bytes_of(weight.fp8) + bytes_of(weight.fp8_scale) +
         bytes_of(weight.int4) + bytes_of(weight.int4_scale);
}

// Of a weight in memory, its share of the scales included.
inline double bytes_per_weight(WeightFormat format, int group) {
  switch (format) {
    case WeightFormat::bf16:
      return 2;
    case WeightFormat::fp8_block128:
      return 1 + 4.0 / (kFp8Block * kFp8Block);
    case WeightFormat::int4_group:
      return 0.5 + 2.0 / group;
  }
  return 0;
}

// One routed expert, and the shared one: gate, up and down.
inline double routed_bytes(const ops::ExpertShape& shape) {
  return 3.0 * static_cast<double>(shape.hidden * shape.inner) *
         bytes_per_weight(shape.format, shape.group);
}
inline double shared_bytes(const ops::ExpertShape& shape) {
  return 3.0 * static_cast<double>(shape.hidden * shape.shared_inner) *
         bytes_per_weight(shape.shared_format, shape.shared_group);
}

inline const char* weight_name(const WeightMatrix& weight) {
  switch (weight.format) {
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::fp8_block128:
      return "fp8";
    case WeightFormat::int4_group:
      return weight.group == 32 ? "int4 g32" : "int4 g128";
  }
  return "";
}

}  // namespace quire
