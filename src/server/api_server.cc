#include "server/api_server.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "server/api_exchange.h"
#include "server/openai_error.h"
#include "server/request_id.h"

namespace quire {

namespace {

// What nginx calls a client that left; never sent.
constexpr int kClientClosed = 499;
constexpr int64_t kLoadLogUs = 10'000'000;

bool is_json(std::optional<std::string_view> content_type) {
  if (!content_type) return true;
  std::string_view type = content_type->substr(0, content_type->find(';'));
  while (!type.empty() && type.back() == ' ') type.remove_suffix(1);
  return equal_ignoring_case(type, "application/json");
}

}  // namespace

// Tells the inbox what the engine says of one choice. Runs on the engine's thread.
class ApiServer::Sink final : public OutputSink {
 public:
  Sink(ApiServer& server, ExchangeId exchange, int32_t choice)
      : server_(server), exchange_(exchange), choice_(choice) {}
  void on_output(RequestOutput output) override {
    server_.post(Output{exchange_, choice_, std::move(output)});
  }

 private:
  ApiServer& server_;
  const ExchangeId exchange_;
  const int32_t choice_;
};

ApiServer::ApiServer(ApiConfig config, const ApiParts& parts)
    : config_(std::move(config)), parts_(parts), seed_(mix64(config_.seed)) {}
ApiServer::~ApiServer() = default;

void ApiServer::open(const ServedModel& model, Generator& generator) {
  post(Opened{&model, &generator});
}
void ApiServer::drain() { post(Order::drain); }
void ApiServer::abort_all() { post(Order::abort_all); }

void ApiServer::close() {
  desk_.reset();
  if (operation_.joinable()) operation_.join();
}

void ApiServer::post(Event event) {
  if (inbox_.push(std::move(event))) parts_.responder.wake();
}

void ApiServer::on_wake() {
  for (Event& event : inbox_.take_all()) {
    std::visit([this](auto& what) { take(std::move(what)); }, event);
  }
}

void ApiServer::take(Opened event) {
  if (state_ != State::starting) return;
  model_ = event.model;
  generator_ = event.generator;
  opened_us_ = parts_.clock.now_us();
  desk_ =
      std::make_unique<AdmissionDesk>(*model_, config_.admission_threads, config_.admissions_max,
                                      [this](ExchangeId exchange, Admission admission) {
                                        post(Admitted{exchange, std::move(admission)});
                                      });
  state_ = State::serving;
}

void ApiServer::take(Order order) {
  if (state_ != State::draining) {
    state_ = State::draining;
    if (generator_ != nullptr) generator_->drain();
    drain_deadline_us_ = parts_.clock.now_us() + config_.drain_ms_max * 1000;
    parts_.log.info(
        format("Gracefully exiting... Remaining number of requests %zu.", exchanges_.size()));
  }
  if (order == Order::abort_all) drain_deadline_us_ = parts_.clock.now_us();
  on_tick();
}

void ApiServer::on_tick() {
  log_load();
  if (state_ != State::draining) return;
  if (parts_.clock.now_us() >= drain_deadline_us_) {
    // Their last outputs tell their clients.
    for (auto& [id, exchange] : exchanges_) stop_generating(*exchange);
  }
  if (exchanges_.empty()) parts_.responder.finish();
}

HttpResponse ApiServer::refusal_response(const HttpRefusal& refusal) {
  parts_.metrics.count_response(refusal.status);
  HttpResponse out = to_response({.status = refusal.status,
                                  .code = refusal.code == nullptr ? "" : refusal.code,
                                  .message = refusal.message});
  out.headers.push_back({"x-request-id", make_request_id()});
  out.close = true;
  return out;
}

void ApiServer::on_request(ExchangeId id, HttpRequest request) {
  auto exchange = std::make_unique<Exchange>();
  exchange->id = make_request_id();
  exchange->client_id = valid_client_id(request.header("x-request-id")).value_or("");
  exchange->peer = request.peer;
  exchange->path = excerpt(request.path);
  exchange->started_us = parts_.clock.now_us();
  exchanges_.emplace(id, std::move(exchange));
  const Route* route = find_route(request.path);
  Call call{.exchange = id, .request = std::move(request)};
  if (auto refusal = refuse_call(route, call)) return respond(id, std::move(*refusal));
  const auto tenant = parts_.keys.authorize(call.request.header("authorization"));
  if (tenant) call.tenant = *tenant;
  if (!tenant && route->key == Route::Key::needed) {
    return respond(id, to_response({.status = 401,
                                    .code = "invalid_api_key",
                                    .message = "The API key is missing or not valid."}));
  }
  (this->*route->handler)(std::move(call));
}

// What is wrong with a call before anybody looks at who sent it.
std::optional<HttpResponse> ApiServer::refuse_call(const Route* route, const Call& call) const {
  const HttpRequest& request = call.request;
  const bool hidden = route != nullptr && route->audience == Audience::operators &&
                      request.audience != Audience::operators;
  if (route == nullptr || hidden) {
    return to_response({.status = 404, .code = "unknown_url", .message = "There is no such URL."});
  }
  const bool is_get = route->method == HttpMethod::get;
  const char* allowed = is_get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS";
  if (request.method == HttpMethod::options) {
    HttpResponse out{.status = 204};
    out.headers.push_back({"Allow", allowed});
    return out;
  }
  if (request.method != route->method && !(is_get && request.method == HttpMethod::head)) {
    HttpResponse out = to_response({.status = 405,
                                    .code = "method_not_allowed",
                                    .message = "This URL does not take that method."});
    out.headers.push_back({"Allow", allowed});
    return out;
  }
  if (!request.body.empty() && !is_json(request.header("content-type"))) {
    return to_response({.status = 415,
                        .code = "unsupported_media_type",
                        .message = "The body must be 'application/json'."});
  }
  return std::nullopt;
}

std::optional<ApiError> ApiServer::not_serving() const {
  switch (state_) {
    case State::starting:
      return starting_error();
    case State::serving:
      return std::nullopt;
    case State::draining:
      return draining_error();
  }
  return starting_error();
}

void ApiServer::generate(Call call, Endpoint endpoint) {
  if (const auto error = not_serving()) return respond(call.exchange, to_response(*error));
  AdmissionJob job{.exchange = call.exchange,
                   .endpoint = endpoint,
                   .body = std::move(call.request.body),
                   .caller = {.tenant = call.tenant, .fresh_seed = seed_}};
  seed_ = mix64(seed_);
  if (!desk_->submit(std::move(job))) respond(call.exchange, to_response(queue_full_error()));
}

void ApiServer::take(Admitted event) {
  const auto found = exchanges_.find(event.exchange);
  if (found == exchanges_.end()) {
    ++late_events_;
    return;
  }
  Exchange& exchange = *found->second;
  if (const auto* error = std::get_if<ApiError>(&event.admission)) {
    return respond(event.exchange, to_response(*error));
  }
  auto& admitted = std::get<AdmittedRequest>(event.admission);
  std::vector<GenerateRequest> requests;
  for (AdmittedChoice& choice : admitted.choices) requests.push_back(std::move(choice.request));
  exchange.answer = std::make_unique<Answer>(
      *model_, &admitted, AnswerLabel{.id = exchange.id, .created_s = unix_seconds()});
  for (GenerateRequest& request : requests) {
    const Status submitted = submit(event.exchange, exchange, std::move(request));
    if (submitted.ok()) continue;
    stop_generating(exchange);
    return respond(event.exchange, to_response(to_api_error(submitted.error())));
  }
}

int64_t ApiServer::unix_seconds() const {
  return model_->created_s + (parts_.clock.now_us() - opened_us_) / 1'000'000;
}

Status ApiServer::submit(ExchangeId id, Exchange& exchange, GenerateRequest request) {
  const auto choice = static_cast<int32_t>(exchange.requests.size());
  exchange.requests.push_back(
      TRY(generator_->submit(std::move(request), std::make_unique<Sink>(*this, id, choice))));
  exchange.is_generating.push_back(true);
  return {};
}

void ApiServer::take(Output event) {
  const auto found = exchanges_.find(event.exchange);
  if (found == exchanges_.end()) {
    ++late_events_;
    return;
  }
  Exchange& exchange = *found->second;
  const auto choice = static_cast<size_t>(event.choice);
  if (event.output.finish) exchange.is_generating[choice] = false;
  observe(exchange, event.output);
  if (exchange.is_probe) {
    if (!event.output.finish) return;
    if (*event.output.finish == FinishReason::failed) {
      return respond(event.exchange, to_response(to_api_error(event.output.failure)));
    }
    return respond_json(event.exchange, {{"status", "ok"}});
  }
  AnswerStep step = exchange.answer->push(event.choice, event.output);
  // Ended by a stop string, or by its first tool call: the engine does not know.
  if (step.choice_ended && exchange.is_generating[choice]) {
    generator_->abort(exchange.requests[choice]);
    exchange.is_generating[choice] = false;
  }
  deliver(event.exchange, exchange, std::move(step));
}

void ApiServer::observe(Exchange& exchange, const RequestOutput& output) {
  if (output.tokens.empty() || exchange.is_probe) return;
  const int64_t now_us = parts_.clock.now_us();
  if (exchange.first_token_us == 0) {
    exchange.first_token_us = now_us;
    parts_.metrics.observe_time_to_first_token(static_cast<double>(now_us - exchange.started_us) *
                                               1e-6);
  } else if (exchange.requests.size() == 1) {
    // The outputs of several choices are interleaved: no latency of one of them.
    parts_.metrics.observe_inter_token_latency(
        static_cast<double>(now_us - exchange.last_token_us) * 1e-6,
        static_cast<int32_t>(output.tokens.size()));
  }
  exchange.last_token_us = now_us;
}

void ApiServer::deliver(ExchangeId id, Exchange& exchange, AnswerStep step) {
  if (step.done) stop_generating(exchange);
  if (step.response) {
    if (step.response->status == 200) {
      parts_.metrics.observe_request(
          static_cast<double>(parts_.clock.now_us() - exchange.started_us) * 1e-6);
    }
    return respond(id, std::move(*step.response));
  }
  if (!step.events.empty() && !exchange.stream_begun) {
    exchange.stream_begun = true;
    parts_.responder.begin_stream(id, {.content_type = "text/event-stream; charset=utf-8",
                                       .headers = {{"Cache-Control", "no-cache"},
                                                   {"X-Accel-Buffering", "no"},
                                                   {"x-request-id", exchange.id}}});
  }
  parts_.responder.write(id, step.events);
  if (!step.done) return;
  parts_.responder.end_stream(id, step.broken ? StreamEnd::broken : StreamEnd::whole);
  if (!step.broken) {
    parts_.metrics.observe_request(
        static_cast<double>(parts_.clock.now_us() - exchange.started_us) * 1e-6);
  }
  end(id, step.broken ? 500 : 200);
}

void ApiServer::stop_generating(Exchange& exchange) {
  for (size_t i = 0; i < exchange.requests.size(); ++i) {
    if (exchange.is_generating[i]) generator_->abort(exchange.requests[i]);
  }
}

void ApiServer::on_gone(ExchangeId id) {
  const auto found = exchanges_.find(id);
  if (found == exchanges_.end()) return;
  stop_generating(*found->second);
  end(id, kClientClosed);
}

void ApiServer::end(ExchangeId id, int status) {
  const auto found = exchanges_.find(id);
  CHECK(found != exchanges_.end());
  parts_.metrics.count_response(status);
  log_end(*found->second, status);
  exchanges_.erase(found);
}

void ApiServer::respond(ExchangeId id, HttpResponse response) {
  const auto found = exchanges_.find(id);
  CHECK(found != exchanges_.end());
  response.headers.push_back({"x-request-id", found->second->id});
  if (state_ == State::draining) response.close = true;
  const int status = response.status;
  parts_.responder.respond(id, std::move(response));
  end(id, status);
}

void ApiServer::respond_json(ExchangeId id, const Json& body) {
  respond(id, {.body = dump_json(body)});
}

// SGLang's line about the batch at hand, now and then while there is one.
void ApiServer::log_load() {
  const int64_t now_us = parts_.clock.now_us();
  if (generator_ == nullptr || now_us - load_logged_us_ < kLoadLogUs) return;
  const EngineStats stats = generator_->stats();
  if (stats.running + stats.queued == 0) return;
  load_logged_us_ = now_us;
  parts_.log.info(
      format("Decode batch, #running-req: %d, token usage: %.2f, "
             "gen throughput (token/s): %.2f, #queue-req: %d",
             stats.running, static_cast<double>(stats.pages_used) / std::max(1, stats.pages_total),
             stats.generation_tokens_per_second, stats.queued));
}

void ApiServer::log_end(const Exchange& exchange, int status) const {
  const int64_t now_us = parts_.clock.now_us();
  std::string line = format("request %s %s %d peer=%s total_ms=%.1f", exchange.id.c_str(),
                            exchange.path.c_str(), status, exchange.peer.c_str(),
                            static_cast<double>(now_us - exchange.started_us) * 1e-3);
  if (!exchange.client_id.empty()) line += " client_id=" + exchange.client_id;
  if (exchange.answer) {
    const ChoiceUsage usage = exchange.answer->usage();
    line += format(" prompt=%d cached=%d completion=%d", usage.prompt_tokens, usage.cached_tokens,
                   usage.completion_tokens);
  }
  if (exchange.first_token_us != 0) {
    line += format(" first_token_ms=%.1f",
                   static_cast<double>(exchange.first_token_us - exchange.started_us) * 1e-3);
  }
  parts_.log.write(config_.request_log, line);
}

}  // namespace quire
