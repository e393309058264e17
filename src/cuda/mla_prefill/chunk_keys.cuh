// ChunkKeys: where the keys of a step's chunks lie once they are expanded by head.
//
// A chunk is a row of a step. Its sequence, from position 0 to the chunk's last token, is
// cut into blocks of 128 keys; the blocks of all chunks follow each other, in order of rows. They
// are expanded in rounds of as many blocks as the buffers hold.
#pragma once

#include <cstdint>

#include "cuda/mla_prefill/row_tiles.cuh"
#include "ops/paged_kv.h"

namespace quire::cuda {

struct ChunkKeys {
  const int32_t* row_begin;  // [n_rows + 1]
  const int32_t* position;   // [n_tokens]
  int32_t n_rows;

  __device__ int32_t n_blocks(int32_t row) const {
    const int32_t end = row_begin[row + 1];
    return end == row_begin[row] ? 0 : position[end - 1] / static_cast<int32_t>(kKeyBlock) + 1;
  }
  // Block `index` of all. By one whole warp; all lanes get it.
  __device__ InRow find(int32_t index) const {
    return find_in_rows(n_rows, index, [&](int32_t row) { return n_blocks(row); });
  }
  // Blocks of the rows before `row`. By one whole warp; all lanes get it.
  __device__ int32_t blocks_before(int32_t row) const {
    int32_t n = 0;
    for (int32_t r = lane_of_thread(); r < row; r += kWarpSize) n += n_blocks(r);
    return warp_sum(n);
  }
};

}  // namespace quire::cuda
