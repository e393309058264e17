// PagedBlocks: PagedKv and one layer of its layout, as kernels take it. 64-bit offsets: a pool
// passes 2^32 bytes.
#pragma once

#include <cstdint>

#include "ops/paged_kv.h"

namespace quire::cuda {

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
  // The layer's block of a physical page.
  __device__ std::byte* block(int64_t page) const {
    return pool + page * page_bytes + block_offset;
  }
  __device__ static int64_t scales_at(int32_t values) { return int64_t{kPageTokens} * values; }
};

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
