// FaultInjector: plants one fault in a run, and knows whom it may hurt.
//
// Sits between what watches the seam and the cells, so that what it does to plans, results and
// stores is below every check of the engine; damage to pages is done by the surgeon. A victim is a
// request that holds, or comes to hold, what was damaged; no other request may fail.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "base/rng.h"
#include "engine/forwarding_executor.h"
#include "engine/sim_executor.h"
#include "sim/fault.h"
#include "sim/page_surgeon.h"
#include "sim/request_record.h"

namespace quire::sim {

// What the injector may look at and touch. Outlives the call it is given to.
struct FaultWorld {
  PageSurgeon& surgeon;
  const std::vector<RequestRecord>& records;  // by id - 1
  std::function<void(RequestId)> leave;       // a client leaves
};

class FaultInjector final : public ForwardingExecutor, public StoreFaults {
 public:
  // `cells` outlives this. F30 is one of the others, drawn from the seed.
  FaultInjector(SimExecutor& cells, Fault fault, uint64_t seed);

  // Plants the fault if there is something to damage now, or waits for the step in which to. Called
  // until is_planted.
  void try_plant(const FaultWorld& world);
  Fault fault() const { return fault_; }
  bool is_planted() const { return planted_step_.has_value(); }
  // The steps submitted before it.
  uint64_t planted_step() const { return *planted_step_; }
  uint64_t steps() const { return steps_; }
  bool is_victim(RequestId request) const { return victims_.contains(request.value); }
  size_t n_victims() const { return victims_.size(); }

  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override;
  StepResult collect_step(TicketId ticket) override;
  TicketId verify_pages(std::span<const SealTarget> targets,
                        std::span<const PageSeal> expected) override;
  std::optional<CellPlace> place(const StepRow& row, int32_t position, CellPlace right) override;

 private:
  // A request's row as it was submitted last.
  struct Seen {
    RequestId request;
    SlotId slot;
    uint64_t step = 0;
    int32_t end = 0;  // positions that its pages hold then
    std::vector<TaggedPage> pages;
  };

  bool plant(const FaultWorld& world);
  bool plant_in_pool(const FaultWorld& world);
  bool plant_in_index(const FaultWorld& world);
  bool plant_in_row(const FaultWorld& world);
  bool plant_in_cells(const FaultWorld& world);
  bool plant_in_scales(const FaultWorld& world);
  bool free_stale(const FaultWorld& world);
  bool publish_unsealed(const FaultWorld& world);
  bool lose_fence(const FaultWorld& world);
  bool forget_tenant(const FaultWorld& world);
  StepPlan damage_plan(const StepPlan& plan);
  void damage_result(StepResult* result);

  std::vector<const Seen*> live(const FaultWorld& world) const;
  const Seen* any_live(const FaultWorld& world);
  std::optional<TaggedPage> any_cached(const FaultWorld& world);
  size_t draw(size_t n) { return static_cast<size_t>(rng_.next_below(n)); }
  void hurt(RequestId request) { victims_.insert(request.value); }
  void hurt_holders(const FaultWorld& world, TaggedPage page);
  void planted() { planted_step_ = steps_; }

  SimExecutor& cells_;
  Rng rng_;
  const Fault fault_;
  bool is_armed_ = false;            // the next fitting step, store or result is damaged
  std::optional<FaultWorld> world_;  // of a fault that waits for a call of the engine's
  std::optional<uint64_t> planted_step_;
  uint64_t steps_ = 0;                 // submitted
  uint64_t read_ = 0;                  // of them, collected
  std::map<uint64_t, Seen> seen_;      // by request
  std::optional<TaggedPage> earlier_;  // a reference that is to become stale
  std::vector<TaggedPage> affected_;
  std::set<uint64_t> victims_;
};

}  // namespace quire::sim
