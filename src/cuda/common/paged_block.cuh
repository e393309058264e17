// PagedBlocks: PagedKv and one layer of its layout, as kernels take it. 64-bit offsets: a pool
// passes 2^32 bytes.
#pragma once

#include <cstdint>

#include "cuda/common/numbers.cuh"
#include "ops/paged_kv.h"

namespace quire::cuda {

// The two parts of a row.
enum class RowPart : uint8_t { latent, key };

struct PagedBlocks {
  std::byte* pool;       // [n_pages, page_bytes]
  const int32_t* table;  // [n_rows, pages_max] physical pages
  int64_t table_stride;  // elements between rows
  int64_t n_pages;
  int64_t page_bytes;
  int64_t block_offset;  // bytes of the layer's block in its page
  int32_t latent_dim;    // kv_lora_rank
  int32_t rope_dim;
  KvFormat format;

  __device__ int32_t values() const { return latent_dim + rope_dim; }
  __device__ RowPart part_of(int32_t column) const {
    return column < latent_dim ? RowPart::latent : RowPart::key;
  }
  // The layer's block of a physical page.
  __device__ std::byte* block(int64_t page) const {
    return pool + page * page_bytes + block_offset;
  }
  __device__ static int64_t scales_at(int32_t values) { return int64_t{kPageTokens} * values; }
};

// FP8: a stored byte, without its scale.
__device__ inline float stored_value(uint8_t byte, RowPart part) {
  return part == RowPart::latent ? from_e4m3(byte) : static_cast<float>(static_cast<int8_t>(byte));
}
// Four of them, lowest byte first, as bfloat16 pairs: exact.
__device__ inline void stored_to_bf16(uint32_t four, RowPart part, bf16x2* low, bf16x2* high) {
  if (part == RowPart::latent) return e4m3x4_to_bf16(four, low, high);
  const auto value = [&](int i) { return stored_value(four >> (8 * i) & 0xffU, RowPart::key); };
  *low = __floats2bfloat162_rn(value(0), value(1));
  *high = __floats2bfloat162_rn(value(2), value(3));
}

inline PagedBlocks blocks_of(const PagedKv& kv, int32_t layer) {
  return {.pool = kv.pool,
          .table = kv.table.data,
          .table_stride = kv.table.stride[0],
          .n_pages = kv.n_pages,
          .page_bytes = kv.layout->page_bytes,
          .block_offset = kv.layout->blocks[static_cast<size_t>(layer)].offset,
          .latent_dim = kv.layout->kv_lora_rank,
          .rope_dim = kv.layout->rope_dim,
          .format = kv.layout->format};
}

}  // namespace quire::cuda
