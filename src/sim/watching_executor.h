// WatchingExecutor: what crosses the seam between engine and executor, held against the rules.
//
// Passes everything on. Sees every plan as it was made and every page as it is sealed, and keeps
// what the page checks need to know of them. The first thing found wrong is kept.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/forwarding_executor.h"

namespace quire::sim {

class WatchingExecutor final : public ForwardingExecutor {
 public:
  WatchingExecutor(Executor& to, const PlanLimits& limits);

  // What rows are held against, whether or not the engine has its executor do so.
  void look_at(std::span<const PageEntry> directory) { directory_ = directory; }
  // From now on a request may begin again, under another nonce.
  void expect_retries() { retries_ = true; }
  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override;
  TicketId seal_pages(std::span<const SealTarget> targets) override;

  const std::string& violation() const { return violation_; }
  // The logical index that a page was last sealed with.
  int32_t logical_of(PageId page) const { return logical_[static_cast<size_t>(page.value)]; }
  // Whether some step has had a row of this request.
  bool has_run(RequestId request) const { return nonces_.contains(request.value); }
  // Rows that were submitted before their tokens were known.
  uint64_t rows_ahead() const { return ahead_; }
  uint64_t steps() const { return steps_; }

 private:
  void wrong(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }
  void check_row(const StepPlan& plan, const StepRow& row);
  void check_nonce(const StepRow& row);

  const PlanLimits limits_;
  std::span<const PageEntry> directory_;
  std::vector<int32_t> logical_;                   // [n_pages]
  std::vector<uint64_t> writer_;                   // [n_pages] step and request of its last writer
  std::unordered_map<uint64_t, uint64_t> nonces_;  // by request; looked up, never walked
  std::unordered_map<uint64_t, uint64_t> owners_;  // of nonces; the same
  bool retries_ = false;
  uint64_t ahead_ = 0;
  uint64_t steps_ = 0;
  std::string violation_;
};

}  // namespace quire::sim
