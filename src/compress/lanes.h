// Rows of weights to and from the sixteen lanes that compress/group_fit.h works on, and the squares
// of what a row loses. Bits are the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compress/group_fit.h"

namespace quire {

// Of n_lanes groups that follow each other in `row` to [group, kFitLanes], zeros from n_lanes on.
// group: a multiple of 4.
void gather_groups(const float* row, int64_t group, int64_t n_lanes, float* out);

// The same way back: of codes [group, kFitLanes] below 16 to two a byte, the even input low. group:
// 16, or a multiple of 32.
void scatter_nibbles(const uint8_t* codes, int64_t group, int64_t n_lanes, std::byte* out);

// Adds n inputs to the sums, input i to lane i % kFitLanes, in order.
void add_squares(const float* weights, const float* values, int64_t n, FitSums* sums);

}  // namespace quire
