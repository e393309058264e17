#include <algorithm>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

// A life that no tag names, for pages that the pool does not have.
PageLife life_at(const View<const PageLife, 1>& lives, int32_t page) {
  return page > 0 && page < lives[0] ? lives(page) : PageLife{};
}

// Places of the row's tokens that are not what the table says. Row_begin may be of any bits.
void check_places(const ops::CheckPages& args, int64_t row) {
  PageCheck& out = args.out(row);
  if (out.dropped > 0) return;
  const StepInputs& in = args.inputs;
  const int64_t begin = std::max(in.row_begin(row), 0);
  const int64_t end = std::min<int64_t>(in.row_begin(row + 1), args.places[0]);
  for (int64_t t = begin; t < end; ++t) {
    const TokenPlace right =
        place_by_table(in.table, args.lives[0], t, static_cast<int32_t>(row), in.positions(t));
    if (args.places(t) == right) continue;
    ++out.dropped;
    out.dropped_page = std::max({out.dropped_page, right.page, 0});
  }
}

void check_row(const ops::CheckPages& args, int64_t row) {
  PageCheck& out = args.out(row);
  if (args.time == ops::CheckTime::before) {
    out = {.step = args.step(0), .nonce = args.inputs.nonces(row)};
  }
  const bool found_before = out.failed > 0;
  int32_t failed = 0;
  for (int64_t k = 0; k < args.inputs.shape.table_width; ++k) {
    const PageTag tag = args.inputs.tags(row, k);
    const int32_t page = args.inputs.table(row, k);
    const PageLife life = life_at(args.lives, page);
    out.compared += tag == kNoTag ? 0 : 1;
    if (is_current(life, tag) || is_unused(page, tag)) continue;
    if (++failed > 1 || found_before) continue;
    out.first = static_cast<int32_t>(k);
    out.page = page;
    out.found_tag = life.tag;
  }
  out.failed += failed;
  if (args.time == ops::CheckTime::after && args.places[0] > 0) check_places(args, row);
  if (failed > 0 && args.time == ops::CheckTime::before) {
    std::fill_n(args.inputs.table.row(row).data, args.inputs.shape.table_width, 0);
  }
}

}  // namespace

void check_pages(const ops::CheckPages& args) {
  for (int64_t row = 0; row < args.out[0]; ++row) check_row(args, row);
}

}  // namespace quire::cpu
