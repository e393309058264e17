#include "tools/serve_load.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"

namespace quire {

namespace {

// Everything about a request that chance decides, as a pure function of the plan and its number.
struct RandomRequest {
  std::vector<int32_t> prompt;
  int32_t max_tokens = 0;
  int32_t leave_after = -1;  // events, or never
};

int32_t random_length(Rng& rng, int32_t longest, double ratio) {
  const auto shortest = std::max(1, static_cast<int32_t>(ratio * longest));
  return shortest +
         static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(longest - shortest + 1)));
}

void append_random(Rng& rng, int32_t n, int32_t vocab, std::vector<int32_t>* out) {
  for (int32_t i = 0; i < n; ++i) {
    out->push_back(static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(vocab))));
  }
}

RandomRequest make_request(const LoadPlan& plan, int64_t index) {
  Rng rng(mix64(plan.seed) + static_cast<uint64_t>(index));
  RandomRequest out;
  const int32_t input_len = random_length(rng, plan.input_len, plan.range_ratio);
  if (plan.n_prefixes > 0) {
    const uint64_t prefix = rng.next_below(static_cast<uint64_t>(plan.n_prefixes));
    Rng prefix_rng(mix64(plan.seed ^ mix64(prefix)));
    append_random(prefix_rng, std::min(plan.prefix_len, input_len - 1), plan.vocab, &out.prompt);
  }
  append_random(rng, input_len - static_cast<int32_t>(out.prompt.size()), plan.vocab, &out.prompt);
  out.max_tokens = random_length(rng, plan.output_len, plan.range_ratio);
  if (rng.next_float() < static_cast<float>(plan.abandon_share)) {
    out.leave_after =
        static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(out.max_tokens) + 1));
  }
  return out;
}

std::string request_body(const LoadPlan& plan, const RandomRequest& request) {
  const Json body = {{"model", plan.model},
                     {"prompt", request.prompt},
                     {"max_tokens", request.max_tokens},
                     {"temperature", 0},
                     {"ignore_eos", true},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  return dump_json(body);
}

class Load {
 public:
  explicit Load(const LoadPlan& plan) : plan_(plan), begin_us_(clock_.now_us()) {
    if (plan_.request_rate <= 0) return;
    Rng rng(mix64(plan_.seed ^ 0x617272697661ULL));
    const auto n_requests = static_cast<size_t>(plan_.n_requests);
    double at = 0;
    while (plan_.seconds > 0 ? at < plan_.seconds : arrivals_.size() < n_requests) {
      arrivals_.push_back(at);
      at -= std::log1p(-double{rng.next_float()}) / plan_.request_rate;
    }
  }

  LoadRecord run() {
    std::vector<std::vector<RequestRecord>> records(static_cast<size_t>(plan_.streams));
    std::vector<std::thread> threads;
    for (std::vector<RequestRecord>& mine : records) {
      threads.emplace_back([this, &mine] { stream(&mine); });
    }
    for (std::thread& thread : threads) thread.join();
    LoadRecord out{.seconds = now()};
    for (std::vector<RequestRecord>& mine : records) {
      std::move(mine.begin(), mine.end(), std::back_inserter(out.requests));
    }
    return out;
  }

 private:
  double now() const { return static_cast<double>(clock_.now_us() - begin_us_) * 1e-6; }

  // One request after the other, until there is none left to start.
  void stream(std::vector<RequestRecord>* records) {
    while (true) {
      const int64_t index = next_.fetch_add(1);
      if (plan_.seconds <= 0 && index >= plan_.n_requests) return;
      if (plan_.request_rate > 0) {
        if (static_cast<size_t>(index) >= arrivals_.size()) return;
        const double wait = arrivals_[static_cast<size_t>(index)] - now();
        if (wait > 0) std::this_thread::sleep_for(std::chrono::duration<double>(wait));
      }
      if (plan_.seconds > 0 && now() >= plan_.seconds) return;
      records->push_back(one(index));
    }
  }

  RequestRecord one(int64_t index) {
    const RandomRequest request = make_request(plan_, index);
    const std::string body = request_body(plan_, request);
    RequestRecord record{.start = now()};
    const Status status = follow(request, body, &record);
    if (!status.ok()) {
      record.end = RequestEnd::lost;
      record.message = status.error().message;
    }
    record.finish = now();
    return record;
  }

  // Sends the request and reads its answer to the end, or to where the client leaves.
  Status follow(const RandomRequest& request, const std::string& body, RequestRecord* record) {
    HttpExchange exchange = TRY(HttpExchange::ask(
        plan_.server,
        {.method = "POST", .path = "/v1/completions", .body = body, .api_key = plan_.api_key}));
    if (exchange.status() == 429 || exchange.status() == 503) {
      record->end = RequestEnd::refused;
      return {};
    }
    if (exchange.status() != 200) {
      return unavailable(
          format("status %d: %s", exchange.status(), error_message_of(exchange.rest()).c_str()));
    }
    constexpr std::string_view kData = "data: ";
    while (true) {
      if (request.leave_after >= 0 &&
          static_cast<size_t>(request.leave_after) <= record->events.size()) {
        record->end = RequestEnd::abandoned;
        return {};
      }
      const std::optional<std::string> line = TRY(exchange.line());
      if (!line) return unavailable("the answer broke off");
      if (!line->starts_with(kData)) continue;
      const std::string data = line->substr(kData.size());
      if (data == "[DONE]") break;
      TRY_OK(take_event(data, record));
    }
    const auto n_prompt = static_cast<int32_t>(request.prompt.size());
    if (record->output_tokens != request.max_tokens || record->prompt_tokens != n_prompt) {
      return unavailable(format("asked %d tokens after %d, the server counts %d after %d",
                                request.max_tokens, n_prompt, record->output_tokens,
                                record->prompt_tokens));
    }
    record->end = RequestEnd::finished;
    return {};
  }

  Status take_event(const std::string& data, RequestRecord* record) const {
    const Json event = TRY(parse_json(data));
    if (!event.is_object()) return unavailable("an event is no object");
    if (event.contains("error")) return unavailable(error_message_of(data));
    const auto choices = event.find("choices");
    if (choices != event.end() && choices->is_array() && !choices->empty()) {
      record->events.push_back(now());
    }
    const auto usage = event.find("usage");
    if (usage == event.end() || !usage->is_object()) return {};
    record->prompt_tokens = usage->value("prompt_tokens", 0);
    record->output_tokens = usage->value("completion_tokens", 0);
    return {};
  }

  const LoadPlan& plan_;
  SteadyClock clock_;
  const int64_t begin_us_;
  std::vector<double> arrivals_;  // seconds from the start
  std::atomic<int64_t> next_{0};
};

// mean_x_ms, median_x_ms ... of `values` in milliseconds; zeros when there is none, as its readers
// expect numbers.
void add_latency(Json* out, const std::string& name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double x : values) sum += x;
  const double mean = values.empty() ? 0 : sum / n;
  double squares = 0;
  for (const double x : values) squares += (x - mean) * (x - mean);
  const auto percentile = [&](double percent) {
    if (values.empty()) return 0.0;
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * n));
    return values[std::max<size_t>(rank, 1) - 1];
  };
  (*out)["mean_" + name + "_ms"] = mean;
  (*out)["median_" + name + "_ms"] = percentile(50);
  (*out)["std_" + name + "_ms"] = values.empty() ? 0 : std::sqrt(squares / n);
  (*out)["p90_" + name + "_ms"] = percentile(90);
  (*out)["p95_" + name + "_ms"] = percentile(95);
  (*out)["p99_" + name + "_ms"] = percentile(99);
  (*out)["max_" + name + "_ms"] = values.empty() ? 0 : values.back();
}

int64_t most_at_once(const std::vector<RequestRecord>& requests) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& r : requests) {
    changes.emplace_back(r.start, 1);
    changes.emplace_back(r.finish, -1);
  }
  std::sort(changes.begin(), changes.end());
  int64_t now = 0;
  int64_t most = 0;
  for (const auto& [time, change] : changes) most = std::max(most, now += change);
  return most;
}

Json lost_messages(const std::vector<RequestRecord>& requests) {
  constexpr size_t kShownMax = 5;
  Json out = Json::array();
  for (const RequestRecord& r : requests) {
    if (r.end == RequestEnd::lost && out.size() < kShownMax) out.push_back(r.message);
  }
  return out;
}

}  // namespace

Result<LoadRecord> run_load(const LoadPlan& plan) {
  TRY(HttpExchange::ask(plan.server, {.path = "/v1/models", .api_key = plan.api_key}));
  return Load(plan).run();
}

Json describe_load(const LoadRecord& record) {
  int64_t ends[4] = {};
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  double busy_seconds = 0;
  std::vector<double> e2e, ttft, tpot, itl;
  for (const RequestRecord& r : record.requests) {
    ++ends[static_cast<size_t>(r.end)];
    if (r.end != RequestEnd::finished) continue;
    input_tokens += r.prompt_tokens;
    output_tokens += r.output_tokens;
    busy_seconds += r.finish - r.start;
    e2e.push_back(1e3 * (r.finish - r.start));
    if (r.events.empty()) continue;
    ttft.push_back(1e3 * (r.events.front() - r.start));
    for (size_t i = 1; i < r.events.size(); ++i) {
      itl.push_back(1e3 * (r.events[i] - r.events[i - 1]));
    }
    if (r.output_tokens < 2) continue;
    tpot.push_back(1e3 * (r.finish - r.events.front()) / (r.output_tokens - 1));
  }
  const double seconds = record.seconds;
  Json out = {{"duration", seconds},
              {"completed", ends[static_cast<size_t>(RequestEnd::finished)]},
              {"abandoned", ends[static_cast<size_t>(RequestEnd::abandoned)]},
              {"refused", ends[static_cast<size_t>(RequestEnd::refused)]},
              {"lost", ends[static_cast<size_t>(RequestEnd::lost)]},
              {"lost_messages", lost_messages(record.requests)},
              {"total_input_tokens", input_tokens},
              {"total_output_tokens", output_tokens},
              {"request_throughput", static_cast<double>(e2e.size()) / seconds},
              {"input_throughput", static_cast<double>(input_tokens) / seconds},
              {"output_throughput", static_cast<double>(output_tokens) / seconds},
              {"total_throughput", static_cast<double>(input_tokens + output_tokens) / seconds},
              {"concurrency", busy_seconds / seconds},
              {"max_concurrent_requests", most_at_once(record.requests)}};
  add_latency(&out, "e2e_latency", std::move(e2e));
  add_latency(&out, "ttft", std::move(ttft));
  add_latency(&out, "tpot", std::move(tpot));
  add_latency(&out, "itl", std::move(itl));
  return out;
}

}  // namespace quire
