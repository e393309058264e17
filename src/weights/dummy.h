// Dummy weights: a checkpoint that exists as names, formats and sizes alone, and the random values
// that stand in for its bytes.
//
// For measuring models whose weights are not at hand: every tensor is as the config says that a
// publisher stores it, values have the size that keeps activations near 1, and routers send tokens
// to experts independently of each other. What a model of them says means nothing.
#pragma once

#include <cstdint>
#include <string>

#include "format/checkpoint.h"
#include "tensor/random_values.h"
#include "weights/model_shape.h"
#include "weights/shard.h"
#include "weights/table.h"
#include "weights/weight_scheme.h"

namespace quire {

// `dir` is for messages alone.
Checkpoint dummy_checkpoint(const std::string& dir, const ModelShape& shape,
                            const WeightSource& source, LayerScope scope = LayerScope::decoder);

// The values of one array of `tensor`: a pure function of the array's name, its whole sizes and the
// place in it, so that a rank's dummy weights are its part of the whole model's. `array` is
// tensor.values or tensor.scales.
RandomArray dummy_values(const TensorSlice& tensor, const ArraySlice& array);

}  // namespace quire
