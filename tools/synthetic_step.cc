#include "tools/synthetic_step.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/bytes.h"
#include "base/rng.h"
#include "ops/gather_rows.h"
#include "ops/random_fill.h"
#include "ops/sample.h"

namespace quire {

namespace {

constexpr uint64_t kSeed = 20261129;
// Values about as large as after a norm: e4m3 as random_fill makes them, times this.
constexpr float kValueScale = static_cast<float>(1 / kE4m3Deviation);
constexpr int64_t kScaleRows = 256;

// The scales of a block's tokens, over and over; every block gets one of a few random rows.
Status fill_scales(Backend& backend, std::byte* pool, const KvPageLayout& layout, int64_t n_pages) {
  const auto n_layers = static_cast<int64_t>(layout.blocks.size());
  const int64_t block_bytes = layout.page_bytes / n_layers;
  CHECK(layout.blocks.back().offset == (n_layers - 1) * block_bytes);  // evenly spaced
  const int64_t row_floats = int64_t{2} * layout.page_tokens;
  const int64_t row_bytes = row_floats * int64_t{sizeof(float)};
  const Buffer scales = TRY(allocate(backend, kScaleRows * row_bytes, "random scales"));
  ops::random_fill(backend, {.out = scales.data(),
                             .values = {.kind = RandomKind::uniform_f32,
                                        .n_rows = kScaleRows,
                                        .n_columns = row_floats,
                                        .stride = row_floats,
                                        .seed = kSeed + 1,
                                        .scale = kValueScale}});
  const int64_t n_blocks = n_pages * n_layers;
  Rng rng(kSeed);
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < n_blocks; ++i) {
    chosen.push_back(static_cast<int32_t>(rng.next_below(kScaleRows)));
  }
  const Buffer rows = TRY(allocate(backend, n_blocks * int64_t{sizeof(int32_t)}, "scale rows"));
  backend.copy_in(rows.data(), std::as_bytes(std::span(chosen)));
  // Copied as bits, two bytes at a time.
  const int64_t width = row_bytes / int64_t{sizeof(Bf16)};
  View<Bf16, 2> out =
      view_of(reinterpret_cast<Bf16*>(pool + layout.scale_offset(0)), n_blocks, width);
  out.stride[0] = block_bytes / int64_t{sizeof(Bf16)};
  ops::gather_rows(backend, {.out = out,
                             .x = scales.view<const Bf16>(kScaleRows, width),
                             .rows = rows.view<const int32_t>(n_blocks)});
  // The rows must live until the copies are done.
  backend.copy_out({}, nullptr);
  return {};
}

}  // namespace

Result<SyntheticPool> SyntheticPool::make(Backend& backend, int64_t bytes) {
  SyntheticPool pool;
  pool.memory_ = TRY(allocate(backend, bytes, "KV pool"));
  return pool;
}

Status SyntheticPool::fill(Backend& backend, const KvPageLayout& layout) {
  return fill_with_random_rows(backend,
                               {.data = data(), .n_pages = pages(layout), .layout = &layout});
}

Status fill_with_random_rows(Backend& backend, const PoolPages& pool) {
  const KvPageLayout& layout = *pool.layout;
  const bool is_fp8 = layout.format == KvFormat::fp8_e4m3_584;
  const RandomKind kind = is_fp8 ? RandomKind::e4m3 : RandomKind::normal_bf16;
  const int64_t n_columns = layout.page_bytes / element_bytes(kind);
  ops::random_fill(backend, {.out = pool.data,
                             .values = {.kind = kind,
                                        .n_rows = pool.n_pages,
                                        .n_columns = n_columns,
                                        .stride = n_columns,
                                        .seed = kSeed}});
  return is_fp8 ? fill_scales(backend, pool.data, layout, pool.n_pages) : Status{};
}

int64_t SyntheticShape::pages_per_row() const {
  return div_up(int64_t{first_position} + row_tokens, kPageTokens);
}

Result<SyntheticStep> SyntheticStep::make(Backend& backend, const SyntheticPool& pool,
                                          const KvPageLayout& layout, const SyntheticShape& shape,
                                          int64_t vocab) {
  const int64_t n_pages = pool.pages(layout);
  const int64_t width = shape.pages_per_row();
  const int64_t n_tokens = int64_t{shape.n_rows} * shape.row_tokens;
  CHECK(shape.n_rows > 0 && shape.row_tokens > 0 && shape.n_rows * width < n_pages);
  Rng rng(kSeed + 1);
  std::vector<int32_t> pages(static_cast<size_t>(n_pages - 1));
  std::iota(pages.begin(), pages.end(), 1);
  for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[rng.next_below(i)]);

  std::vector<int32_t> ids, rows, positions, row_begin, logit_rows;
  for (int32_t row = 0; row < shape.n_rows; ++row) {
    row_begin.push_back(static_cast<int32_t>(ids.size()));
    for (int32_t i = 0; i < shape.row_tokens; ++i) {
      ids.push_back(static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(vocab))));
      rows.push_back(row);
      positions.push_back(shape.first_position + i);
    }
    if (shape.wants_logits) logit_rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  row_begin.push_back(static_cast<int32_t>(n_tokens));
  pages.resize(static_cast<size_t>(shape.n_rows * width));

  std::vector<int32_t> all;
  for (const std::vector<int32_t>* part :
       {&ids, &rows, &positions, &row_begin, &logit_rows, &pages}) {
    all.insert(all.end(), part->begin(), part->end());
  }
  SyntheticStep step;
  step.memory_ = TRY(
      allocate(backend, static_cast<int64_t>(all.size() * sizeof(int32_t)), "inputs of a step"));
  backend.copy_in(step.memory_.data(), std::as_bytes(std::span(all)));
  const auto* at = reinterpret_cast<const int32_t*>(step.memory_.data());
  const auto take = [&at](const std::vector<int32_t>& part) {
    const auto n = static_cast<int64_t>(part.size());
    return view_of(std::exchange(at, at + n), n);
  };
  step.batch_.ids = take(ids);
  step.batch_.tokens.row = take(rows);
  step.batch_.tokens.position = take(positions);
  step.batch_.tokens.row_begin = take(row_begin);
  for (int32_t row = 0; row < shape.n_rows; ++row) {
    step.batch_.tokens.count_row(shape.row_tokens,
                                 int64_t{shape.first_position} + shape.row_tokens);
  }
  step.batch_.logit_rows = take(logit_rows);
  step.batch_.kv = {.pool = pool.data(),
                    .n_pages = n_pages,
                    .layout = &layout,
                    .table = view_of(at, int64_t{shape.n_rows}, width)};
  return step;
}

Result<SyntheticSampler> SyntheticSampler::make(Backend& backend, int64_t n_rows,
                                                const SamplerRow& row) {
  const auto zeros = [&backend](int64_t bytes) -> Result<Buffer> {
    Buffer buffer = TRY(allocate(backend, bytes, "the sampler of a bench"));
    backend.fill(buffer.data(), bytes, std::byte{0});
    return buffer;
  };
  SyntheticSampler out;
  const std::vector<SamplerRow> rows(static_cast<size_t>(n_rows), row);
  out.rows_ = TRY(zeros(n_rows * int64_t{sizeof(SamplerRow)}));
  backend.copy_in(out.rows_.data(), std::as_bytes(std::span(rows)));
  out.sampled_ = TRY(zeros(n_rows * int64_t{sizeof(ops::SampledRow)}));
  out.recent_ = TRY(zeros(n_rows * int64_t{sizeof(int32_t)}));
  out.step_ = TRY(zeros(sizeof(uint64_t)));
  return out;
}

void SyntheticSampler::run(Backend& backend, const View<float, 2>& logits) const {
  const int64_t n = logits[0];
  ops::sample(backend, {.out = sampled_.view<ops::SampledRow>(n),
                        .logits = logits,
                        .rows = rows_.view<const SamplerRow>(n),
                        .words = recent_.view<const int32_t>(int64_t{1}),
                        .recent = recent_.view<int32_t>(int64_t{1}, n),
                        .step = step_.view<const uint64_t>(int64_t{1})});
}

}  // namespace quire
