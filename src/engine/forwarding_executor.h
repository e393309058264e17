// ForwardingExecutor: an Executor that passes every call on to another.
//
// To be derived from by what changes or watches single calls: planted faults, recordings. Does
// nothing of its own.
#pragma once

#include <span>
#include <vector>

#include "engine/executor.h"

namespace quire {

class ForwardingExecutor : public Executor {
 public:
  // `to` outlives this.
  explicit ForwardingExecutor(Executor& to) : to_(to) {}

  bool is_asynchronous() const override { return to_.is_asynchronous(); }
  uint64_t allocations_after_start() const override { return to_.allocations_after_start(); }
  void watch_directory(std::span<const PageEntry> directory, StepChecks checks) override {
    to_.watch_directory(directory, checks);
  }
  void note_changes(std::span<const PageId> changed) override { to_.note_changes(changed); }
  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override {
    return to_.submit(plan, header);
  }
  StepResult collect_step(TicketId ticket) override { return to_.collect_step(ticket); }
  TicketId copy_pages(std::span<const PageId> from, std::span<const PageId> to) override {
    return to_.copy_pages(from, to);
  }
  TicketId fill_pages(std::span<const PageId> pages, std::byte value) override {
    return to_.fill_pages(pages, value);
  }
  TicketId seal_pages(std::span<const SealTarget> targets) override {
    return to_.seal_pages(targets);
  }
  std::vector<PageSeal> collect_seals(TicketId ticket) override {
    return to_.collect_seals(ticket);
  }
  TicketId verify_pages(std::span<const SealTarget> targets,
                        std::span<const PageSeal> expected) override {
    return to_.verify_pages(targets, expected);
  }
  std::vector<PageVerdict> collect_verdicts(TicketId ticket) override {
    return to_.collect_verdicts(ticket);
  }
  TicketId export_pages(std::span<const PageId> pages) override { return to_.export_pages(pages); }
  std::vector<std::byte> collect_bytes(TicketId ticket) override {
    return to_.collect_bytes(ticket);
  }
  TicketId import_pages(std::span<const PageId> pages, std::span<const std::byte> bytes) override {
    return to_.import_pages(pages, bytes);
  }
  bool is_done(TicketId ticket) override { return to_.is_done(ticket); }
  void wait(TicketId ticket) override { to_.wait(ticket); }

 private:
  Executor& to_;
};

}  // namespace quire
