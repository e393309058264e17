// embed and gather_rows: rows of a table, by index.
#include <algorithm>

#include "cuda/common/cuda_must.h"
#include "cuda/common/numbers.cuh"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

constexpr int kThreads = 256;

struct Params {
  Bf16* out;             // [n, dim]
  const Bf16* table;     // [n_rows, dim]
  const int32_t* index;  // [n]
  int64_t out_stride;    // elements between rows
  int64_t table_stride;  // elements between rows
  int64_t n_rows;
  int64_t dim;
  int32_t first;    // index of row 0
  bool is_aligned;  // rows of both begin at 16 bytes, dim is a multiple of 8
};

// One row a block. Grid n, 256 threads, no shared memory. Moves 4 * dim bytes a row: bound by
// memory. An index outside the table gives zeros.
__global__ __launch_bounds__(kThreads) void copy_rows_kernel(const __grid_constant__ Params p) {
  const int64_t row = int64_t{p.index[blockIdx.x]} - p.first;
  const Bf16* from = p.table + row * p.table_stride;
  Bf16* to = p.out + int64_t{blockIdx.x} * p.out_stride;
  if (row < 0 || row >= p.n_rows) {
    for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) to[i] = Bf16{};
    return;
  }
  if (p.is_aligned) {
    for (int64_t i = threadIdx.x; i < p.dim / 8; i += kThreads) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    }
    return;
  }
  for (int64_t i = threadIdx.x; i < p.dim; i += kThreads) to[i] = from[i];
}

template <class T>
bool rows_at_16(const View<T, 2>& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride[0] % 8 == 0;
}

void copy_rows(const Context& context, const View<Bf16, 2>& out, const View<const Bf16, 2>& table,
               const View<const int32_t, 1>& index, int32_t first) {
  const Params p{.out = out.data,
                 .table = table.data,
                 .index = index.data,
                 .out_stride = out.stride[0],
                 .table_stride = table.stride[0],
                 .n_rows = table[0],
                 .dim = out[1],
                 .first = first,
                 .is_aligned = rows_at_16(out) && rows_at_16(table) && out[1] % 8 == 0};
  copy_rows_kernel<<<static_cast<unsigned>(out[0]), kThreads, 0, context.stream>>>(p);
  CUDA_MUST(cudaGetLastError());
}

}  // namespace

// Started plainly, as copy_rows is, it is a wall: no kernel behind it begins before a step's inputs
// and the places of its tokens are there. append_latent and mla_decode read them, and pages of
// earlier steps, ahead of their turn.
void embed(const Context& context, const ops::Embed& args) {
  copy_rows(context, args.out, args.table, args.ids, args.first_id);
}

void gather_rows(const Context& context, const ops::GatherRows& args) {
  copy_rows(context, args.out, args.x, args.rows, 0);
}

}  // namespace quire::cuda
