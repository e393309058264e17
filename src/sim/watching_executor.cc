#include "sim/watching_executor.h"

#include <algorithm>

#include "base/text.h"

namespace quire::sim {

WatchingExecutor::WatchingExecutor(Executor& to, const PlanLimits& limits)
    : ForwardingExecutor(to),
      limits_(limits),
      logical_(static_cast<size_t>(limits.n_pages), -1),
      writer_(static_cast<size_t>(limits.n_pages), 0) {}

void WatchingExecutor::check_nonce(const StepRow& row) {
  const auto [known, is_new] = nonces_.emplace(row.request.value, row.nonce);
  if (!is_new && known->second != row.nonce) {
    if (!retries_) wrong("a request changed its nonce");
    known->second = row.nonce;
  }
  const auto [owner, is_first] = owners_.emplace(row.nonce, row.request.value);
  if (!is_first && owner->second != row.request.value) wrong("two requests have one nonce");
}

// Pages that the row writes are its request's own and this step's alone; those before are current.
void WatchingExecutor::check_row(const StepPlan& plan, const StepRow& row) {
  const int32_t end = row.first_position + static_cast<int32_t>(row.tokens.size());
  const int32_t first_written = row.first_position / limits_.page_tokens;
  const int32_t last_written = (end - 1) / limits_.page_tokens;
  if (row.committed > row.first_position) wrong("a row writes below what is committed");
  for (int32_t k = 0; k < static_cast<int32_t>(row.pages.size()); ++k) {
    const TaggedPage& page = row.pages[static_cast<size_t>(k)];
    const auto p = static_cast<size_t>(page.page.value);
    const PageEntry& entry = directory_[p];
    if (!is_current(entry, page.tag)) {
      wrong(format("step %llu: page %d is not the row's",
                   static_cast<unsigned long long>(plan.step), page.page.value));
    }
    if (k < first_written || k > last_written) continue;
    const uint64_t writer = plan.step << 32 | (row.request.value & 0xffffffffU);
    if (writer_[p] >> 32 == plan.step && writer_[p] != writer) {
      wrong(format("page %d has two writers in one step", page.page.value));
    }
    writer_[p] = writer;
    const bool is_open = entry.state == PageState::reserved || entry.state == PageState::filling;
    if (!is_open || entry.owner != row.request.value) {
      wrong(format("page %d is written by a row that does not own it", page.page.value));
    }
  }
}

Result<TicketId> WatchingExecutor::submit(const StepPlan& plan, const StepHeader& header) {
  ++steps_;
  for (const StepRow& row : plan.rows) {
    check_nonce(row);
    check_row(plan, row);
    ahead_ += static_cast<uint64_t>(
        std::ranges::any_of(row.tokens, [](const TokenSource& t) { return t.literal < 0; }));
  }
  return ForwardingExecutor::submit(plan, header);
}

TicketId WatchingExecutor::seal_pages(std::span<const SealTarget> targets) {
  for (const SealTarget& target : targets) {
    logical_[static_cast<size_t>(target.page.value)] = target.logical;
  }
  return ForwardingExecutor::seal_pages(targets);
}

}  // namespace quire::sim
