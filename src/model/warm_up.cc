#include "model/warm_up.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "format/kv_page.h"

namespace quire {

namespace {

// How many chunks long the prompts of a first step are. The last chunk of the longest context would
// take seconds, and kernels go through keys in rounds of bounded memory: a few chunks of keys are
// enough to need all of it.
constexpr int64_t kPromptChunks = 4;

// The inputs of a step, on the host. All pages of all rows are page 1: what is computed does not
// matter, how much is.
struct Step {
  std::vector<int32_t> row, position, row_begin;
  TokenRows known;  // what a step says of its rows on the host

  void add_row(int64_t first_position, int64_t n) {
    row_begin.push_back(static_cast<int32_t>(row.size()));
    for (int64_t i = 0; i < n; ++i) {
      row.push_back(static_cast<int32_t>(row_begin.size() - 1));
      position.push_back(static_cast<int32_t>(first_position + i));
    }
    known.count_row(n, first_position + n);
  }
};

Step prompts(const WarmUpSizes& sizes) {
  // Chunks of prompts come late in them, too: with more keys than are expanded at once.
  const int64_t end = std::min(sizes.context_max, kPromptChunks * sizes.tokens_max);
  Step step;
  for (const int64_t n : largest_step_rows(sizes)) step.add_row(n > 1 ? end - n : 0, n);
  return step;
}

Step decodes(const WarmUpSizes& sizes) {
  Step step;
  for (int64_t row = 0; row < sizes.rows_max; ++row) step.add_row(sizes.context_max - 1, 1);
  return step;
}

Status run(Model& model, Backend& backend, const WarmUpSizes& sizes, Step step) {
  const auto n_tokens = static_cast<int64_t>(step.row.size());
  const auto n_rows = static_cast<int64_t>(step.row_begin.size());
  step.row_begin.push_back(static_cast<int32_t>(n_tokens));
  const int64_t pages_max = div_up(sizes.context_max, kPageTokens);
  std::vector<int32_t> logit_rows;
  for (int64_t r = 0; r < n_rows; ++r) {
    logit_rows.push_back(step.row_begin[static_cast<size_t>(r) + 1] - 1);
  }
  const std::vector<int32_t> ids(static_cast<size_t>(n_tokens), 1);
  const std::vector<int32_t> table(static_cast<size_t>(n_rows * pages_max), 1);

  std::vector<int32_t> words;
  const auto append = [&](const std::vector<int32_t>& from) {
    const auto at = static_cast<int64_t>(words.size());
    words.insert(words.end(), from.begin(), from.end());
    return at;
  };
  const int64_t ids_at = append(ids);
  const int64_t row_at = append(step.row);
  const int64_t position_at = append(step.position);
  const int64_t begin_at = append(step.row_begin);
  const int64_t logits_at = append(logit_rows);
  const int64_t table_at = append(table);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(words));
  const Buffer inputs =
      TRY(allocate(backend, static_cast<int64_t>(bytes.size()), "the inputs of a first step"));
  backend.copy_in(inputs.data(), bytes);
  const int64_t pool_bytes = 2 * model.kv_layout().page_bytes;
  const Buffer pool = TRY(allocate(backend, pool_bytes, "the pages of a first step"));
  backend.fill(pool.data(), pool_bytes, std::byte{0});

  const auto* on_backend = reinterpret_cast<const int32_t*>(inputs.data());
  TokenRows tokens = step.known;
  tokens.row = view_of(on_backend + row_at, n_tokens);
  tokens.position = view_of(on_backend + position_at, n_tokens);
  tokens.row_begin = view_of(on_backend + begin_at, n_rows + 1);
  model.forward({.ids = view_of(on_backend + ids_at, n_tokens),
                 .tokens = tokens,
                 .kv = {.pool = pool.data(),
                        .n_pages = 2,
                        .layout = &model.kv_layout(),
                        .table = view_of(on_backend + table_at, n_rows, pages_max)},
                 .logit_rows = view_of(on_backend + logits_at, n_rows)});
  backend.copy_out({}, nullptr);  // waits: the inputs and the pages go now
  return {};
}

}  // namespace

std::vector<int64_t> largest_step_rows(const WarmUpSizes& sizes) {
  std::vector<int64_t> rows(static_cast<size_t>(sizes.rows_max), 1);
  int64_t left = sizes.tokens_max - sizes.rows_max;
  for (size_t r = rows.size(); r-- > 0;) {
    const int64_t more = std::min(left, sizes.context_max - 1);
    rows[r] += more;
    left -= more;
  }
  return rows;
}

Status warm_up(Model& model, Backend& backend, const WarmUpSizes& sizes) {
  CHECK(sizes.rows_max > 0 && sizes.tokens_max >= sizes.rows_max && sizes.context_max > 0);
  TRY_OK(run(model, backend, sizes, prompts(sizes)));
  return run(model, backend, sizes, decodes(sizes));
}

}  // namespace quire
