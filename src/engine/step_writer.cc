#include "engine/step_writer.h"

#include <algorithm>

#include "base/check.h"
#include "model/warm_up.h"

namespace quire {

namespace {

void take_counts(const TokenRows& counted, StepShape* shape) {
  shape->row_tokens_max = counted.row_tokens_max;
  shape->n_lone = counted.n_lone;
  shape->key_blocks = counted.key_blocks;
}

int64_t tag_width_of(int64_t table_width, StepChecks checks) {
  return checks == StepChecks::none ? 0 : table_width;
}

WordSlice write_changes(std::span<const PageChange> changes, ops::SamplerWords& words) {
  const int32_t begin = words.used();
  for (const PageChange& change : changes) {
    words.add(change.page);
    words.add(change.state);
    words.add(static_cast<int32_t>(change.tag_low));
    words.add(static_cast<int32_t>(change.tag_high));
  }
  return {.begin = begin, .end = words.used()};
}

// A context that needs all of its pages for certain.
std::vector<int64_t> largest_rows(const PlanLimits& limits) {
  return largest_step_rows({.tokens_max = limits.tokens_max,
                            .rows_max = limits.rows_max,
                            .context_max = int64_t{limits.pages_max - 1} * limits.page_tokens + 1});
}

}  // namespace

StepShape shape_of(const StepPlan& plan, std::span<LiveRow> live, StepChecks checks) {
  StepShape shape{.n_rows = static_cast<int64_t>(live.size()), .table_width = 1};
  TokenRows counted;
  for (LiveRow& row : live) {
    const StepRow& planned = plan.rows[row.planned];
    const auto n_tokens = static_cast<int64_t>(planned.tokens.size());
    shape.n_tokens += n_tokens;
    counted.count_row(n_tokens, planned.first_position + n_tokens);
    shape.table_width = std::max(shape.table_width, static_cast<int64_t>(planned.pages.size()));
    if (planned.n_logits > 0) row.logit = shape.n_logits++;
  }
  for (LiveRow& row : live) {
    const auto n_targets = static_cast<int64_t>(plan.rows[row.planned].targets.size());
    if (n_targets > 0) row.scores = shape.n_logits;
    shape.n_logits += n_targets;
  }
  take_counts(counted, &shape);
  shape.tag_width = tag_width_of(shape.table_width, checks);
  return shape;
}

StepShape largest_shape(const PlanLimits& limits, StepChecks checks) {
  StepShape shape{.n_rows = limits.rows_max,
                  .n_logits = limits.rows_max,
                  .table_width = limits.pages_max,
                  .tag_width = tag_width_of(limits.pages_max, checks)};
  TokenRows counted;
  for (const int64_t n : largest_rows(limits)) {
    counted.count_row(n, n);
    shape.n_tokens += n;
  }
  take_counts(counted, &shape);
  return shape;
}

StepShape decode_shape(int64_t n_rows, const PlanLimits& limits, StepChecks checks) {
  return {.n_rows = n_rows,
          .n_tokens = n_rows,
          .n_logits = n_rows,
          .table_width = limits.pages_max,
          .tag_width = tag_width_of(limits.pages_max, checks),
          .row_tokens_max = 1,
          .n_lone = n_rows};
}

TokenRows token_rows(const StepInputs& inputs) {
  return {.row = inputs.rows,
          .position = inputs.positions,
          .row_begin = inputs.row_begin,
          .row_tokens_max = inputs.shape.row_tokens_max,
          .n_lone = inputs.shape.n_lone,
          .key_blocks = inputs.shape.key_blocks};
}

bool is_decode(const StepPlan& plan, std::span<const LiveRow> live) {
  return std::ranges::all_of(live, [&](const LiveRow& row) {
    const StepRow& planned = plan.rows[row.planned];
    return planned.tokens.size() == 1 && planned.n_logits == 1 && planned.targets.empty();
  });
}

int64_t step_inputs_bytes_max(const PlanLimits& limits) {
  const int64_t context = int64_t{limits.pages_max} * limits.page_tokens;
  const int64_t extra_words = limits.rows_max * ops::sampler_words_max(context, limits.vocab_size);
  return step_inputs_bytes({.n_rows = limits.rows_max,
                            .n_tokens = limits.tokens_max,
                            .n_logits = limits.tokens_max,
                            .table_width = limits.pages_max,
                            .tag_width = limits.pages_max}) +
         (extra_words + limits.n_pages * kPageChangeWords) * int64_t{sizeof(int32_t)};
}

SamplerRow StepWriter::sampler_of(const StepRow& row, const RecentTokens& recent,
                                  ops::SamplerWords& words) {
  const SamplerPlan& plan = row.sampler;
  generated_.clear();
  for (const TokenSource& source : plan.generated) generated_.push_back(recent.word_of(source));
  return ops::encode_sampler(
      plan.settings,
      {.position = static_cast<uint64_t>(row.first_position) + row.tokens.size(),
       .prompt = plan.prompt,
       .generated = generated_,
       .mask = plan.mask},
      limits_.vocab_size, words);
}

void StepWriter::write_row(const StepRow& row, const LiveRow& live, const RecentTokens& recent,
                           const StepInputs& inputs) {
  inputs.nonces(row_) = row.nonce;
  inputs.row_begin(row_) = static_cast<int32_t>(token_);
  int32_t* const table = inputs.table.row(row_).data;
  const auto n_pages = static_cast<int64_t>(row.pages.size());
  for (int64_t k = 0; k < n_pages; ++k) {
    table[k] = row.pages[static_cast<size_t>(k)].page.value;
  }
  std::fill(table + n_pages, table + inputs.shape.table_width, -1);
  if (inputs.shape.tag_width > 0) {
    PageTag* const tags = inputs.tags.row(row_).data;
    for (int64_t k = 0; k < n_pages; ++k) tags[k] = row.pages[static_cast<size_t>(k)].tag;
    std::fill(tags + n_pages, tags + inputs.shape.tag_width, kNoTag);
  }
  for (size_t i = 0; i < row.targets.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    inputs.logit_rows(live.scores + at) = static_cast<int32_t>(token_ + at);
    inputs.samplers(live.scores + at) = ops::encode_score(row.targets[i], row.target_tops);
  }
  int32_t position = row.first_position;
  for (const TokenSource& source : row.tokens) {
    inputs.ids(token_) = recent.word_of(source);
    inputs.rows(token_) = static_cast<int32_t>(row_);
    inputs.positions(token_++) = position++;
  }
  if (live.logit >= 0) inputs.logit_rows(live.logit) = static_cast<int32_t>(token_ - 1);
  ++row_;
}

int64_t StepWriter::write(const StepContent& content, const RecentTokens& recent, uint64_t sent,
                          const StepInputs& inputs) {
  ops::SamplerWords words({inputs.extra.data, static_cast<size_t>(inputs.extra[0])});
  row_ = token_ = 0;
  for (const LiveRow& row : content.live) {
    const StepRow& planned = content.plan.rows[row.planned];
    write_row(planned, row, recent, inputs);
    if (row.logit >= 0) inputs.samplers(row.logit) = sampler_of(planned, recent, words);
  }
  for (; row_ < inputs.shape.n_rows; ++row_, ++token_) {
    CHECK(inputs.shape.row_tokens_max == 1);  // only decode steps are padded
    inputs.nonces(row_) = 0;
    inputs.samplers(row_) = {};
    inputs.ids(token_) = inputs.positions(token_) = 0;
    inputs.rows(token_) = inputs.row_begin(row_) = static_cast<int32_t>(row_);
    inputs.logit_rows(row_) = static_cast<int32_t>(token_);
    std::fill_n(inputs.table.row(row_).data, inputs.shape.table_width, 0);
    std::fill_n(inputs.tags.row(row_).data, inputs.shape.tag_width, kNoTag);
  }
  inputs.row_begin(row_) = static_cast<int32_t>(token_);
  if (inputs.shape.tag_width > 0) inputs.changes(0) = write_changes(content.changes, words);
  close_step_inputs(inputs, sent, static_cast<uint32_t>(content.live.size()), words.used());
  return (inputs.fixed_words() + words.used()) * static_cast<int64_t>(sizeof(int32_t));
}

int64_t StepWriter::write_largest(uint64_t sent, const StepInputs& inputs) const {
  const StepShape& shape = inputs.shape;
  std::fill_n(inputs.table.data, inputs.table.size(), 0);
  std::fill_n(inputs.tags.data, inputs.tags.size(), kNoTag);
  std::fill_n(inputs.changes.data, inputs.changes.size(), WordSlice{});
  std::fill_n(inputs.ids.data, shape.n_tokens, 0);
  const std::vector<int64_t> rows = largest_rows(limits_);
  int64_t token = 0;
  for (int64_t r = 0; r < shape.n_rows; ++r) {
    inputs.nonces(r) = 0;
    inputs.row_begin(r) = static_cast<int32_t>(token);
    for (int64_t position = 0; position < rows[static_cast<size_t>(r)]; ++position, ++token) {
      inputs.rows(token) = static_cast<int32_t>(r);
      inputs.positions(token) = static_cast<int32_t>(position);
    }
  }
  inputs.row_begin(shape.n_rows) = static_cast<int32_t>(shape.n_tokens);
  for (int64_t i = 0; i < shape.n_logits; ++i) {
    inputs.samplers(i) = {};
    inputs.logit_rows(i) = static_cast<int32_t>(i);
  }
  close_step_inputs(inputs, sent, 0, 0);
  return step_inputs_bytes(shape);
}

}  // namespace quire
