// ModelExecutor: the Executor that runs a model on a Backend.
//
// Owns the KV pool's memory and the staging of a step's inputs, both allocated once. Knows pages as
// bytes and rows as numbers; who holds what is the engine's. Carries each call out before it
// returns its ticket. Used by one thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/executor.h"
#include "model/model.h"
#include "ops/backend.h"
#include "ops/sample.h"
#include "tensor/buffer.h"

namespace quire {

class ModelExecutor final : public Executor {
 public:
  // `backend` and `model` outlive the executor; the model was made on `backend`, for batches of at
  // least limits.tokens_max tokens and limits.rows_max logit rows. limits.vocab_size and
  // limits.page_tokens are the model's. Errors: resource_exhausted.
  static Result<std::unique_ptr<ModelExecutor>> make(Backend& backend, Model& model,
                                                     const PlanLimits& limits);

  void watch_directory(std::span<const PageEntry> directory) override;
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

  int64_t pool_bytes() const { return pool_.bytes(); }

 private:
  using Outcome = std::variant<std::monostate, StepResult, std::vector<PageSeal>,
                               std::vector<PageVerdict>, std::vector<std::byte>>;
  // What a step sampled, kept for the steps whose tokens name it.
  struct Sampled {
    TicketId ticket;
    std::vector<std::vector<Token>> rows;
  };
  // A row of the plan that passed its checks: its place in the plan and in the batch.
  struct LiveRow {
    size_t planned;
    int64_t logit = -1;  // row of the logits, or none
  };

  ModelExecutor(Backend& backend, Model& model, const PlanLimits& limits)
      : backend_(backend), model_(model), limits_(limits) {}

  TicketId finish(Outcome outcome);
  template <class T>
  T collect(TicketId ticket);
  std::optional<Token> resolve(const TokenSource& source) const;
  Status check_sources(const StepPlan& plan) const;
  StepResult execute(const StepPlan& plan);
  // Flattens the live rows into the staging buffer and sends it in one copy.
  ModelBatch stage(const StepPlan& plan, std::span<LiveRow> live);
  void sample(const StepPlan& plan, std::span<const LiveRow> live, View<const float, 2> logits,
              StepResult* result);
  std::span<const std::byte> read_page(PageId page);
  std::byte* page_data(PageId page);

  Backend& backend_;
  Model& model_;
  const PlanLimits limits_;
  Buffer pool_;                        // [n_pages, page_bytes], in the backend's memory
  Buffer inputs_;                      // int32 [inputs_max], in the backend's memory
  std::vector<int32_t> staging_;       // [inputs_max], host
  std::vector<std::byte> page_bytes_;  // [page_bytes], host
  std::span<const PageEntry> directory_;
  uint64_t last_ticket_ = 0;
  uint64_t steps_ = 0;
  std::unordered_map<uint64_t, Outcome> outcomes_;  // by ticket, until collected
  std::deque<Sampled> recent_;
};

}  // namespace quire
