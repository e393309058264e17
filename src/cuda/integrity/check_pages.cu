// check_pages: a block a row of the step.
#include "cuda/common/launch.cuh"
#include "cuda/common/reduce.cuh"
#include "cuda/kernels.h"
#include "cuda/ptx/grid_dependency.cuh"
#include "cuda/ptx/prefetch.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kAhead = 4;  // entries of a thread whose loads are under way together
constexpr int kNone = 0x7fffffff;

struct Params {
  PageCheck* out;          // [n_rows]
  const uint64_t* nonces;  // [n_rows]
  const PageTag* tags;     // [n_rows, width]
  int32_t* table;          // [n_rows, width]
  const PageLife* lives;   // [n_pages]
  const uint64_t* step;
  int32_t width;
  int32_t n_pages;
};

// What a thread found in its entries.
struct Found {
  int32_t compared = 0;
  int32_t failed = 0;
  int32_t first = kNone;
};

__device__ PageLife life_at(const Params& p, int32_t page) {
  if (page <= 0 || page >= p.n_pages) return {};
  const uint4 bits = *reinterpret_cast<const uint4*>(p.lives + page);
  return {.tag = uint64_t{bits.y} << 32 | bits.x, .state = uint64_t{bits.w} << 32 | bits.z};
}

// Has what look_at will read on its way while earlier kernels run. What the table says now only
// chooses what is fetched.
__device__ void look_ahead(const Params& p, int64_t row) {
  for (int32_t k = static_cast<int32_t>(threadIdx.x); k < p.width; k += kThreads) {
    prefetch(p.tags + row * p.width + k);
    const int32_t page = __ldcg(p.table + row * p.width + k);
    if (page > 0 && page < p.n_pages) prefetch(p.lives + page);
  }
}

__device__ Found look_at(const Params& p, int64_t row) {
  Found found;
  const PageTag* tags = p.tags + row * p.width;
  const int32_t* table = p.table + row * p.width;
  for (int32_t base = static_cast<int32_t>(threadIdx.x); base < p.width;
       base += kAhead * kThreads) {
    PageTag tag[kAhead];
    int32_t page[kAhead];
    PageLife life[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int32_t k = base + i * kThreads;
      tag[i] = k < p.width ? tags[k] : kNoTag;
      page[i] = k < p.width ? table[k] : -1;
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) life[i] = life_at(p, page[i]);
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      found.compared += tag[i] == kNoTag ? 0 : 1;
      if (is_current(life[i], tag[i]) || is_unused(page[i], tag[i])) continue;
      ++found.failed;
      found.first = min(found.first, base + i * kThreads);
    }
  }
  return found;
}

// By one thread: what the block found, into the row's words, which were `out`.
__device__ void report(const Params& p, int64_t row, const Found& found, PageCheck out) {
  out.compared += found.compared;
  if (found.failed > 0 && out.failed == 0) {
    out.first = found.first;
    out.page = p.table[row * p.width + found.first];
    out.found_tag = life_at(p, out.page).tag;
  }
  out.failed += found.failed;
  p.out[row] = out;
}

// Grid n_rows, 512 threads, 0.2 KB of shared memory. Reads 12 bytes an entry and a 16-byte life for
// each that names a page, 0.6 MB at 64 rows of 336 pages, all of it just copied or in L2: bound by
// two latencies. Sums and the minimum are of integers: the same for any order.
template <ops::CheckTime kTime>
__global__ __launch_bounds__(kThreads) void check_pages_kernel(const __grid_constant__ Params p) {
  __shared__ Found of_warps[kWarps];
  let_next_kernel_begin();
  const int64_t row = blockIdx.x;
  look_ahead(p, row);
  wait_for_earlier_kernels();
  constexpr bool kIsBefore = kTime == ops::CheckTime::before;
  PageCheck words;
  if (threadIdx.x == 0) {
    words = kIsBefore ? PageCheck{.step = *p.step, .nonce = p.nonces[row]} : p.out[row];
  }
  Found found = look_at(p, row);
  found.compared = warp_sum(found.compared);
  found.failed = warp_sum(found.failed);
  found.first = __reduce_min_sync(kFullWarp, found.first);
  if (lane_of_thread() == 0) of_warps[warp_of_thread()] = found;
  __syncthreads();
  found = {};
  for (const Found& one : of_warps) {
    found.compared += one.compared;
    found.failed += one.failed;
    found.first = min(found.first, one.first);
  }
  if (threadIdx.x == 0) report(p, row, found, words);
  if (!kIsBefore || found.failed == 0) return;
  __syncthreads();  // what the table said is in the report
  for (int32_t k = static_cast<int32_t>(threadIdx.x); k < p.width; k += kThreads) {
    p.table[row * p.width + k] = 0;
  }
}

}  // namespace

void check_pages(const Context& context, const ops::CheckPages& args) {
  const Params p{.out = args.out.data,
                 .nonces = args.inputs.nonces.data,
                 .tags = args.inputs.tags.data,
                 .table = args.inputs.table.data,
                 .lives = args.lives.data,
                 .step = args.step.data,
                 .width = static_cast<int32_t>(args.inputs.shape.table_width),
                 .n_pages = static_cast<int32_t>(args.lives[0])};
  const auto kernel = args.time == ops::CheckTime::before
                          ? check_pages_kernel<ops::CheckTime::before>
                          : check_pages_kernel<ops::CheckTime::after>;
  launch(context.stream, {.grid = static_cast<unsigned>(args.out[0]), .threads = kThreads}, kernel,
         p);
}

}  // namespace quire::cuda
