// The scheduler: what the next step does, as a pure function of a small picture of the state.
//
// It knows counts, not pages: the engine allocates what the schedule asks for. Policy, in order:
//   1. a row that is one token behind (decoding) always runs, so that a long prompt holds nobody;
//   2. prompts are computed in chunks, the oldest request first, within a budget of tokens a step;
//   3. requests are admitted in the order of the queue, none is passed over: the head waits until
//      its whole prompt fits beside what running prompts still need and a page for each runner;
//   4. when a decoding row needs a page and there is none, the request that arrived last gives up
//      its pages and goes back to the head of the queue; the oldest one always goes on.
// The same picture gives the same schedule.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace quire {

// A request with a slot.
struct RunningView {
  RequestId request;
  int32_t n_tokens = 0;  // prompt and generated, one that is being chosen included
  int32_t computed = 0;  // of them, in pages when the open steps are done; less than n_tokens
  int32_t n_pages = 0;   // held
  // Its last token is being chosen: there is nothing to run, and its pages come back soon.
  bool is_ending = false;
};

// A request without one.
struct WaitingView {
  RequestId request;
  int32_t n_tokens = 0;
  int32_t cached_pages = 0;  // leading pages found in the prefix index; not all of its tokens
  int32_t unheld_pages = 0;  // of them, those that now count as available
};

struct SchedulerState {
  std::span<const RunningView> running;  // by arrival, oldest first
  std::span<const WaitingView> waiting;  // the head of the queue; need not be all of it
  int32_t free_slots = 0;
  int32_t available_pages = 0;  // free, or held by the prefix index alone
};

struct SchedulerLimits {
  int32_t page_tokens = 0;
  int32_t prefill_tokens_max = 0;  // prompt tokens of a step
};

struct ScheduledRow {
  RequestId request;
  int32_t first = 0;      // position of its first token
  int32_t n_tokens = 0;   // consecutive
  int32_t new_pages = 0;  // to allocate before it runs
  bool samples = false;   // reaches the end of what is known: the next token is chosen
};

struct Schedule {
  // Set: carry this out, then ask again with the new state; nothing else is set. Not before the
  // open steps are collected: what they end may make it needless.
  std::optional<RequestId> preempt;
  std::optional<RequestId> refuse;  // cannot run though all pages are free
  // Else: give slots and cached pages to these, in this order ...
  std::vector<RequestId> admit;
  // ... and run these.
  std::vector<ScheduledRow> rows;
};

Schedule make_schedule(const SchedulerState& state, const SchedulerLimits& limits);

}  // namespace quire
