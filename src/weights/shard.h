// Sharding: which part of each tensor one of several tensor-parallel ranks holds.
//
// Attention is cut by heads, MLPs and experts by their inner values, the vocabulary by tokens; what
// a rank then computes is a summand of the residual stream, or its columns of the logits
// (ops/collective.h). Latents, norms and routers are small or shared by all heads: every rank has
// them whole. A pure function of names and sizes; reads nothing.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "weights/model_shape.h"
#include "weights/resolve.h"
#include "weights/table.h"

namespace quire {

struct Partition {
  int64_t rank = 0;
  int64_t n_ranks = 1;  // 1: nothing is cut
};

enum class Cut : uint8_t {
  none,     // every rank has all of it
  outputs,  // a rank has its outputs (rows), of all inputs
  inputs,   // a rank has its inputs (columns); its results are summed with the others'
};

Cut cut_of(Weight weight);

// The sizes that a model has on one rank. Errors: invalid_argument when a size does not divide, or
// there is no such rank.
Result<ModelShape> shape_of_rank(const ModelShape& whole, const Partition& partition);

// Part of a stored array, in its elements (packed INT4: words). A vector is one row.
struct ArraySlice {
  const CheckpointTensor* array = nullptr;  // null: the tensor has no such array
  int64_t first = 0;                        // element where the part begins
  int64_t n_rows = 0;
  int64_t n_columns = 0;
  int64_t stride = 0;  // elements between rows

  int64_t element_bytes() const { return size_of(array->entry.dtype); }
  int64_t row_bytes() const { return n_columns * element_bytes(); }
  int64_t bytes() const { return array == nullptr ? 0 : n_rows * row_bytes(); }
  bool is_contiguous() const { return n_rows == 1 || stride == n_columns; }
  // Where it begins; null of a checkpoint without data.
  const std::byte* data() const {
    return array->data.empty() ? nullptr : array->data.data() + first * element_bytes();
  }
};

// A tensor as a rank has it.
struct TensorSlice {
  WantedTensor wanted;     // with the sizes of the part
  int64_t whole_n_in = 0;  // inputs before the cut
  StoredFormat format = StoredFormat::bf16;
  int group = 0;  // int4_group only
  ArraySlice values;
  ArraySlice scales;
  const CheckpointTensor* tensor_scale = nullptr;  // nvfp4 only

  int64_t bytes() const { return values.bytes() + scales.bytes(); }
};

// `partition` suits the shape that `tensor` was resolved for. Errors: unsupported, naming the
// tensor, when the cut would go through a block or a group that shares a scale.
Result<TensorSlice> slice_of(const ResolvedTensor& tensor, const Partition& partition);

}  // namespace quire
