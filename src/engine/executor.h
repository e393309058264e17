// Executor: the seam below the scheduler. Carries out steps and page operations, in order.
//
// Each call returns a ticket at once; `collect` gives a ticket's result, waiting for it when it
// must. Tickets complete in the order in which they were given. An executor keeps no request state
// beyond a step; what a row needs travels in the plan (docs/formats/step.md). The caller guarantees
// that page ids are in the pool; an executor still checks tags and reports.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/page_seal.h"
#include "format/step.h"

namespace quire {

// A page whose content is to be hashed, with the logical index that the hash binds.
struct SealTarget {
  PageId page;
  int32_t logical = 0;
};

enum class PageVerdict : uint8_t { ok, mismatch };

class Executor {
 public:
  virtual ~Executor() = default;

  // A step. Refused (invalid_argument) only when the plan breaks docs/formats/step.md.
  virtual Result<TicketId> submit(const StepPlan& plan) = 0;
  virtual StepResult collect_step(TicketId ticket) = 0;

  // Whole pages; `from` and `to` have equal length and do not meet.
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

  // True when `ticket` and all before it are done.
  virtual bool is_done(TicketId ticket) = 0;
  virtual void wait(TicketId ticket) = 0;
};

}  // namespace quire
