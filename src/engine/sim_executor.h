// SimExecutor: an Executor without a model, whose every wrong read changes its output.
//
// A cell of the cache is a 64-bit hash of a token, its position and the cell before it, so it
// stands for the whole history. It is kept as a code and a scale, as quantised keys are: what is
// read is the code rotated by the scale. A step reads cells only through the page table that the
// plan carries, as attention would, and the next token is a function of all it read. So the right
// answer of a request is known without any cache (`right_answer`), and one foreign, stale,
// misplaced or unwritten cell changes it, as does one foreign scale. A step may be put off as long
// as possible, as by a device that is far behind: its cells are then read and written when somebody
// asks for its result. The first cell depends on a salt given for the request: two tenants with the
// same tokens have different cells. Deterministic; used by one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/executor.h"
#include "engine/request.h"

namespace quire {

struct SimModel {
  int32_t vocab_size = 0;
  uint64_t seed = 0;

  uint64_t first_cell(uint64_t salt) const;
  uint64_t next_cell(uint64_t before, Token token, int32_t position) const;
  uint64_t fold(uint64_t folded, uint64_t cell) const;
  // The token that a row whose reads fold to `folded` chooses: pseudo-random, within `mask` (all
  // tokens when empty), or -1 when the mask admits none.
  Token choose(uint64_t folded, uint64_t sampler_seed, std::span<const uint64_t> mask) const;
};

// What a request must answer: up to max_new_tokens tokens, ended by a stop token. No grammar.
std::vector<Token> right_answer(const SimModel& model, uint64_t salt,
                                const GenerateRequest& request);

enum class SimCompletion : uint8_t {
  at_once,     // as a CPU
  when_asked,  // as a device, at its latest
};

// What the executor looks at by itself. The first goes with a directory that is watched.
struct SimChecks {
  bool rows = true;     // T: a row's pages, before it and before its token leaves
  bool writes = false;  // W: a write into a page that the row may not write is dropped
  bool poison = false;  // N: a row that reads kPoison, as attention would in every layer, fails
};

struct CellPlace {
  PageId page;
  int32_t offset = 0;  // within the page
  friend constexpr bool operator==(CellPlace, CellPlace) = default;
};

// Where stores go wrong: planted below every check, by src/sim.
class StoreFaults {
 public:
  virtual ~StoreFaults() = default;
  // Where the cell of `position` is stored instead of at `right`; nothing when it is not stored.
  virtual std::optional<CellPlace> place(const StepRow& row, int32_t position, CellPlace right) = 0;
};

class SimExecutor final : public Executor {
 public:
  using SaltOf = std::function<uint64_t(RequestId)>;

  // limits.vocab_size is the model's.
  SimExecutor(const SimModel& model, const PlanLimits& limits, SaltOf salt_of,
              SimCompletion completion = SimCompletion::at_once, SimChecks checks = {});

  // `faults` outlives this; null for none.
  void plant(StoreFaults* faults) { faults_ = faults; }
  int32_t n_pages() const { return limits_.n_pages; }
  int32_t page_tokens() const { return limits_.page_tokens; }
  // What a cell is kept as, for damage that no step did.
  uint64_t& code(CellPlace place) { return codes_[index_of(place)]; }
  uint8_t& scale(CellPlace place) { return scales_[index_of(place)]; }

  bool is_asynchronous() const override { return completion_ == SimCompletion::when_asked; }

  // Carries out one row of the oldest step that was put off, if there is one. True when more is
  // left: a step may so be half done when something else happens.
  bool run_one_row();
  bool has_work() const { return !jobs_.empty(); }

  // Which checks it makes was said when it was made. It reads the directory itself, at its time.
  void watch_directory(std::span<const PageEntry> directory, StepChecks /*checks*/) override {
    directory_ = directory;
  }
  void note_changes(std::span<const PageId> /*changed*/) override {}
  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override;
  StepResult collect_step(TicketId ticket) override;
  TicketId copy_pages(std::span<const PageId> from, std::span<const PageId> to) override;
  TicketId fill_pages(std::span<const PageId> pages, std::byte value) override;
  TicketId seal_pages(std::span<const SealTarget> targets) override;
  std::vector<PageSeal> collect_seals(TicketId ticket) override;
  TicketId verify_pages(std::span<const SealTarget> targets,
                        std::span<const PageSeal> expected) override;
  std::vector<PageVerdict> collect_verdicts(TicketId ticket) override;
  TicketId export_pages(std::span<const PageId> pages) override;
  std::vector<std::byte> collect_bytes(TicketId ticket) override;
  TicketId import_pages(std::span<const PageId> pages, std::span<const std::byte> bytes) override;
  bool is_done(TicketId ticket) override;
  void wait(TicketId ticket) override;

 private:
  using Outcome = std::variant<std::monostate, StepResult, std::vector<PageSeal>,
                               std::vector<PageVerdict>, std::vector<std::byte>>;

  // What a step sampled, for the steps that name its tokens.
  struct Sampled {
    TicketId ticket;
    std::vector<Token> rows;  // -1: none
  };
  // A step that was submitted, with its rows' first checks made. As many rows as have sampled are
  // done.
  struct Job {
    StepPlan plan;
    StepResult result;
    Sampled sampled;
  };

  TicketId finish(Outcome outcome);
  Status check_sources(const StepPlan& plan) const;
  // Carries out the steps up to `ticket`, in order.
  void run_up_to(TicketId ticket);
  void run_all() { run_up_to(TicketId{last_ticket_}); }
  void run_row_of_oldest();
  Token token_of(const TokenSource& source) const;
  template <class T>
  T collect(TicketId ticket);
  void run_row(const StepRow& row, StepRowResult* result);
  // Where a page's cells begin, and where one of them is, in `codes_` and `scales_`.
  size_t begin_of(PageId page) const;
  size_t index_of(CellPlace place) const {
    return begin_of(place.page) + static_cast<size_t>(place.offset);
  }
  // Its codes, then its scales.
  std::array<std::span<std::byte>, 2> bytes_of(PageId page);
  CellPlace place_of(const StepRow& row, int32_t position) const;
  // kPoison in either place is no number.
  uint64_t read(const StepRow& row, int32_t position) const;
  void write(CellPlace place, uint64_t cell);
  // False when the write was dropped, and the verdict says so.
  bool store(const StepRow& row, int32_t position, uint64_t value, StepRowResult* result);
  void check_tags(const StepRow& row, StepRowResult* result) const;
  PageSeal seal_of(const SealTarget& target);

  const SimModel model_;
  const PlanLimits limits_;
  const SaltOf salt_of_;
  std::vector<uint64_t> codes_;  // [n_pages, page_tokens]
  std::vector<uint8_t> scales_;  // [n_pages, page_tokens]
  std::span<const PageEntry> directory_;
  uint64_t last_ticket_ = 0;
  uint64_t steps_ = 0;
  const SimCompletion completion_;
  const SimChecks checks_;
  StoreFaults* faults_ = nullptr;
  std::deque<Job> jobs_;                            // submitted and put off, oldest first
  std::deque<Sampled> recent_;                      // of the last steps carried out
  std::unordered_map<uint64_t, Outcome> outcomes_;  // by ticket, until collected
};

}  // namespace quire
