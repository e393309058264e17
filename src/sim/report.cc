#include "sim/report.h"

namespace quire::sim {

namespace {

constexpr std::array<std::string_view, kReached> kNames = {
    "answered",        "refused_full",     "refused_unfit",  "aborted_queued",
    "aborted_running", "deadline_passed",  "preemption",     "eviction",
    "cached_token",    "row_ahead",        "row_in_between", "flush",
    "clock_jump",      "disturbance",      "quarantine",     "release",
    "page_freed",      "page_reserved",    "page_filling",   "page_sealed",
    "page_draining",   "page_quarantined", "whole_audit",    "equal_hash",
    "answer_told",     "output_late",      "ended_by_text",
};

}  // namespace

std::string_view name(Reached state) { return kNames[static_cast<size_t>(state)]; }

void Report::add(const Report& run) {
  events += run.events;
  engine_steps += run.engine_steps;
  requests += run.requests;
  false_alarms += run.false_alarms;
  for (size_t i = 0; i < kReached; ++i) reached[i] += run.reached[i];
  for (size_t i = 0; i < kPoints; ++i) points[i] += run.points[i];
}

}  // namespace quire::sim
