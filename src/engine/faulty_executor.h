// FaultyExecutor: an executor whose steps a test spoils, once each. Test code.
#pragma once

#include <functional>
#include <utility>

#include "engine/forwarding_executor.h"

namespace quire {

// A test may spoil what one step says or returns.
class FaultyExecutor final : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;

  std::function<void(StepPlan&)> spoil_plan;
  std::function<void(StepHeader&)> spoil_header;
  std::function<void(StepResult&)> spoil_result;

  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override {
    StepPlan sent = plan;
    StepHeader sent_header = header;
    if (spoil_plan) {
      std::exchange(spoil_plan, nullptr)(sent);
      sent_header = make_header(sent);
    }
    if (spoil_header) std::exchange(spoil_header, nullptr)(sent_header);
    return ForwardingExecutor::submit(sent, sent_header);
  }
  StepResult collect_step(TicketId ticket) override {
    StepResult result = ForwardingExecutor::collect_step(ticket);
    if (spoil_result) std::exchange(spoil_result, nullptr)(result);
    return result;
  }
};

}  // namespace quire
