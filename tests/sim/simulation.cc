#include "tests/sim/simulation.h"

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/sim_executor.h"

namespace quire::sim {

namespace {

constexpr int32_t kVocab = 40;        // small, so that random prompts share pages by chance too
constexpr int32_t kDocuments = 3;     // common beginnings of prompts
constexpr uint64_t kStepsMax = 5000;  // a run that needs more is stuck

// What the seed decides once.
struct Setting {
  EngineConfig engine;
  PlanLimits limits;
  int n_tenants = 1;
  int n_arrivals = 0;
  uint64_t arrival_percent = 0;  // chance of an arrival before a step; several may follow
  uint64_t abort_percent = 0;
  uint64_t flush_percent = 0;
};

int32_t between(Rng& rng, int32_t least, int32_t most) {
  return least + static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(most - least + 1)));
}

bool chance(Rng& rng, uint64_t percent) { return rng.next_below(100) < percent; }

Setting draw_setting(Rng& rng) {
  Setting setting;
  EngineConfig& engine = setting.engine;
  engine.page_tokens = int32_t{1} << between(rng, 0, 4);
  engine.n_pages = between(rng, 3, 30);
  engine.vocab_size = kVocab;
  engine.context_tokens = between(rng, 2, 160);
  engine.running_requests_max = between(rng, 1, 8);
  engine.queued_requests_max = between(rng, 0, 12);
  engine.chunked_prefill_tokens = between(rng, 1, 48);
  engine.prefix_cache = chance(rng, 90);
  engine.seed = rng.next_u64();
  setting.limits = executor_limits(engine);
  setting.n_tenants = between(rng, 1, 3);
  setting.n_arrivals = between(rng, 5, 60);
  setting.arrival_percent = static_cast<uint64_t>(between(rng, 5, 80));
  setting.abort_percent = chance(rng, 50) ? static_cast<uint64_t>(between(rng, 1, 20)) : 0;
  setting.flush_percent = chance(rng, 20) ? 3 : 0;
  // Half of the runs submit a step before they read the one before it, to an executor that carries
  // it out at the last moment.
  if (chance(rng, 50)) engine.overlap = Overlap::on;
  return setting;
}

// A request as the run remembers it.
struct Asked {
  uint64_t salt = 0;
  int tenant = 0;
  std::vector<Token> prompt;
  std::vector<Token> right;  // its whole right answer
  std::vector<Token> got;
  bool aborted = false;
  bool ended = false;
};

class Run {
 public:
  explicit Run(uint64_t seed)
      : rng_(seed),
        setting_(draw_setting(rng_)),
        model_{.vocab_size = kVocab, .seed = rng_.next_u64()},
        log_(LogLevel::error, LogFormat::text),
        executor_(
            model_, setting_.limits, [this](RequestId id) { return asked_.at(id.value).salt; },
            setting_.engine.overlap == Overlap::on ? SimCompletion::when_asked
                                                   : SimCompletion::at_once),
        engine_(setting_.engine, executor_, clock_, log_) {
    for (std::vector<Token>& document : documents_) {
      document = random_tokens(setting_.engine.context_tokens);
    }
  }

  Report go() {
    while (report_.violation.empty() && (left_ > 0 || !engine_.is_idle())) {
      if (report_.stats.steps++ > kStepsMax) wrong("requests do not come to an end");
      turn();
    }
    finish();
    return report_;
  }

 private:
  // Outputs of one request, checked as they come.
  class Sink final : public OutputSink {
   public:
    Sink(Run& run, uint64_t id) : run_(run), id_(id) {}
    void on_output(RequestOutput output) override { run_.receive(id_, output); }

   private:
    Run& run_;
    const uint64_t id_;
  };

  void wrong(std::string what) {
    if (report_.violation.empty()) report_.violation = std::move(what);
  }
  void note(uint64_t value) { report_.hash = mix64(report_.hash ^ value); }

  std::vector<Token> random_tokens(int32_t n) {
    std::vector<Token> tokens(static_cast<size_t>(n));
    for (Token& token : tokens) token = static_cast<Token>(rng_.next_below(kVocab));
    return tokens;
  }

  // A common beginning, or an earlier conversation, and something new.
  std::vector<Token> draw_prompt(int tenant) {
    std::vector<Token> prompt;
    const bool second_turn = !finished_.empty() && chance(rng_, 40);
    if (second_turn) {
      const Asked& earlier = asked_.at(finished_[rng_.next_below(finished_.size())]);
      if (earlier.tenant == tenant) {
        prompt = earlier.prompt;
        prompt.insert(prompt.end(), earlier.got.begin(), earlier.got.end());
      }
    } else if (chance(rng_, 70)) {
      const std::vector<Token>& document = documents_[rng_.next_below(kDocuments)];
      prompt.assign(document.begin(),
                    document.begin() + between(rng_, 0, static_cast<int32_t>(document.size())));
    }
    const std::vector<Token> fresh = random_tokens(between(rng_, 0, 20));
    prompt.insert(prompt.end(), fresh.begin(), fresh.end());
    return prompt;
  }

  void arrive() {
    --left_;
    ++report_.events;
    const uint64_t id = ++last_id_;
    Asked& asked = asked_[id];
    asked.tenant = between(rng_, 0, setting_.n_tenants - 1);
    asked.salt = mix64(static_cast<uint64_t>(asked.tenant) + 1);
    asked.prompt = draw_prompt(asked.tenant);
    GenerateRequest request{.prompt = asked.prompt, .max_new_tokens = between(rng_, 1, 80)};
    request.sampling.seed = rng_.next_u64();
    request.tenant[0] = static_cast<uint8_t>(asked.tenant);
    if (chance(rng_, 50)) request.stop_tokens = random_tokens(between(rng_, 1, 3));
    const bool fits = can_fit(request);
    if (fits) asked.right = right_answer(model_, asked.salt, request);
    const Status status =
        engine_.add_as(RequestId{id}, std::move(request), std::make_unique<Sink>(*this, id));
    if (status.ok()) {
      if (!fits) wrong("a request that can never fit was taken");
      live_.push_back(id);
      return;
    }
    ++report_.refused;
    const ErrorCode expected = fits ? ErrorCode::resource_exhausted : ErrorCode::invalid_argument;
    if (status.error().code != expected) wrong("refused for the wrong reason");
    // The engine's ids skip what it refused; so does the record.
    asked_.erase(id);
  }

  // Said anew, from the rules, not from the engine's own function.
  bool can_fit(const GenerateRequest& request) const {
    const auto n = static_cast<int64_t>(request.prompt.size());
    const int64_t stored = n + request.max_new_tokens - 1;
    const int64_t pool = int64_t{setting_.engine.n_pages - 1} * setting_.engine.page_tokens;
    return n > 0 && n + request.max_new_tokens <= setting_.engine.context_tokens && stored <= pool;
  }

  void receive(uint64_t id, const RequestOutput& output) {
    Asked& asked = asked_.at(id);
    note(id);
    if (asked.ended) wrong(format("request %llu: output after its last", ull(id)));
    if (output.request.value != id) wrong("an output for another request");
    for (const GeneratedToken& token : output.tokens) {
      note(static_cast<uint64_t>(token.token));
      const size_t place = asked.got.size();
      if (place >= asked.right.size() || asked.right[place] != token.token) {
        wrong(format("request %llu: wrong token at %zu", ull(id), place));
      }
      asked.got.push_back(token.token);
    }
    if (!output.finish) return;
    note(100 + static_cast<uint64_t>(*output.finish));
    asked.ended = true;
    std::erase(live_, id);
    finished_.push_back(id);
    check_end(id, asked, output);
  }

  void check_end(uint64_t id, const Asked& asked, const RequestOutput& output) {
    switch (*output.finish) {
      case FinishReason::stop:
      case FinishReason::length:
        ++report_.answered;
        if (asked.got != asked.right) wrong(format("request %llu: cut short", ull(id)));
        return;
      case FinishReason::aborted:
        if (!asked.aborted) wrong(format("request %llu: aborted by nobody", ull(id)));
        return;
      case FinishReason::failed:
        wrong(format("request %llu: failed: %s", ull(id), output.error->message.c_str()));
        return;
    }
  }

  void turn() {
    while (left_ > 0 && chance(rng_, setting_.arrival_percent)) arrive();
    if (!live_.empty() && chance(rng_, setting_.abort_percent)) {
      const uint64_t id = live_[rng_.next_below(live_.size())];
      asked_.at(id).aborted = true;
      engine_.abort(RequestId{id});
      ++report_.events;
    }
    if (chance(rng_, setting_.flush_percent)) engine_.flush_cache();
    clock_.advance_us(between(rng_, 100, 5000));
    engine_.step();
    ++report_.events;
    if (const Status status = engine_.audit(); !status.ok()) wrong(status.error().message);
  }

  void finish() {
    const EngineStats stats = engine_.stats();
    if (report_.violation.empty()) {
      if (!live_.empty()) wrong("requests were lost");
      engine_.flush_cache();
      const EngineStats after = engine_.stats();
      if (after.pages_free != after.pages_total) wrong("pages did not come back");
      if (after.integrity_failed != 0) wrong("a false alarm of the integrity checks");
    }
    for (const uint64_t counter :
         {stats.steps, stats.prompt_tokens, stats.cached_tokens, stats.generation_tokens,
          stats.preemptions, stats.evicted_pages, stats.integrity_checked}) {
      note(counter);
    }
    report_.stats = stats;
    report_.overlap = setting_.engine.overlap;
  }

  static unsigned long long ull(uint64_t value) { return value; }

  Rng rng_;
  const Setting setting_;
  const SimModel model_;
  Log log_;
  ManualClock clock_;
  std::unordered_map<uint64_t, Asked> asked_;  // looked up by id, never walked
  std::vector<uint64_t> live_;
  std::vector<uint64_t> finished_;
  std::array<std::vector<Token>, kDocuments> documents_;
  int left_ = setting_.n_arrivals;
  uint64_t last_id_ = 0;
  Report report_;
  SimExecutor executor_;
  Engine engine_;  // last: its end aborts what is left, into the record above
};

}  // namespace

Report run(uint64_t seed) { return Run(seed).go(); }

}  // namespace quire::sim
