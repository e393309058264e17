// Executor: the seam below the scheduler. Carries out steps and page operations, in order.
//
// Each call returns a ticket at once; `collect` gives a ticket's result, waiting for it when it
// must. Steps complete in the order in which they were given. An executor keeps no request state
// beyond a step; what a row needs travels in the plan (docs/formats/step.md). The page directory is
// the caller's; an executor reads it to check that every page of a row lives the life that the row
// expects, and touches nothing for a row that fails.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/page_directory.h"
#include "format/page_seal.h"
#include "format/step.h"

namespace quire {

enum class PageVerdict : uint8_t { ok, mismatch };

// What an executor was built for. Plans past it are refused.
struct PlanLimits {
  int32_t n_pages = 0;  // of the pool, the null page included
  int32_t page_tokens = kPageTokens;
  int32_t rows_max = 0;
  int32_t tokens_max = 0;  // of all rows
  int32_t pages_max = 0;   // of a row
  int32_t vocab_size = 0;
};

// Whether `plan` keeps docs/formats/step.md and `limits`. Errors: invalid_argument; unsupported for
// what the format has room for and no executor does yet (more than one logit row).
Status check_plan(const StepPlan& plan, const PlanLimits& limits);

// Compares a row's (page, tag) pairs with the directory: counts them in `pages_checked`, and on
// the first that differs sets the verdict, the page and the tag that was found. Against an empty
// directory nothing is checked, and nothing counted.
void check_row_pages(std::span<const TaggedPage> pages, std::span<const PageEntry> directory,
                     StepRowResult* result);

// What an executor has its steps do about pages, where they run (docs/integrity.md).
enum class StepChecks : uint8_t {
  none,
  pages,             // T: a row's pages before the step and before its token leaves
  pages_and_writes,  // W too: a store into a page that the row may not write is dropped
};

inline constexpr size_t kStepChecks = 3;

// Steps that may be submitted and not collected: one that runs, and the next.
inline constexpr int kOpenStepsMax = 2;

class Executor {
 public:
  virtual ~Executor() = default;

  // True when a step is still being carried out when `submit` returns, so that it pays to submit
  // the next one before this one is collected.
  virtual bool is_asynchronous() const { return false; }
  // How often memory was allocated where steps run, since the executor was made: none is needed.
  virtual uint64_t allocations_after_start() const { return 0; }

  // The directory that rows are checked against from now on, and how: host memory, entry p is page
  // p's. It outlives the steps that are submitted while it is watched. `none` goes with an empty
  // one: rows are not checked.
  virtual void watch_directory(std::span<const PageEntry> directory, StepChecks checks) = 0;
  // Entries whose tag or state may have changed since it was watched, or since the last call: the
  // steps that are submitted from here on are checked against what they are then.
  virtual void note_changes(std::span<const PageId> changed) = 0;

  // A step. Refused (invalid_argument, unsupported) only when the plan breaks docs/formats/step.md.
  // `header` was made where the plan was made; when it is not the plan's, or the step is not the
  // one after the last, every row answers bad_header. No more than kOpenStepsMax are open.
  virtual Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) = 0;
  virtual StepResult collect_step(TicketId ticket) = 0;

  // Whole pages; `from` and `to` have equal length and do not meet. Pages that are sealed, verified
  // or exported are written by no open step, and pages that are filled are touched by none: they
  // need not wait for one.
  virtual TicketId copy_pages(std::span<const PageId> from, std::span<const PageId> to) = 0;
  virtual TicketId fill_pages(std::span<const PageId> pages, std::byte value) = 0;
  virtual TicketId seal_pages(std::span<const SealTarget> targets) = 0;
  virtual std::vector<PageSeal> collect_seals(TicketId ticket) = 0;
  virtual TicketId verify_pages(std::span<const SealTarget> targets,
                                std::span<const PageSeal> expected) = 0;
  virtual std::vector<PageVerdict> collect_verdicts(TicketId ticket) = 0;
  virtual TicketId export_pages(std::span<const PageId> pages) = 0;
  virtual std::vector<std::byte> collect_bytes(TicketId ticket) = 0;
  virtual TicketId import_pages(std::span<const PageId> pages,
                                std::span<const std::byte> bytes) = 0;

  // True when `ticket` and all steps before it are done.
  virtual bool is_done(TicketId ticket) = 0;
  virtual void wait(TicketId ticket) = 0;
};

}  // namespace quire
