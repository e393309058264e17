#include "server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "server/integrity_json.h"

namespace quire {

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using prometheus::Registry;

// Seconds. From a step of a small model to a long prompt behind a queue.
const Histogram::BucketBoundaries kFirstTokenBuckets = {
    0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60};
const Histogram::BucketBoundaries kTokenBuckets = {0.0005, 0.001, 0.002, 0.004, 0.006, 0.008, 0.01,
                                                   0.015,  0.02,  0.025, 0.03,  0.04,  0.06,  0.08,
                                                   0.1,    0.2,   0.4,   0.8,   2,     4};
const Histogram::BucketBoundaries kRequestBuckets = {0.05, 0.1, 0.2, 0.4, 0.8, 1,   2,   5,  10,
                                                     20,   40,  60,  80,  100, 200, 400, 800};

}  // namespace

struct Metrics::Series {
  Series(const std::string& model_name, int32_t the_page_tokens)
      : labels{{"model_name", model_name}}, page_tokens(the_page_tokens) {}

  Gauge& gauge(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
  }
  Counter& counter(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
  }
  Histogram& histogram(const char* name, const char* help,
                       const Histogram::BucketBoundaries& buckets) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels,
                                                                                     buckets);
  }

  // One counter a check, under one name.
  using ByCheck = std::array<Counter*, kIntegrityChecks>;
  ByCheck by_check(const char* name, const char* help) {
    auto& family = prometheus::BuildCounter().Name(name).Help(help).Register(registry);
    ByCheck out{};
    for (size_t c = 0; c < kIntegrityChecks; ++c) {
      Labels with_check = labels;
      with_check["check"] = std::string(quire::name(static_cast<IntegrityCheck>(c)));
      out[c] = &family.Add(with_check);
    }
    return out;
  }

  Registry registry;
  const Labels labels;
  const int32_t page_tokens;

  Gauge& running = gauge("sglang:num_running_reqs", "Requests that generate");
  Gauge& queued = gauge("sglang:num_queue_reqs", "Requests that wait");
  Gauge& usage = gauge("sglang:token_usage", "Share of the KV pool that requests hold");
  Gauge& used = gauge("sglang:num_used_tokens", "Tokens of the KV pool that requests hold");
  Gauge& kv_used = gauge("sglang:kv_used_tokens", "Tokens of the KV pool that requests hold");
  Gauge& kv_free = gauge("sglang:kv_available_tokens", "Tokens of the KV pool that are free");
  Gauge& kv_cached =
      gauge("sglang:kv_evictable_tokens", "Cached tokens of the KV pool that no request holds");
  Gauge& pool = gauge("sglang:max_total_num_tokens", "Tokens of the KV pool");
  Gauge& page_size = gauge("sglang:page_size", "Tokens of a page");
  Gauge& pages = gauge("sglang:num_pages", "Pages of the KV pool");
  Gauge& throughput = gauge("sglang:gen_throughput", "Generated tokens a second, over the last");
  Gauge& hit_rate = gauge("sglang:cache_hit_rate", "Share of prompt tokens found in the cache");
  Gauge& load_time = gauge("sglang:engine_load_weights_time", "Seconds to load the weights");
  Gauge& start_time = gauge("sglang:engine_startup_time", "Seconds from start to readiness");
  Counter& prompt = counter("sglang:prompt_tokens_total", "Prompt tokens of admitted requests");
  Counter& generated = counter("sglang:generation_tokens_total", "Generated tokens");
  Counter& cached = counter("sglang:cached_tokens_total", "Prompt tokens found in the cache");
  Counter& evicted = counter("sglang:evicted_tokens_total", "Cached tokens given up for room");
  Counter& requests = counter("sglang:num_requests_total", "Requests that ended, however");
  Counter& aborted = counter("sglang:num_aborted_requests_total", "Requests that were aborted");
  Histogram& first_token = histogram("sglang:time_to_first_token_seconds",
                                     "From the request to its first token", kFirstTokenBuckets);
  Histogram& inter_token = histogram("sglang:inter_token_latency_seconds",
                                     "Between two tokens of a request", kTokenBuckets);
  Histogram& e2e = histogram("sglang:e2e_request_latency_seconds",
                             "From the request to the end of its answer", kRequestBuckets);
  Counter& http_requests = counter("sglang:http_requests_total", "HTTP requests");
  Gauge& http_active = gauge("sglang:http_requests_active", "HTTP requests being answered");
  prometheus::Family<Counter>& http_responses = prometheus::BuildCounter()
                                                    .Name("sglang:http_responses_total")
                                                    .Help("HTTP responses by status")
                                                    .Register(registry);

  Counter& failed = counter("quire:requests_failed_total", "Requests the engine gave up on");
  Counter& preempted = counter("quire:preemptions_total", "Requests set back for want of pages");
  Counter& steps = counter("quire:steps_total", "Steps of the engine");
  ByCheck integrity_checked = by_check("quire:integrity_checked_total", "Comparisons, by check");
  ByCheck integrity_failed = by_check("quire:integrity_failed_total", "Findings, by check");
  Gauge& coverage = gauge("quire:integrity_coverage",
                          "Share of the comparisons of page tags asked for that were made");
  Gauge& quarantined = gauge("quire:integrity_quarantined", "Pages kept from use after a fault");
  Counter& retried = counter("quire:integrity_retries_total",
                             "Requests that began again from their prompt after a finding");
  Counter& allocations =
      counter("quire:device_allocations_total", "Allocations on the device after the start");
  Gauge& connections = gauge("quire:connections", "Open connections");
  Counter& refused = counter("quire:http_refused_total", "What came in and was not HTTP for us");
  Counter& gone = counter("quire:clients_gone_total", "Clients that left before their answer");
  Counter& stalled = counter("quire:clients_stalled_total", "Clients that stopped reading");
  Counter& late = counter("quire:late_events_total", "Events of requests that were over");
};

Metrics::Metrics(const std::string& model_name, int32_t page_tokens)
    : series_(std::make_unique<Series>(model_name, page_tokens)) {}
Metrics::~Metrics() = default;

void Metrics::observe_time_to_first_token(double seconds) { series_->first_token.Observe(seconds); }

void Metrics::observe_inter_token_latency(double seconds, int32_t tokens) {
  for (int32_t i = 0; i < tokens; ++i) series_->inter_token.Observe(seconds / tokens);
}

void Metrics::observe_request(double seconds) { series_->e2e.Observe(seconds); }

void Metrics::count_response(int status) {
  Labels labels = series_->labels;
  labels["status_code"] = std::to_string(status);
  series_->http_responses.Add(labels).Increment();
}

void Metrics::set_startup(double load_seconds, double total_seconds) {
  series_->load_time.Set(load_seconds);
  series_->start_time.Set(total_seconds);
}

std::string Metrics::render(const EngineStats& engine, const ServerCounts& server) {
  Series& s = *series_;
  const auto advance = [](Counter& counter, uint64_t to) {
    counter.Increment(std::max(0.0, static_cast<double>(to) - counter.Value()));
  };
  const auto tokens = [&](int32_t pages) { return static_cast<double>(pages) * s.page_tokens; };
  s.running.Set(engine.running);
  s.queued.Set(engine.queued);
  s.usage.Set(static_cast<double>(engine.pages_used) / std::max(1, engine.pages_total));
  s.used.Set(tokens(engine.pages_used));
  s.kv_used.Set(tokens(engine.pages_used));
  s.kv_free.Set(tokens(engine.pages_free));
  s.kv_cached.Set(tokens(engine.pages_cached));
  s.pool.Set(tokens(engine.pages_total));
  s.page_size.Set(s.page_tokens);
  s.pages.Set(engine.pages_total);
  s.throughput.Set(engine.generation_tokens_per_second);
  s.hit_rate.Set(static_cast<double>(engine.cached_tokens) /
                 static_cast<double>(std::max<uint64_t>(1, engine.prompt_tokens)));
  advance(s.prompt, engine.prompt_tokens);
  advance(s.generated, engine.generation_tokens);
  advance(s.cached, engine.cached_tokens);
  advance(s.evicted, engine.evicted_pages * static_cast<uint64_t>(s.page_tokens));
  advance(s.requests, engine.requests_finished + engine.requests_aborted + engine.requests_failed);
  advance(s.aborted, engine.requests_aborted);
  advance(s.failed, engine.requests_failed);
  advance(s.preempted, engine.preemptions);
  advance(s.steps, engine.steps);
  for (size_t c = 0; c < kIntegrityChecks; ++c) {
    const auto check = static_cast<IntegrityCheck>(c);
    advance(*s.integrity_checked[c], engine.integrity_looked[check]);
    advance(*s.integrity_failed[c], engine.integrity_found[check]);
  }
  advance(s.retried, engine.integrity_retries);
  advance(s.allocations, engine.device_allocations);
  s.coverage.Set(integrity_coverage(engine));
  s.quarantined.Set(engine.pages_quarantined);
  s.connections.Set(server.connections);
  s.http_active.Set(server.exchanges_active);
  advance(s.http_requests, server.http_requests);
  advance(s.refused, server.http_refused);
  advance(s.gone, server.clients_gone);
  advance(s.stalled, server.clients_stalled);
  advance(s.late, server.late_events);
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, s.registry.Collect());
  return out.str();
}

}  // namespace quire
