#include "engine/executor.h"

#include <algorithm>

#include "base/text.h"
#include "ops/sample.h"

namespace quire {

namespace {

Status check_tokens(const StepRow& row, const PlanLimits& limits) {
  for (const TokenSource& source : row.tokens) {
    if (source.literal >= limits.vocab_size || (source.literal < 0 && !source.ticket)) {
      return invalid_argument(format("request %llu: token %d: expected 0 to %d",
                                     static_cast<unsigned long long>(row.request.value),
                                     source.literal, limits.vocab_size - 1));
    }
  }
  for (const Token target : row.targets) {
    if (0 <= target && target < limits.vocab_size) continue;
    return invalid_argument(format("request %llu: target %d: expected 0 to %d",
                                   static_cast<unsigned long long>(row.request.value), target,
                                   limits.vocab_size - 1));
  }
  return {};
}

Status check_row(const StepRow& row, const PlanLimits& limits) {
  const auto request = static_cast<unsigned long long>(row.request.value);
  const int64_t end = int64_t{row.first_position} + static_cast<int64_t>(row.tokens.size());
  if (row.tokens.empty() || row.first_position < 0 || row.committed < 0) {
    return invalid_argument(format("request %llu: a row of %zu tokens from position %d", request,
                                   row.tokens.size(), row.first_position));
  }
  if (row.n_logits < 0 || row.n_logits > static_cast<int32_t>(row.tokens.size())) {
    return invalid_argument(format("request %llu: %d logit rows of %zu tokens", request,
                                   row.n_logits, row.tokens.size()));
  }
  if (row.n_logits > 1) return unsupported("a row with more than one logit row");
  if (row.targets.size() + static_cast<size_t>(row.n_logits) > row.tokens.size() ||
      row.target_tops < 0 || row.target_tops > kTopLogprobsMax) {
    return invalid_argument(format("request %llu: %zu targets with %d alternatives, of %zu tokens",
                                   request, row.targets.size(), row.target_tops,
                                   row.tokens.size()));
  }
  if (static_cast<int64_t>(row.pages.size()) > limits.pages_max ||
      static_cast<int64_t>(row.pages.size()) * limits.page_tokens < end) {
    return invalid_argument(format("request %llu: %zu pages for %lld tokens", request,
                                   row.pages.size(), static_cast<long long>(end)));
  }
  for (const TaggedPage& page : row.pages) {
    if (page.page.value < 0 || page.page.value >= limits.n_pages) {
      return invalid_argument(format("request %llu: page %d: expected 0 to %d", request,
                                     page.page.value, limits.n_pages - 1));
    }
  }
  if (row.sampler.settings.logit_bias.size() > size_t{kLogitBiasMax} ||
      row.sampler.prompt.size() + row.sampler.generated.size() >
          static_cast<size_t>(limits.pages_max) * static_cast<size_t>(limits.page_tokens)) {
    return invalid_argument(
        format("request %llu: more biases or tokens than a row may have", request));
  }
  return check_tokens(row, limits);
}

}  // namespace

Status check_plan(const StepPlan& plan, const PlanLimits& limits) {
  if (static_cast<int64_t>(plan.rows.size()) > limits.rows_max) {
    return invalid_argument(
        format("a step of %zu rows: expected at most %d", plan.rows.size(), limits.rows_max));
  }
  int64_t tokens = 0;
  for (const StepRow& row : plan.rows) {
    TRY_OK(check_row(row, limits));
    tokens += static_cast<int64_t>(row.tokens.size());
  }
  if (tokens > limits.tokens_max) {
    return invalid_argument(format("a step of %lld tokens: expected at most %d",
                                   static_cast<long long>(tokens), limits.tokens_max));
  }
  return {};
}

void check_row_pages(std::span<const TaggedPage> pages, std::span<const PageEntry> directory,
                     StepRowResult* result) {
  if (directory.empty()) return;
  for (const TaggedPage& page : pages) {
    ++result->pages_checked;
    const PageEntry& entry = directory[static_cast<size_t>(page.page.value)];
    if (is_current(entry, page.tag)) continue;
    result->verdict = RowVerdict::stale_page;
    result->page = page.page;
    result->found_tag = entry.tag;
    return;
  }
}

}  // namespace quire
