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
  // `after` alone.
  View<const TokenPlace, 1> places;  // [n_tokens]; empty: they are not compared
  const int32_t* positions;          // [n_tokens]
  const int32_t* row_begin;          // [n_rows + 1]
  bool is_settled;                   // none of it is written since before the last kernel began
};

// What a thread found in its entries.
struct Found {
  int32_t compared = 0;
  int32_t failed = 0;
  int32_t first = kNone;
  int32_t misplaced = 0;        // tokens
  int32_t misplaced_page = -1;  // the largest page that one of them belongs to
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

// Adds the places of the row's tokens that are not what the table says.
__device__ void look_at_places(const Params& p, int64_t row, Found* found) {
  const auto table = view_of<const int32_t>(p.table, int64_t{gridDim.x}, int64_t{p.width});
  const int64_t end = min(int64_t{p.row_begin[row + 1]}, p.places[0]);
  for (int64_t t = max(p.row_begin[row], 0) + int64_t{threadIdx.x}; t < end; t += kThreads) {
    const TokenPlace right =
        place_by_table(table, p.n_pages, t, static_cast<int32_t>(row), p.positions[t]);
    if (p.places(t) == right) continue;
    ++found->misplaced;
    found->misplaced_page = max(found->misplaced_page, max(right.page, 0));
  }
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
  if (found.misplaced > 0 && out.dropped == 0) {
    out.dropped = found.misplaced;
    out.dropped_page = found.misplaced_page;
  }
  p.out[row] = out;
}

// Grid n_rows, 512 threads, 0.3 KB of shared memory. Reads 12 bytes an entry and a 16-byte life for
// each that names a page, 0.6 MB at 64 rows of 336 pages, all of it just copied or in L2: bound by
// two latencies. Sums, the minimum and the maximum are of integers: the same for any order.
//
// The second comparison needs nothing of the sampler, which lets it begin when all before it is
// done (sample/sample.cu): it is made beside that, and waits only to end.
template <ops::CheckTime kTime>
__global__ __launch_bounds__(kThreads) void check_pages_kernel(const __grid_constant__ Params p) {
  __shared__ Found of_warps[kWarps];
  let_next_kernel_begin();
  const int64_t row = blockIdx.x;
  constexpr bool kIsBefore = kTime == ops::CheckTime::before;
  if (kIsBefore || !p.is_settled) {
    look_ahead(p, row);
    wait_for_earlier_kernels();
  }
  PageCheck words;
  if (threadIdx.x == 0) {
    words = kIsBefore ? PageCheck{.step = *p.step, .nonce = p.nonces[row]} : p.out[row];
  }
  Found found = look_at(p, row);
  if (!kIsBefore && p.places[0] > 0) look_at_places(p, row, &found);
  found.compared = warp_sum(found.compared);
  found.failed = warp_sum(found.failed);
  found.first = __reduce_min_sync(kFullWarp, found.first);
  if (!kIsBefore) {
    found.misplaced = warp_sum(found.misplaced);
    found.misplaced_page = __reduce_max_sync(kFullWarp, found.misplaced_page);
  }
  if (lane_of_thread() == 0) of_warps[warp_of_thread()] = found;
  __syncthreads();
  found = {};
  for (const Found& one : of_warps) {
    found.compared += one.compared;
    found.failed += one.failed;
    found.first = min(found.first, one.first);
    found.misplaced += one.misplaced;
    found.misplaced_page = max(found.misplaced_page, one.misplaced_page);
  }
  if (threadIdx.x == 0) report(p, row, found, words);
  if (!kIsBefore && p.is_settled) wait_for_earlier_kernels();
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
                 .n_pages = static_cast<int32_t>(args.lives[0]),
                 .places = args.places,
                 .positions = args.inputs.positions.data,
                 .row_begin = args.inputs.row_begin.data,
                 .is_settled = args.inputs.shape.n_logits > 0};
  const auto kernel = args.time == ops::CheckTime::before
                          ? check_pages_kernel<ops::CheckTime::before>
                          : check_pages_kernel<ops::CheckTime::after>;
  launch(context.stream, {.grid = static_cast<unsigned>(args.out[0]), .threads = kThreads}, kernel,
         p);
}

}  // namespace quire::cuda
