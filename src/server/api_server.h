// ApiServer: the application behind HttpServer. Routes requests, owns every answer that is being
// made, and stands between clients and the engine.
//
// All its state belongs to the server's thread. The engine's thread and the admission threads reach
// it through an inbox, by exchange id; what they say of an exchange that is over is counted and
// ignored, because a client may go at any moment.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "server/admission_desk.h"
#include "server/answer.h"
#include "server/api_keys.h"
#include "server/generator.h"
#include "server/http_server.h"
#include "server/inbox.h"
#include "server/metrics.h"
#include "server/served_model.h"

namespace quire {

struct ApiConfig {
  std::string version;
  Json server_info = Json::object();  // shown by /server_info: a whitelist, no secrets
  int64_t drain_ms_max = 30'000;      // for answers under way when the server is told to end
  int admission_threads = 1;
  size_t admissions_max = 256;  // waiting to be admitted
  uint64_t seed = 0;            // of the seeds of requests that name none
  LogLevel request_log = LogLevel::debug;
};

// The parts that outlive the ApiServer.
struct ApiParts {
  Responder& responder;
  const HttpServerStats& http_stats;
  const ApiKeys& keys;
  Metrics& metrics;
  const Clock& clock;
  Log& log;
};

class ApiServer final : public HttpHandler {
 public:
  ApiServer(ApiConfig config, const ApiParts& parts);
  ~ApiServer() override;

  // From any thread. Before open() generation answers 503; `model` and `generator` live as long as
  // the server's thread runs. After drain() new requests get 503, those under way go on until they
  // end or `drain_ms_max` has passed; abort_all() does not wait. Both end the server.
  void open(const ServedModel& model, Generator& generator);
  void drain();
  void abort_all();
  // After the server's thread has ended, before `model` and `generator` go: ends the threads that
  // look at them.
  void close();

  void on_request(ExchangeId exchange, HttpRequest request) override;
  void on_gone(ExchangeId exchange) override;
  void on_wake() override;
  void on_tick() override;
  HttpResponse refusal_response(const HttpRefusal& refusal) override;

 private:
  // An exchange that is not answered yet.
  struct Exchange;
  struct Route;
  class Sink;

  // What other threads say.
  struct Opened {
    const ServedModel* model;
    Generator* generator;
  };
  struct Admitted {
    ExchangeId exchange;
    Admission admission;
  };
  struct Output {
    ExchangeId exchange;
    int32_t choice;
    RequestOutput output;
  };
  struct Operated {
    ExchangeId exchange;
    HttpResponse response;
  };
  enum class Order : uint8_t { drain, abort_all };
  using Event = std::variant<Opened, Admitted, Output, Operated, Order>;
  enum class State : uint8_t { starting, serving, draining };

  // A request with what was found out before its route was called.
  struct Call {
    ExchangeId exchange;
    HttpRequest request;
    TenantSalt tenant{};
  };

  void post(Event event);
  void take(Opened event);
  void take(Admitted event);
  void take(Output event);
  void take(Operated event);
  void take(Order order);

  static std::span<const Route> routes();
  static const Route* find_route(std::string_view path);
  std::optional<HttpResponse> refuse_call(const Route* route, const Call& call) const;

  // Routes. Each answers its exchange, now or later.
  void chat_completions(Call call) { generate(std::move(call), Endpoint::chat); }
  void completions(Call call) { generate(std::move(call), Endpoint::completions); }
  void models(Call call);
  void health(Call call);
  void health_generate(Call call);
  void server_info(Call call);
  void model_info(Call call);
  void tokenize(Call call);
  void detokenize(Call call);
  void tokenizer_info(Call call);
  void metrics_page(Call call);
  void web_page(Call call);
  void flush_cache(Call call);
  void audit(Call call);
  void integrity(Call call);
  void release_page(Call call);

  std::optional<ApiError> not_serving() const;
  void generate(Call call, Endpoint endpoint);
  void operate(Call call, std::function<HttpResponse(Generator&)> work);
  Status submit(ExchangeId id, Exchange& exchange, GenerateRequest request);
  void observe(Exchange& exchange, const RequestOutput& output);
  void deliver(ExchangeId id, Exchange& exchange, AnswerStep step);
  void stop_generating(Exchange& exchange);
  void end(ExchangeId id, int status);
  void respond(ExchangeId id, HttpResponse response);
  void respond_json(ExchangeId id, const Json& body);
  int64_t unix_seconds() const;
  void log_load();
  void log_end(const Exchange& exchange, int status) const;

  const ApiConfig config_;
  const ApiParts parts_;
  State state_ = State::starting;
  const ServedModel* model_ = nullptr;
  Generator* generator_ = nullptr;
  Inbox<Event> inbox_;
  std::unordered_map<ExchangeId, std::unique_ptr<Exchange>> exchanges_;
  int64_t opened_us_ = 0;  // when the model was ready: `created_s` of the model
  int64_t load_logged_us_ = 0;
  int64_t drain_deadline_us_ = 0;
  uint64_t late_events_ = 0;
  uint64_t seed_ = 0;  // of the next request that names none
  // Last, because their threads use the inbox.
  std::unique_ptr<AdmissionDesk> desk_;
  std::jthread operation_;  // one at a time: they wait for the engine
  bool is_operating_ = false;
};

}  // namespace quire
