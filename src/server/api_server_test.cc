// ApiServer against an engine and clients that do what the test says; no sockets.
#include "server/api_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/served_model_fixture.h"

namespace quire {
namespace {

// What a client has been sent.
struct Sent {
  std::optional<HttpResponse> response;
  std::optional<HttpResponse> head;
  std::string stream;
  std::optional<StreamEnd> end;

  bool is_over() const { return response.has_value() || end.has_value(); }
};

class FakeResponder final : public Responder {
 public:
  void respond(ExchangeId exchange, HttpResponse response) override {
    EXPECT_FALSE(sent[exchange.value].is_over());
    sent[exchange.value].response = std::move(response);
  }
  void begin_stream(ExchangeId exchange, HttpResponse head) override {
    EXPECT_FALSE(sent[exchange.value].head.has_value());
    sent[exchange.value].head = std::move(head);
  }
  void write(ExchangeId exchange, std::string_view bytes) override {
    sent[exchange.value].stream += bytes;
  }
  void end_stream(ExchangeId exchange, StreamEnd end) override {
    EXPECT_FALSE(sent[exchange.value].is_over());
    sent[exchange.value].end = end;
  }
  void finish() override { finished = true; }
  void wake() override { is_awake = true; }

  std::map<uint64_t, Sent> sent;
  bool finished = false;
  std::atomic<bool> is_awake{false};
};

class FakeGenerator final : public Generator {
 public:
  struct Request {
    GenerateRequest request;
    std::unique_ptr<OutputSink> sink;
    bool aborted = false;
  };

  Result<RequestId> submit(GenerateRequest request, std::unique_ptr<OutputSink> sink) override {
    if (is_draining) return unavailable("draining");
    if (requests.size() >= requests_max) return resource_exhausted("full");
    requests.push_back({std::move(request), std::move(sink)});
    return RequestId{requests.size()};
  }
  void abort(RequestId request) override { requests.at(request.value - 1).aborted = true; }
  void drain() override { is_draining = true; }
  EngineStats stats() const override { return {.pages_total = 10}; }
  Status audit() override { return audit_result; }
  IntegrityReport integrity() override { return report; }
  Status release_page(PageId page) override {
    released.push_back(page);
    return page.value == 7 ? Status{} : corruption("page: release: expected quarantined");
  }
  bool flush_cache() override { return true; }

  void say(size_t request, std::vector<Token> tokens, std::optional<FinishReason> finish = {}) {
    RequestOutput out{.request = RequestId{request + 1}, .finish = finish, .prompt_tokens = 3};
    for (const Token token : tokens) out.tokens.push_back({.token = token});
    requests.at(request).sink->on_output(std::move(out));
  }

  std::vector<Request> requests;
  size_t requests_max = 100;
  bool is_draining = false;
  Status audit_result;
  IntegrityReport report;
  std::vector<PageId> released;
};

class ApiServerTest : public testing::Test {
 protected:
  ApiServerTest() : fixture_(ServedModelFixture::load()) {}
  ~ApiServerTest() override { api_.close(); }

  void open() {
    api_.open(fixture_->model, generator_);
    api_.on_wake();
  }

  uint64_t ask(HttpMethod method, const std::string& path, const std::string& body = "",
               Audience audience = Audience::users) {
    HttpRequest request{.method = method, .path = path, .body = body, .audience = audience};
    request.headers = {{"Content-Type", "application/json; charset=utf-8"}};
    if (!key_.empty()) request.headers.push_back({"Authorization", "Bearer " + key_});
    api_.on_request(ExchangeId{++last_exchange_}, std::move(request));
    return last_exchange_;
  }
  uint64_t complete(const std::string& fields = "") {
    return ask(HttpMethod::post, "/v1/completions",
               R"({"model":"nano","prompt":"Hi")" + fields + "}");
  }

  // Lets the other threads speak until `condition` holds.
  testing::AssertionResult until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) {
        return testing::AssertionFailure() << "it did not happen";
      }
      if (responder_.is_awake.exchange(false)) {
        api_.on_wake();
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    return testing::AssertionSuccess();
  }
  testing::AssertionResult until_submitted(size_t count) {
    return until([&, count] { return generator_.requests.size() >= count; });
  }
  testing::AssertionResult until_over(uint64_t exchange) {
    return until([&, exchange] { return responder_.sent[exchange].is_over(); });
  }
  int status(uint64_t exchange) { return responder_.sent[exchange].response.value().status; }
  std::string code(uint64_t exchange) {
    return parse_json(responder_.sent[exchange].response.value().body)
        .value()["error"]["code"]
        .get<std::string>();
  }

  std::unique_ptr<ServedModelFixture> fixture_;
  Log log_{LogLevel::error, LogFormat::text};
  ManualClock clock_;
  ApiKeys keys_ = ApiKeys::create().value();
  Metrics metrics_{"nano", 64};
  HttpServerStats http_stats_;
  FakeResponder responder_;
  FakeGenerator generator_;
  ApiServer api_{{.version = "1", .server_info = {{"device", "cpu"}}, .drain_ms_max = 1000},
                 {responder_, http_stats_, keys_, metrics_, clock_, log_}};
  uint64_t last_exchange_ = 0;
  std::string key_;
};

TEST_F(ApiServerTest, SaysThatItIsStarting) {
  for (const char* path : {"/health", "/health_generate", "/v1/models", "/model_info"}) {
    EXPECT_EQ(status(ask(HttpMethod::get, path)), 503) << path;
  }
  EXPECT_EQ(status(complete()), 503);
  open();
  EXPECT_EQ(status(ask(HttpMethod::get, "/health")), 200);
}

TEST_F(ApiServerTest, StreamsAndEndsAndForgets) {
  open();
  const uint64_t exchange = complete(R"(,"stream":true)");
  ASSERT_TRUE(until_submitted(1));
  EXPECT_FALSE(responder_.sent[exchange].head.has_value());
  generator_.say(0, fixture_->tokenizer.encode("Hello"));
  ASSERT_TRUE(until([&] { return responder_.sent[exchange].head.has_value(); }));
  EXPECT_EQ(responder_.sent[exchange].head->content_type, "text/event-stream; charset=utf-8");
  generator_.say(0, {fixture_->special("<|im_end|>")}, FinishReason::stop);
  ASSERT_TRUE(until_over(exchange));
  EXPECT_EQ(responder_.sent[exchange].end, StreamEnd::whole);
  EXPECT_NE(responder_.sent[exchange].stream.find("data: [DONE]\n\n"), std::string::npos);
  EXPECT_FALSE(generator_.requests[0].aborted);
  // A late word of it is ignored.
  generator_.say(0, {1});
  api_.on_wake();
}

TEST_F(ApiServerTest, AClientThatLeavesTakesItsRequestsAlong) {
  open();
  const uint64_t exchange = complete(R"(,"n":3)");
  const uint64_t other = complete();
  ASSERT_TRUE(until_submitted(4));
  generator_.say(1, {1}, FinishReason::length);
  ASSERT_TRUE(until([&] {
    api_.on_wake();
    return true;
  }));
  api_.on_gone(ExchangeId{exchange});
  api_.on_gone(ExchangeId{exchange});
  api_.on_gone(ExchangeId{12345});
  int aborted = 0;
  for (const auto& request : generator_.requests) aborted += request.aborted;
  EXPECT_EQ(aborted, 2);
  for (size_t i = 0; i < 4; ++i) generator_.say(i, {1}, FinishReason::length);
  ASSERT_TRUE(until_over(other));
  EXPECT_EQ(status(other), 200);
  EXPECT_FALSE(responder_.sent[exchange].is_over());
}

TEST_F(ApiServerTest, AClientThatLeavesDuringAdmissionIsNotSubmitted) {
  open();
  const uint64_t gone = complete();
  api_.on_gone(ExchangeId{gone});
  const uint64_t other = complete();
  ASSERT_TRUE(until_submitted(1));
  generator_.say(0, {1}, FinishReason::length);
  ASSERT_TRUE(until_over(other));
  EXPECT_EQ(generator_.requests.size(), 1U);
}

TEST_F(ApiServerTest, EachChoiceIsWrittenWhereItBelongs) {
  open();
  const uint64_t exchange = complete(R"(,"n":3)");
  ASSERT_TRUE(until_submitted(3));
  const std::vector<std::string> said = {"one", "two", "three"};
  for (const size_t choice : {size_t{2}, size_t{0}, size_t{1}}) {
    generator_.say(choice, fixture_->tokenizer.encode(said[choice]), FinishReason::length);
  }
  ASSERT_TRUE(until_over(exchange));
  EXPECT_EQ(status(exchange), 200);
  const Json body = parse_json(responder_.sent[exchange].response->body).value();
  for (size_t choice = 0; choice < said.size(); ++choice) {
    EXPECT_EQ(body["choices"][choice]["index"], choice);
    EXPECT_EQ(body["choices"][choice]["text"], said[choice]);
  }
}

TEST_F(ApiServerTest, AFullQueueTakesNoneOfSeveralChoices) {
  open();
  generator_.requests_max = 2;
  const uint64_t exchange = complete(R"(,"n":3)");
  ASSERT_TRUE(until_over(exchange));
  EXPECT_EQ(status(exchange), 429);
  EXPECT_EQ(code(exchange), "queue_full");
  EXPECT_TRUE(generator_.requests[0].aborted && generator_.requests[1].aborted);
  generator_.say(0, {1}, FinishReason::aborted);
  generator_.say(1, {1}, FinishReason::aborted);
  api_.on_wake();
}

TEST_F(ApiServerTest, AStopStringEndsTheEnginesRequest) {
  open();
  const uint64_t exchange = complete(R"(,"stop":"lo","max_tokens":50)");
  ASSERT_TRUE(until_submitted(1));
  generator_.say(0, fixture_->tokenizer.encode("Hello there"));
  ASSERT_TRUE(until_over(exchange));
  EXPECT_EQ(status(exchange), 200);
  EXPECT_TRUE(generator_.requests[0].aborted);
  const Json body = parse_json(responder_.sent[exchange].response->body).value();
  EXPECT_EQ(body["choices"][0]["text"], "Hel");
}

TEST_F(ApiServerTest, DrainLetsAnswersFinishAndRefusesNewOnes) {
  open();
  const uint64_t running = complete();
  ASSERT_TRUE(until_submitted(1));
  api_.drain();
  api_.on_wake();
  EXPECT_TRUE(generator_.is_draining);
  EXPECT_FALSE(responder_.finished);
  const uint64_t refused = complete();
  EXPECT_EQ(status(refused), 503);
  EXPECT_TRUE(responder_.sent[refused].response->close);
  EXPECT_EQ(status(ask(HttpMethod::get, "/health")), 503);
  generator_.say(0, {1}, FinishReason::length);
  ASSERT_TRUE(until_over(running));
  EXPECT_EQ(status(running), 200);
  api_.on_tick();
  EXPECT_TRUE(responder_.finished);
}

TEST_F(ApiServerTest, DrainHasADeadlineAndASecondOrderHasNone) {
  open();
  const uint64_t running = complete();
  ASSERT_TRUE(until_submitted(1));
  api_.drain();
  api_.on_wake();
  clock_.advance_us(900'000);
  api_.on_tick();
  EXPECT_FALSE(generator_.requests[0].aborted);
  clock_.advance_us(200'000);
  api_.on_tick();
  EXPECT_TRUE(generator_.requests[0].aborted);
  generator_.say(0, {}, FinishReason::aborted);
  ASSERT_TRUE(until_over(running));
  EXPECT_EQ(status(running), 503);
}

TEST_F(ApiServerTest, AbortAllEndsEverythingNow) {
  open();
  complete();
  ASSERT_TRUE(until_submitted(1));
  api_.abort_all();
  api_.on_wake();
  EXPECT_TRUE(generator_.requests[0].aborted);
}

TEST_F(ApiServerTest, DrainBeforeTheModelIsLoadedEnds) {
  api_.drain();
  api_.on_wake();
  EXPECT_TRUE(responder_.finished);
  open();
  EXPECT_EQ(status(ask(HttpMethod::get, "/health")), 503);
}

TEST_F(ApiServerTest, ProbeIsOneRealToken) {
  open();
  const uint64_t probe = ask(HttpMethod::get, "/health_generate");
  ASSERT_EQ(generator_.requests.size(), 1U);
  EXPECT_EQ(generator_.requests[0].request.max_new_tokens, 1);
  EXPECT_FALSE(responder_.sent[probe].is_over());
  generator_.say(0, {1}, FinishReason::length);
  ASSERT_TRUE(until_over(probe));
  EXPECT_EQ(status(probe), 200);
  const uint64_t failing = ask(HttpMethod::get, "/health_generate");
  generator_.say(1, {}, FinishReason::failed);
  ASSERT_TRUE(until_over(failing));
  EXPECT_EQ(status(failing), 500);
}

TEST_F(ApiServerTest, OperatorsRoutesAreForOperators) {
  open();
  EXPECT_EQ(status(ask(HttpMethod::get, "/audit")), 404);
  EXPECT_EQ(status(ask(HttpMethod::post, "/flush_cache")), 404);
  const uint64_t clean = ask(HttpMethod::get, "/audit", "", Audience::operators);
  ASSERT_TRUE(until_over(clean));
  EXPECT_EQ(status(clean), 200);
  generator_.audit_result = corruption("page 7 has two owners");
  const uint64_t broken = ask(HttpMethod::get, "/audit", "", Audience::operators);
  ASSERT_TRUE(until_over(broken));
  EXPECT_EQ(status(broken), 500);
  const uint64_t flushed = ask(HttpMethod::post, "/flush_cache", "", Audience::operators);
  ASSERT_TRUE(until_over(flushed));
  EXPECT_EQ(status(flushed), 200);
}

TEST_F(ApiServerTest, OperatorsSeeWhatTheChecksFound) {
  open();
  EXPECT_EQ(status(ask(HttpMethod::get, "/integrity")), 404);
  EXPECT_EQ(status(ask(HttpMethod::post, "/integrity/release", R"({"page":7})")), 404);
  generator_.report.pages[static_cast<size_t>(PageState::quarantined)] = 1;
  generator_.report.quarantined = {{.page = PageId{7}, .is_held = true}};
  generator_.report.events = {{.check = IntegrityCheck::seals,
                               .page = PageId{7},
                               .what = "it was damaged",
                               .number = 1,
                               .at_us = 1'000'000,
                               .step = 40}};
  generator_.report.now_us = 3'500'000;
  const uint64_t seen = ask(HttpMethod::get, "/integrity", "", Audience::operators);
  ASSERT_TRUE(until_over(seen));
  EXPECT_EQ(status(seen), 200);
  const Json body = parse_json(responder_.sent[seen].response->body).value();
  EXPECT_EQ(body["pages"]["quarantined"], 1);
  EXPECT_EQ(body["quarantined"], Json::parse(R"([{"page":7,"held":true}])"));
  EXPECT_EQ(body["checks"].size(), kIntegrityChecks);
  EXPECT_EQ(body["checks"]["tags"], Json::parse(R"({"looked":0,"found":0})"));
  EXPECT_EQ(body["coverage"], 1.0);
  EXPECT_EQ(body["events"], Json::parse(R"([{"number":1,"seconds_ago":2.5,"step":40,"event":"found",
                             "check":"seals","page":7,"request":null,"what":"it was damaged"}])"));
}

TEST_F(ApiServerTest, AnOperatorReleasesAPage) {
  open();
  const auto release = [&](const char* body) {
    const uint64_t asked = ask(HttpMethod::post, "/integrity/release", body, Audience::operators);
    EXPECT_TRUE(until_over(asked));
    return status(asked);
  };
  EXPECT_EQ(release(R"({"page":7})"), 200);
  EXPECT_EQ(release(R"({"page":8})"), 400);
  EXPECT_EQ(generator_.released, (std::vector<PageId>{PageId{7}, PageId{8}}));
  for (const char* bad : {"", "7", "{}", R"({"page":-1})", R"({"page":"7"})", R"({"page":1.5})",
                          R"({"page":7,"pages":8})", R"({"page":99999999999})"}) {
    EXPECT_EQ(release(bad), 400) << bad;
  }
  EXPECT_EQ(generator_.released.size(), 2U);
}

TEST_F(ApiServerTest, KeysDecideTheTenant) {
  ASSERT_TRUE(keys_.add_file("a k1\na k2\nb k3").ok());
  open();
  EXPECT_EQ(status(complete()), 401);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/models")), 401);
  EXPECT_EQ(status(ask(HttpMethod::get, "/health")), 200);
  size_t submitted = 0;
  for (const char* key : {"k1", "k2", "k3"}) {
    key_ = key;
    complete();
    ASSERT_TRUE(until_submitted(++submitted));
  }
  const auto salt = [&](size_t i) { return generator_.requests[i].request.tenant; };
  EXPECT_EQ(salt(0), salt(1));
  EXPECT_NE(salt(0), salt(2));
}

TEST_F(ApiServerTest, WrongPathsMethodsAndTypes) {
  open();
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/nothing")), 404);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/chat/completions")), 405);
  EXPECT_EQ(status(ask(HttpMethod::post, "/health")), 405);
  EXPECT_EQ(status(ask(HttpMethod::options, "/health")), 204);
  EXPECT_EQ(status(ask(HttpMethod::head, "/health")), 200);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/models/nano")), 200);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/models/org%2Fnano")), 200);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/models/org/nano")), 200);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/models/none")), 404);
  EXPECT_EQ(status(ask(HttpMethod::get, "/v1/models/")), 404);
  HttpRequest form{.method = HttpMethod::post, .path = "/v1/completions", .body = "{}"};
  form.headers = {{"Content-Type", "application/x-www-form-urlencoded"}};
  api_.on_request(ExchangeId{999}, std::move(form));
  EXPECT_EQ(status(999), 415);
  for (const auto& [id, sent] : responder_.sent) {
    EXPECT_EQ(sent.response->headers.back().name, "x-request-id");
    EXPECT_EQ(sent.response->headers.back().value.size(), 32U);
  }
}

TEST_F(ApiServerTest, MetricsAreSglangs) {
  open();
  const uint64_t page = ask(HttpMethod::get, "/metrics");
  const std::string body = responder_.sent[page].response->body;
  EXPECT_NE(body.find("sglang:max_total_num_tokens{model_name=\"nano\"} 640"), std::string::npos)
      << body;
  EXPECT_NE(body.find("quire:integrity_checked_total{check=\"tags\",model_name=\"nano\"} 0"),
            std::string::npos)
      << body;
  EXPECT_NE(body.find("quire:integrity_failed_total{check=\"seals\",model_name=\"nano\"} 0"),
            std::string::npos)
      << body;
  EXPECT_NE(body.find("quire:integrity_coverage{model_name=\"nano\"} 1"), std::string::npos);
}

}  // namespace
}  // namespace quire
