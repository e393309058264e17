#include "ops/weight_matrix.h"

#include "base/bytes.h"

namespace quire {

namespace {

template <class T>
bool has_shape(const View<const T, 2>& view, int64_t rows, int64_t columns) {
  return view.data != nullptr && view[0] == rows && view[1] == columns && view.stride[1] == 1;
}

}  // namespace

bool is_well_formed(const WeightMatrix& weight) {
  if (weight.n_out <= 0 || weight.n_in <= 0) return false;
  switch (weight.format) {
    case WeightFormat::bf16:
      return has_shape(weight.bf16, weight.n_out, weight.n_in);
    case WeightFormat::fp8_block128:
      return has_shape(weight.fp8, weight.n_out, weight.n_in) &&
             has_shape(weight.fp8_scale, div_up(weight.n_out, kFp8Block),
                       div_up(weight.n_in, kFp8Block));
    case WeightFormat::int4_group:
      return (weight.group == 32 || weight.group == 128) && weight.n_in % weight.group == 0 &&
             has_shape(weight.int4, weight.n_out, weight.n_in / 2) &&
             has_shape(weight.int4_scale, weight.n_out, weight.n_in / weight.group);
  }
  return false;
}

}  // namespace quire
