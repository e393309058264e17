// ModelExecutor: the Executor that runs a model on a Backend.
//
// Owns the KV pool's memory and the inputs and results of steps, all allocated once. Knows pages as
// bytes and rows as numbers; who holds what is the engine's. A step is: one copy of its inputs out
// of a host slot that nothing else uses, the ops (recorded, when every row decodes), one copy of
// its results back, a fence. `submit` asks for all of it and waits for nothing; tokens that a plan
// names by ticket never come to the host first. Used by one thread.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/decode_recordings.h"
#include "engine/directory_mirror.h"
#include "engine/executor.h"
#include "engine/recent_tokens.h"
#include "engine/step_writer.h"
#include "model/model.h"
#include "ops/backend.h"
#include "ops/check_pages.h"
#include "ops/open_step.h"
#include "ops/page_sealer.h"
#include "ops/sample.h"
#include "tensor/buffer.h"

namespace quire {

// Whether decode steps are recorded at start, on a backend that can: pays where launches cost.
enum class RecordSteps : uint8_t { no, yes };

struct ExecutorOptions {
  RecordSteps record = RecordSteps::no;
  // The checks that recorded steps make. With others a step is carried out op by op.
  std::vector<StepChecks> checks = {StepChecks::pages};
};

class ModelExecutor final : public Executor {
 public:
  // `backend` and `model` outlive the executor; the model was made on `backend`, for batches of at
  // least limits.tokens_max tokens and limits.rows_max logit rows. limits.vocab_size and
  // limits.page_tokens are the model's. Errors: resource_exhausted.
  static Result<std::unique_ptr<ModelExecutor>> make(Backend& backend, Model& model,
                                                     const PlanLimits& limits,
                                                     const ExecutorOptions& options = {});

  bool is_asynchronous() const override { return backend_.is_asynchronous(); }
  uint64_t allocations_after_start() const override {
    return backend_.memory().allocations() - allocations_at_start_;
  }
  void watch_directory(std::span<const PageEntry> directory, StepChecks checks) override;
  void note_changes(std::span<const PageId> changed) override { mirror_.note(changed); }
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

  // The pool itself, for a bench that finds out whether its memory is there.
  std::byte* pool() const { return pool_.data(); }
  int64_t pool_bytes() const { return pool_.bytes(); }
  // Decode batch sizes that are recorded; 0 when steps are not.
  size_t n_recordings() const;
  // What a recorded decode step of `n_rows` with these checks has the device do; 0 without one.
  int64_t recorded_nodes(StepChecks checks, int64_t n_rows) const;
  // Why steps that were to be recorded are not: they are right, and slower.
  const Status& recording_status() const { return recording_status_; }

 private:
  using Outcome = std::variant<std::monostate, std::vector<PageSeal>, std::vector<PageVerdict>,
                               std::vector<std::byte>>;
  // A row of an open step: where its token will be, and what it depended on.
  struct OpenRow {
    int64_t logit = -1;
    int64_t placed = -1;  // its row of the inputs
    int64_t scores = -1;  // the first of its `n_scores`
    int64_t n_scores = 0;
    int32_t end = 0;  // length of the sequence whose keys are there afterwards
    size_t pages_begin = 0, pages_end = 0;      // of `pages`
    size_t sources_begin = 0, sources_end = 0;  // of `sources`
    bool is_live = false;
  };
  enum class SlotState : uint8_t { free, open, read };
  // A step, from its submission until it is collected; its memory is kept for the next.
  struct StepSlot {
    SlotState state = SlotState::free;
    TicketId ticket{0};
    uint64_t sent = 0;  // 0: there was nothing to run
    StepChecks checks = StepChecks::none;
    Buffer inputs;   // the backend's host memory
    Buffer results;  // the same: StepOpening, PageCheck [rows_max], SampledRow [tokens_max]
    std::unique_ptr<Fence> fence;
    StepResult result;  // complete when `read`
    std::vector<OpenRow> rows;
    std::vector<TaggedPage> pages;
    std::vector<TokenSource> sources;  // tokens of earlier steps
  };
  // One more than may be open: the slot that is written is never one that is read.
  static constexpr size_t kSlots = kOpenStepsMax + 1;

  ModelExecutor(Backend& backend, Model& model, const PlanLimits& limits)
      : backend_(backend),
        model_(model),
        limits_(limits),
        writer_(limits),
        recent_(limits.rows_max),
        mirror_(limits.n_pages) {}

  Status allocate_all();
  void record_decodes(StepChecks checks);
  TicketId finish(Outcome outcome);
  template <class T>
  T collect(TicketId ticket);

  StepSlot& slot_of(TicketId ticket);
  StepSlot& begin_slot(const StepPlan& plan);
  // Checks what can be checked before the step runs; the rows that are to run.
  void check_rows(const StepPlan& plan, const StepHeader& header, StepSlot& slot);
  // Sends the inputs, runs the step and asks for its results.
  void launch(const StepPlan& plan, StepSlot& slot);
  void send_inputs(const StepSlot& slot, int64_t bytes);
  // All ops of a step whose inputs have been sent.
  void run(const StepShape& shape, StepChecks checks);
  // The model's part of it, and the sampler's. `batch` says no logit rows yet.
  void choose_tokens(const StepInputs& in, ModelBatch batch);
  // Samples or scores by `logits`, which are those of the step's logit rows from `first` on.
  void sample_rows(const StepInputs& in, View<float, 2> logits, int64_t first);
  // Where the sampled rows begin among the results.
  int64_t sampled_at() const;
  const PageCheck& page_check_of(const StepSlot& slot, const OpenRow& row) const;
  // What the step's own checks of the row's pages found.
  void read_page_check(const StepSlot& slot, const OpenRow& open, StepRowResult* result) const;
  StepInputs inputs_in(const Buffer& buffer, const StepShape& shape) const;
  // Reads the results of open steps, in order, up to `ticket`.
  void read_up_to(TicketId ticket);
  void read(StepSlot& slot);
  void read_row(StepSlot& slot, size_t row);
  // Whether the inputs that the step found were those that were sent for it.
  static bool has_arrived(const StepSlot& slot);
  void read_scores(const StepSlot& slot, const OpenRow& row, StepRowResult* result) const;
  bool has_its_tokens(const StepSlot& slot, const OpenRow& row) const;

  std::span<const std::byte> read_settled_page(PageId page);
  std::byte* page_data(PageId page);

  Backend& backend_;
  Model& model_;
  const PlanLimits limits_;
  Buffer pool_;     // [n_pages, page_bytes], and all below, in the backend's memory
  Buffer inputs_;   // of the step that runs
  Buffer results_;  // StepOpening, PageCheck [rows_max], SampledRow [tokens_max]
  Buffer kept_;     // Token [kRecentSteps, rows_max]
  Buffer scored_;   // Token [rows_max], where rows that score leave what nobody reads
  Buffer state_;    // uint64 [ops::kStepStateWords]
  Buffer lives_;    // PageLife [n_pages]: the mirror of the directory
  std::array<StepSlot, kSlots> slots_;
  StepWriter writer_;
  RecentTokens recent_;
  DirectoryMirror mirror_;
  std::array<DecodeRecordings, kStepChecks> recordings_;  // by StepChecks
  Status recording_status_;
  std::vector<LiveRow> live_;  // of the step being submitted
  std::unique_ptr<PageSealer> sealer_;
  Buffer page_bytes_;  // [page_bytes], in the backend's host memory
  std::span<const PageEntry> directory_;
  StepChecks checks_ = StepChecks::none;
  uint64_t allocations_at_start_ = 0;
  uint64_t last_ticket_ = 0;
  uint64_t steps_ = 0;                              // submitted
  uint64_t sent_ = 0;                               // of them, and of the warm-up, run
  std::unordered_map<uint64_t, Outcome> outcomes_;  // by ticket, until collected
};

}  // namespace quire
