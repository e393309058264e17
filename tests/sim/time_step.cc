// time_step: what a step costs the host, the model left out.
//
//   time_step            a line for each of some numbers of requests and lengths
//
// The whole of Engine::step while every request decodes: schedule, plan, hash, leases, results. The
// executor answers at once, but makes the checks that every executor makes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/check.h"
#include "engine/engine.h"
#include "engine/forwarding_executor.h"
#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

constexpr int32_t kVocab = 4352;
constexpr int32_t kWarmSteps = 20;
constexpr int32_t kSteps = 400;

// Gives some token for every row that asks for one.
class InstantExecutor final : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;
  void watch_directory(std::span<const PageEntry> directory, StepChecks /*checks*/) override {
    directory_ = directory;
  }
  void note_changes(std::span<const PageId> /*changed*/) override {}
  Result<TicketId> submit(const StepPlan& plan, const StepHeader& header) override {
    CHECK(header.hash == hash_plan(plan));
    result_ = {.step = plan.step};
    for (const StepRow& row : plan.rows) {
      StepRowResult& out = result_.rows.emplace_back();
      out.request = row.request;
      out.nonce = row.nonce;
      check_row_pages(row.pages, directory_, &out);
      check_row_pages(row.pages, directory_, &out);
      out.accepted = row.first_position + static_cast<int32_t>(row.tokens.size());
      if (row.n_logits > 0) out.tokens.push_back({.token = row.first_position % kVocab});
    }
    return TicketId{plan.step};
  }
  StepResult collect_step(TicketId) override { return std::move(result_); }

 private:
  std::span<const PageEntry> directory_;
  StepResult result_;
};

void time_steps(int32_t n_requests, int32_t n_prompt) {
  const int32_t n_new = kWarmSteps + kSteps + 1;
  const EngineConfig config{.n_pages = n_requests * ((n_prompt + n_new) / kPageTokens + 2),
                            .vocab_size = kVocab,
                            .context_tokens = n_prompt + n_new,
                            .running_requests_max = n_requests,
                            .chunked_prefill_tokens = n_requests * n_prompt};
  SimExecutor pages({.vocab_size = kVocab}, executor_limits(config),
                    [](RequestId) { return uint64_t{0}; });
  InstantExecutor executor(pages);
  const SteadyClock clock;
  Log log(LogLevel::error, LogFormat::text);
  std::vector<Heard> heard(static_cast<size_t>(n_requests));
  Engine engine(config, executor, clock, log);
  for (int32_t i = 0; i < n_requests; ++i) {
    GenerateRequest request{.prompt = counting_prompt(13 * i, n_prompt, kVocab),
                            .max_new_tokens = n_new};
    CHECK(engine.add(std::move(request), hear(heard[static_cast<size_t>(i)])).ok());
  }
  for (int32_t i = 0; i < kWarmSteps; ++i) engine.step();
  std::vector<double> us;
  for (int32_t i = 0; i < kSteps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    engine.step();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    us.push_back(took.count());
  }
  std::sort(us.begin(), us.end());
  std::printf("%3d requests at %5d tokens: best %6.1f us, median %6.1f us\n", n_requests, n_prompt,
              us.front(), us[us.size() / 2]);
}

}  // namespace
}  // namespace quire

int main() {
  for (const auto& [n_requests, n_prompt] : std::vector<std::pair<int32_t, int32_t>>{
           {1, 256}, {16, 256}, {64, 256}, {64, 3000}, {64, 8000}}) {
    quire::time_steps(n_requests, n_prompt);
  }
}
