#include "sim/fault_injector.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::sim {

namespace {

constexpr uint64_t kNotANumber = ~uint64_t{0};  // a code as kPoison leaves it

bool is_live_page(const PageEntry& entry) {
  return entry.state == PageState::reserved || entry.state == PageState::filling ||
         entry.state == PageState::sealed;
}

}  // namespace

FaultInjector::FaultInjector(SimExecutor& cells, Fault fault, uint64_t seed)
    : ForwardingExecutor(cells),
      cells_(cells),
      rng_(mix64(seed ^ 0x6661756c74ULL)),  // "fault": a stream of its own
      fault_(planted_by(fault, seed)) {}

// Requests with a row of the page table that a step was planned with.
std::vector<const FaultInjector::Seen*> FaultInjector::live(const FaultWorld& world) const {
  std::vector<const Seen*> out;
  for (const auto& [id, seen] : seen_) {
    if (!world.records[id - 1].is_live()) continue;
    const std::span<const TaggedPage> row = world.surgeon.row(seen.slot);
    const bool is_its_row =
        row.size() >= seen.pages.size() && row.front() == seen.pages.front() &&
        is_current(world.surgeon.pool().entry(row.front().page), row.front().tag);
    if (is_its_row) out.push_back(&seen);
  }
  return out;
}

const FaultInjector::Seen* FaultInjector::any_live(const FaultWorld& world) {
  const std::vector<const Seen*> all = live(world);
  return all.empty() ? nullptr : all[draw(all.size())];
}

std::optional<TaggedPage> FaultInjector::any_cached(const FaultWorld& world) {
  const PagePool& pool = world.surgeon.pool();
  std::vector<TaggedPage> cached;
  for (int32_t p = 1; p <= pool.total(); ++p) {
    const PageId page{p};
    if (!pool.leases().is_held_by_index_alone(page) || pool.is_condemned(page)) continue;
    cached.push_back({page, pool.entry(page).tag});
  }
  if (cached.empty()) return std::nullopt;
  return cached[draw(cached.size())];
}

void FaultInjector::hurt_holders(const FaultWorld& world, TaggedPage page) {
  affected_.push_back(page);
  for (const Seen* seen : live(world)) {
    const std::span<const TaggedPage> row = world.surgeon.row(seen->slot);
    if (std::ranges::find(row, page) != row.end()) hurt(seen->request);
  }
}

void FaultInjector::try_plant(const FaultWorld& world) {
  if (is_planted() || is_armed_) return;
  if (plant(world) && !is_armed_) planted();
}

bool FaultInjector::plant(const FaultWorld& world) {
  switch (fault_) {
    case Fault::f01:
    case Fault::f02:
    case Fault::f03:
    case Fault::f04:
      return plant_in_pool(world);
    case Fault::f05:
    case Fault::f06:
    case Fault::f07:
      return plant_in_index(world);
    case Fault::f08:
      // Nothing has to be done: the run has short identities, and now two were equal.
      return world.surgeon.index().collisions() > 0;
    case Fault::f09:
      return forget_tenant(world);
    case Fault::f10:
      is_armed_ = true;
      world_.emplace(world);
      return true;
    case Fault::f11:
      return lose_fence(world);
    case Fault::f12:
    case Fault::f14:
      return plant_in_row(world);
    case Fault::f16:
    case Fault::f17:
    case Fault::f18:
      return plant_in_cells(world);
    case Fault::f13:
    case Fault::f15:
    case Fault::f28:
    case Fault::f29:
      is_armed_ = true;
      if (fault_ == Fault::f15) cells_.plant(this);
      return true;
    case Fault::f30:
      break;  // one of the others was chosen
  }
  CHECK(false);
  return false;
}

bool FaultInjector::plant_in_pool(const FaultWorld& world) {
  if (fault_ == Fault::f03) return free_stale(world);
  const Seen* seen = any_live(world);
  if (seen == nullptr) return false;
  const std::span<const TaggedPage> row = world.surgeon.row(seen->slot);
  const TaggedPage page = row[draw(row.size())];
  if (fault_ == Fault::f01) {
    world.surgeon.list_as_free(page.page);
  } else if (fault_ == Fault::f02) {
    hurt_holders(world, page);
    world.surgeon.let_go(page);
  } else {
    world.surgeon.lose_lease(page.page);
  }
  return true;
}

// First a reference is kept; when its page lives another life, it is used.
bool FaultInjector::free_stale(const FaultWorld& world) {
  if (!earlier_) {
    if (const Seen* seen = any_live(world)) earlier_ = seen->pages[draw(seen->pages.size())];
    return false;
  }
  const PageEntry& entry = world.surgeon.pool().entry(earlier_->page);
  if (entry.tag == earlier_->tag || !is_live_page(entry)) return false;
  world.surgeon.let_go(*earlier_);
  return true;
}

bool FaultInjector::plant_in_index(const FaultWorld& world) {
  if (fault_ == Fault::f07) return publish_unsealed(world);
  if (fault_ == Fault::f06) {
    const std::optional<TaggedPage> page = any_cached(world);
    if (page) world.surgeon.evict_behind_index(*page);
    return page.has_value();
  }
  const Seen* seen = any_live(world);
  if (seen == nullptr) return false;
  const std::span<const TaggedPage> row = world.surgeon.row(seen->slot);
  const TaggedPage page = row[draw(row.size())];
  hurt_holders(world, page);
  world.surgeon.free_by_force(page.page);
  return true;
}

// The first page that a prompt fills and that is not sealed yet, under the identity it will have.
bool FaultInjector::publish_unsealed(const FaultWorld& world) {
  const Seen* seen = any_live(world);
  if (seen == nullptr) return false;
  const PagePool& pool = world.surgeon.pool();
  const PrefixIndex& index = world.surgeon.index();
  const GenerateRequest& request = world.records[seen->request.value - 1].planned().request;
  const auto n = static_cast<size_t>(pool.page_tokens());
  PageIdentity identity = index.root(request.tenant);
  const std::span<const TaggedPage> row = world.surgeon.row(seen->slot);
  for (size_t k = 0; k < row.size() && (k + 1) * n <= request.prompt.size(); ++k) {
    const std::span<const Token> tokens = std::span(request.prompt).subspan(k * n, n);
    identity = index.chain(identity, tokens);
    const PageState state = pool.entry(row[k].page).state;
    if (state != PageState::reserved && state != PageState::filling) continue;
    if (index.contains(row[k].page) || index.has(identity)) return false;
    world.surgeon.publish_unsealed(row[k], identity, tokens);
    return true;
  }
  return false;
}

// A request that has not looked for its prefix yet looks under another tenant's key.
bool FaultInjector::forget_tenant(const FaultWorld& world) {
  std::vector<RequestId> waiting;
  for (const RequestRecord& record : world.records) {
    if (record.is_live() && !seen_.contains(record.id().value)) waiting.push_back(record.id());
  }
  if (waiting.empty()) return false;
  const RequestId id = waiting[draw(waiting.size())];
  TenantSalt other = world.records[id.value - 1].planned().request.tenant;
  other[0] = static_cast<uint8_t>((other[0] + 1) % 3);
  return world.surgeon.take_for(id, other);
}

// One of the pages that are being looked at between match and use.
TicketId FaultInjector::verify_pages(std::span<const SealTarget> targets,
                                     std::span<const PageSeal> expected) {
  const TicketId ticket = ForwardingExecutor::verify_pages(targets, expected);
  if (!is_armed_ || fault_ != Fault::f10) return ticket;
  const PagePool& pool = world_->surgeon.pool();
  for (const SealTarget& target : targets) {
    if (pool.leases().count(target.page, LeaseKind::request) == 0) continue;
    const TaggedPage page{target.page, pool.entry(target.page).tag};
    hurt_holders(*world_, page);
    world_->surgeon.free_by_force(page.page);
    planted();
    is_armed_ = false;
    break;
  }
  return ticket;
}

// The row of a request that leaves is still being carried out when its pages are given away.
bool FaultInjector::lose_fence(const FaultWorld& world) {
  const Seen* seen = any_live(world);
  if (seen == nullptr || seen->step <= read_ || !cells_.has_work()) return false;
  const Seen copy = *seen;
  world.leave(copy.request);
  for (const TaggedPage& page : copy.pages) {
    if (world.surgeon.pool().entry(page.page).state == PageState::draining) {
      world.surgeon.drop_step_leases(page);
    }
  }
  return true;
}

bool FaultInjector::plant_in_row(const FaultWorld& world) {
  const Seen* seen = any_live(world);
  if (seen == nullptr) return false;
  const std::span<const TaggedPage> row = world.surgeon.row(seen->slot);
  const auto i = static_cast<int32_t>(draw(row.size()));
  const TaggedPage entry = row[static_cast<size_t>(i)];
  enum : size_t { kSwapped, kDouble, kSwappedWithAnother, kStale, kAnothers, kVariants };
  const size_t variant = fault_ == Fault::f12 ? size_t{kSwapped} : 1 + draw(kVariants - 1);
  if (variant == kStale) {
    world.surgeon.write_row(seen->slot, i, {entry.page, entry.tag - 1});
    hurt(seen->request);
    return true;
  }
  const bool is_of_another = variant == kSwappedWithAnother || variant == kAnothers;
  const Seen* other = is_of_another ? any_live(world) : seen;
  const std::span<const TaggedPage> other_row = world.surgeon.row(other->slot);
  const auto j = static_cast<int32_t>(draw(other_row.size()));
  const TaggedPage other_entry = other_row[static_cast<size_t>(j)];
  if (entry == other_entry) return false;
  world.surgeon.write_row(seen->slot, i, other_entry);
  hurt(seen->request);
  if (variant == kDouble || variant == kAnothers) return true;
  // The other's row is wrong too.
  world.surgeon.write_row(other->slot, j, entry);
  hurt(other->request);
  return true;
}

bool FaultInjector::plant_in_cells(const FaultWorld& world) {
  const PagePool& pool = world.surgeon.pool();
  const auto page_tokens = static_cast<size_t>(pool.page_tokens());
  if (fault_ == Fault::f16) {
    const std::optional<TaggedPage> page = any_cached(world);
    if (!page) return false;
    constexpr uint64_t kFlips[3] = {1, 3, 0xff};  // 1, 2 and 8 bits
    const auto offset = static_cast<int32_t>(draw(page_tokens));
    cells_.code({page->page, offset}) ^= kFlips[draw(3)] << draw(56);
    return true;
  }
  if (fault_ == Fault::f17) return plant_in_scales(world);
  const Seen* seen = any_live(world);
  if (seen == nullptr || seen->step > read_) return false;  // the cell has to be written
  const auto last = static_cast<size_t>(seen->end - 1);
  const TaggedPage page = seen->pages[last / page_tokens];
  const PageEntry& entry = pool.entry(page.page);
  // A page that is not shared: whoever shared it would be hurt rightly.
  if (entry.tag != page.tag || entry.state != PageState::filling) return false;
  cells_.code({page.page, static_cast<int32_t>(last % page_tokens)}) = kNotANumber;
  hurt_holders(world, page);
  return true;
}

// One scale, or every scale of a page, as those that another version of the layout would have.
bool FaultInjector::plant_in_scales(const FaultWorld& world) {
  const std::optional<TaggedPage> page = any_cached(world);
  if (!page) return false;
  const auto page_tokens = static_cast<int32_t>(world.surgeon.pool().page_tokens());
  const auto changed = static_cast<uint8_t>(1 + draw(63));
  const bool is_whole = draw(2) == 0;
  const auto one = static_cast<int32_t>(draw(static_cast<size_t>(page_tokens)));
  for (int32_t offset = 0; offset < page_tokens; ++offset) {
    if (is_whole || offset == one) cells_.scale({page->page, offset}) ^= changed;
  }
  return true;
}

StepPlan FaultInjector::damage_plan(const StepPlan& plan) {
  StepPlan damaged = plan;
  StepRow& row = damaged.rows[draw(damaged.rows.size())];
  const StepRow& other = plan.rows[draw(plan.rows.size())];
  TaggedPage& entry = row.pages[draw(row.pages.size())];
  const TaggedPage instead = other.pages[draw(other.pages.size())];
  if (entry != instead) {
    entry = instead;
  } else {
    row.nonce ^= 1;
  }
  for (const StepRow& planned : plan.rows) hurt(planned.request);
  planted();
  is_armed_ = false;
  return damaged;
}

Result<TicketId> FaultInjector::submit(const StepPlan& plan, const StepHeader& header) {
  for (const StepRow& row : plan.rows) {
    const auto end = row.first_position + static_cast<int32_t>(row.tokens.size());
    seen_[row.request.value] = {row.request, row.slot, steps_ + 1, end, row.pages};
    const auto is_affected = [this](const TaggedPage& page) {
      return std::ranges::find(affected_, page) != affected_.end();
    };
    if (std::ranges::any_of(row.pages, is_affected)) hurt(row.request);
  }
  const bool damages = is_armed_ && fault_ == Fault::f13;
  Result<TicketId> ticket =
      damages ? cells_.submit(damage_plan(plan), header) : cells_.submit(plan, header);
  ++steps_;
  return ticket;
}

void FaultInjector::damage_result(StepResult* result) {
  const size_t n = result->rows.size();
  const size_t i = draw(n);
  if (fault_ == Fault::f28) {
    const size_t j = draw(n);
    if (i == j) return;
    hurt(result->rows[i].request);
    hurt(result->rows[j].request);
    std::swap(result->rows[i], result->rows[j]);
  } else {
    StepRowResult& row = result->rows[i];
    if (row.verdict != RowVerdict::ok || row.pages_checked == 0) return;
    row.pages_checked = 0;
    hurt(row.request);
  }
  planted();
  is_armed_ = false;
}

StepResult FaultInjector::collect_step(TicketId ticket) {
  StepResult result = cells_.collect_step(ticket);
  ++read_;
  const bool damages = is_armed_ && (fault_ == Fault::f28 || fault_ == Fault::f29);
  if (damages) damage_result(&result);
  return result;
}

std::optional<CellPlace> FaultInjector::place(const StepRow& row, int32_t, CellPlace right) {
  if (!is_armed_) return right;
  is_armed_ = false;
  planted();
  hurt(row.request);
  const auto page_tokens = static_cast<size_t>(cells_.page_tokens());
  const size_t variant = draw(3);
  if (variant == 0 && page_tokens > 1) {
    const auto moved =
        (static_cast<size_t>(right.offset) + 1 + draw(page_tokens - 1)) % page_tokens;
    return CellPlace{right.page, static_cast<int32_t>(moved)};
  }
  if (variant == 1) {
    const auto n = static_cast<size_t>(cells_.n_pages());
    const size_t moved = (static_cast<size_t>(right.page.value) + 1 + draw(n - 1)) % n;
    return CellPlace{PageId{static_cast<int32_t>(moved)}, right.offset};
  }
  return std::nullopt;
}

}  // namespace quire::sim
