// place_tokens: a thread a token.
#include "base/bytes.h"
#include "cuda/common/launch.cuh"
#include "cuda/kernels.h"
#include "cuda/ptx/grid_dependency.cuh"

namespace quire::cuda {

namespace {

constexpr int kThreads = 128;

// Stores are not checked: no word of a check, and no code (tests/device/off_code.py).
struct NoGuard {
  __device__ bool allows(const TokenPlace&, int32_t, int32_t) const { return true; }
};

struct PageGuard {
  WriteGuard words;

  // Whether the row may write the page of the place; else it is noted.
  __device__ bool allows(const TokenPlace& place, int32_t row, int32_t position) const {
    if (place.page >= 0 &&
        is_writable(words.lives(place.page), words.tags(row, position / kPageTokens))) {
      return true;
    }
    if (row < 0 || row >= words.rows[0]) return false;
    atomicAdd(&words.rows(row).dropped, 1);
    atomicMax(&words.rows(row).dropped_page, max(place.page, 0));
    return false;
  }
};

template <class Guard>
struct Params {
  View<TokenPlace, 1> out;
  View<const int32_t, 2> table;
  View<const int32_t, 1> row;
  View<const int32_t, 1> position;
  int64_t n_pages;
  Guard guard;  // last: an empty one moves nothing
};

// Grid ceil(n_tokens / 128), 128 threads, no shared memory. Moves 24 bytes a token, and with a
// guard 24 more: bound by a chain of three latencies. Sums and maxima are of integers: the same for
// any order.
template <class Guard>
__global__ __launch_bounds__(kThreads) void place_tokens_kernel(
    const __grid_constant__ Params<Guard> p) {
  let_next_kernel_begin();
  const int64_t token = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  wait_for_earlier_kernels();
  if (token >= p.out[0]) return;
  const int32_t row = p.row(token);
  const int32_t position = p.position(token);
  TokenPlace place = place_by_table(p.table, p.n_pages, token, row, position);
  if (!p.guard.allows(place, row, position)) place = no_place(token);
  p.out(token) = place;
}

bool is_guarded(const WriteGuard& guard) { return guard.tags.data != nullptr; }

template <class Guard>
void launch_place(const Context& context, const ops::PlaceTokens& args, const Guard& guard) {
  const Params<Guard> p{.out = args.out,
                        .table = args.kv.table,
                        .row = args.tokens.row,
                        .position = args.tokens.position,
                        .n_pages = args.kv.n_pages,
                        .guard = guard};
  launch(
      context.stream,
      {.grid = static_cast<unsigned>(div_up(args.out[0], int64_t{kThreads})), .threads = kThreads},
      place_tokens_kernel<Guard>, p);
}

}  // namespace

void place_tokens(const Context& context, const ops::PlaceTokens& args) {
  if (is_guarded(args.guard)) return launch_place(context, args, PageGuard{args.guard});
  launch_place(context, args, NoGuard{});
}

}  // namespace quire::cuda
