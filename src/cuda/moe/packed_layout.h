// How an ExpertBank keeps a matrix on the device: in the order in which warps read it.
//
// Rows are cut into tiles of 16, the M of an m16n8k16 product, and four tiles make a group. Inputs
// are cut into steps of 128 (INT4), 64 (FP8) or 32 (BF16): 1,024 bytes of a tile, two 16-byte loads
// of a lane, with the step's scales behind them. A matrix is [group][step][tile of 4][bytes], so
// that a warp which walks over the steps of a group, or over whole groups, reads one stream.
//
// In the pair gate and up, rows 0-7 of a tile are eight rows of gate and rows 8-15 the same rows of
// up: both sums of an inner value end in one lane. Rows and inputs past the end are zero.
//
// Lane 4 g + t holds, of each 32 inputs of a step, inputs 8 t + i (i < 8) of rows g and g + 8:
// what ptx/mma.cuh calls the A of two products whose k is numbered in that order.
//
// A word of INT4 is the A of one product: nibble e of its low half and of its high half are the two
// values of register e, and the whole word is turned right by one bit, so that three shifts bring
// every nibble to bits 3-6 of its half, where bfloat16 16 + nibble has it. A word of FP8 holds two
// registers, one in bytes 1 and 3, the other in bytes 0 and 2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/weight_matrix.h"

namespace quire::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kInnerOfTile = 8;  // rows 0-7 of a tile are gates, rows 8-15 their ups
inline constexpr int kGroupTiles = 4;
inline constexpr int kStepValueBytes = 1024;
// Matrices are whole blocks of this many groups and inputs: what the prompt kernels take at once.
inline constexpr int kWholeGroups = 4;
inline constexpr int kWholeInputs = 128;
// INT4 scales of a step: for each g the four of row g, then the four of row g + 8; groups of 128
// repeat theirs.
inline constexpr int kInt4ScaleInputs = 32;

// Inputs of a step.
constexpr int step_inputs(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return 32;
    case WeightFormat::fp8_block128:
      return 64;
    case WeightFormat::int4_group:
      return 128;
  }
  return 0;
}

// Bytes of a tile's step.
constexpr int step_bytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return kStepValueBytes;
    case WeightFormat::fp8_block128:
      return kStepValueBytes + 32;  // float32 of rows 0-7 and of rows 8-15; whole sectors
    case WeightFormat::int4_group:
      return kStepValueBytes + 128;
  }
  return 0;
}

// The same where the format is known: what device code may call.
template <WeightFormat kFormat>
inline constexpr int kStepInputs = step_inputs(kFormat);
template <WeightFormat kFormat>
inline constexpr int kStepBytes = step_bytes(kFormat);

// A packed matrix of every expert of one kind.
struct PackedMatrix {
  const std::byte* data;  // [n_experts] of expert_bytes; null: there is none
  int64_t n_experts;
  int64_t expert_bytes;
  WeightFormat format;
  int step_bytes;  // of a tile
  int step_inputs;
  int n_groups;  // of four tiles
  int n_steps;   // over the inputs
};

}  // namespace quire::cuda
