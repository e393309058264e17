// HttpServer over real sockets, with a handler that does what the path says.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace quire {
namespace {

class Handler final : public HttpHandler {
 public:
  void on_request(ExchangeId exchange, HttpRequest request) override {
    if (request.path == "/echo") {
      responder->respond(exchange, {.content_type = "text/plain", .body = request.body});
    } else if (request.path == "/stream") {
      responder->begin_stream(exchange, {.content_type = "text/event-stream"});
      responder->write(exchange, "data: 1\n\n");
      responder->write(exchange, "data: 2\n\n");
      responder->end_stream(exchange, StreamEnd::whole);
    } else if (request.path == "/broken") {
      responder->begin_stream(exchange, {.content_type = "text/event-stream"});
      responder->write(exchange, "data: 1\n\n");
      responder->end_stream(exchange, StreamEnd::broken);
    } else if (request.path == "/flood") {
      responder->begin_stream(exchange, {.content_type = "text/event-stream"});
      for (int i = 0; i < 64; ++i) responder->write(exchange, std::string(1 << 20, 'x'));
    }
    // "/wait": the answer never comes.
    ++requests;
  }
  void on_gone(ExchangeId exchange) override {
    // Words about somebody who left are ignored.
    responder->write(exchange, "late");
    responder->respond(exchange, {});
    responder->end_stream(exchange, StreamEnd::whole);
    ++gone;
  }
  void on_wake() override { ++woken; }
  void on_tick() override {
    if (is_finishing) responder->finish();
  }
  HttpResponse refusal_response(const HttpRefusal& refusal) override {
    return {.status = refusal.status, .body = refusal.message, .close = true};
  }

  Responder* responder = nullptr;
  std::atomic<int> requests{0};
  std::atomic<int> gone{0};
  std::atomic<int> woken{0};
  std::atomic<bool> is_finishing{false};
};

class Client {
 public:
  explicit Client(uint16_t port, int receive_bytes = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) {
      setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    }
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // What comes until `mark` has been seen, or the server closes.
  std::string receive(const std::string& mark = "") {
    std::string out;
    char buffer[4096];
    while (mark.empty() || out.find(mark) == std::string::npos) {
      const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

 private:
  int socket_;
};

class HttpServerTest : public testing::Test {
 protected:
  void start(const HttpLimits& limits = {}) {
    server_ = HttpServer::listen({{"127.0.0.1", 0, Audience::users}}, limits, clock_, log_).value();
    handler_.responder = server_.get();
    thread_ = std::jthread([this] { server_->run(handler_); });
  }
  void TearDown() override {
    if (server_ == nullptr) return;
    server_->stop();
    thread_.join();
  }
  uint16_t port() const { return server_->port(0); }
  static bool wait_for(const std::atomic<int>& value, int at_least) {
    for (int i = 0; i < 1000 && value < at_least; ++i) usleep(10'000);
    return value >= at_least;
  }
  static std::string get(const std::string& path) {
    return "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
  }

  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  Handler handler_;
  std::unique_ptr<HttpServer> server_;
  std::jthread thread_;
};

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  Client client(port());
  client.send(
      "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none" + get("/stream") +
      "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\ntwo");
  const std::string got = client.receive();
  const size_t one = got.find("one");
  const size_t chunk = got.find("\r\n9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  const size_t two = got.find("two");
  ASSERT_NE(one, std::string::npos) << got;
  ASSERT_NE(chunk, std::string::npos) << got;
  ASSERT_NE(two, std::string::npos) << got;
  EXPECT_LT(one, chunk);
  EXPECT_LT(chunk, two);
}

TEST_F(HttpServerTest, ABrokenStreamEndsWithoutItsLastChunk) {
  start();
  Client client(port());
  client.send(get("/broken"));
  const std::string got = client.receive();
  EXPECT_NE(got.find("data: 1"), std::string::npos);
  EXPECT_EQ(got.find("\r\n0\r\n"), std::string::npos) << got;
}

TEST_F(HttpServerTest, NoticesAClientThatLeavesWhileItWaits) {
  start();
  Client client(port());
  client.send(get("/wait"));
  ASSERT_TRUE(wait_for(handler_.requests, 1));
  EXPECT_EQ(handler_.gone, 0);
  client.close();
  EXPECT_TRUE(wait_for(handler_.gone, 1));
}

TEST_F(HttpServerTest, EndsAClientThatReadsNothing) {
  HttpLimits limits;
  limits.output_stall_ms_max = 500;
  start(limits);
  Client client(port(), 4096);
  client.send(get("/flood"));
  EXPECT_TRUE(wait_for(handler_.gone, 1));
  EXPECT_EQ(server_->stats().stalled, 1U);
}

TEST_F(HttpServerTest, ASlowHeadIsRefusedAndAnIdleConnectionClosed) {
  HttpLimits limits;
  limits.head_ms_max = 300;
  limits.idle_ms_max = 300;
  start(limits);
  Client slow(port());
  slow.send("GET / HT");
  EXPECT_EQ(slow.receive().substr(0, 12), "HTTP/1.1 408");
  Client idle(port());
  EXPECT_EQ(idle.receive(), "");
}

TEST_F(HttpServerTest, RefusesConnectionsPastTheCap) {
  HttpLimits limits;
  limits.connections_max = 2;
  start(limits);
  auto first = std::make_unique<Client>(port());
  first->send(get("/stream"));
  first->receive("0\r\n\r\n");
  Client second(port());
  second.send(get("/stream"));
  second.receive("0\r\n\r\n");
  Client third(port());
  EXPECT_EQ(third.receive().substr(0, 12), "HTTP/1.1 503");
}

TEST_F(HttpServerTest, BodiesShareABudgetThatComesBack) {
  HttpLimits limits;
  limits.bodies_bytes_max = 10;
  start(limits);
  const std::string head = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n";
  Client first(port());
  first.send(head + "1234");
  usleep(200'000);
  Client second(port());
  second.send(head + "1234");
  EXPECT_EQ(second.receive().substr(0, 12), "HTTP/1.1 503");
  first.send("5678");
  EXPECT_NE(first.receive("12345678").find("12345678"), std::string::npos);
  Client third(port());
  third.send(head + "abcd");
  third.send("efgh");
  EXPECT_NE(third.receive("abcdefgh").find("abcdefgh"), std::string::npos);
}

TEST_F(HttpServerTest, FinishSendsWhatWasBegunAndEnds) {
  start();
  Client idle(port());
  Client client(port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
  EXPECT_NE(client.receive("hello").find("hello"), std::string::npos);
  handler_.is_finishing = true;
  EXPECT_EQ(idle.receive(), "");
  thread_.join();
  server_ = nullptr;
}

TEST_F(HttpServerTest, WakesTheHandlerFromOtherThreads) {
  start();
  std::jthread other([this] { server_->wake(); });
  EXPECT_TRUE(wait_for(handler_.woken, 1));
}

TEST_F(HttpServerTest, APortInUseIsAnError) {
  start();
  const auto again = HttpServer::listen({{"127.0.0.1", port(), Audience::users}}, {}, clock_, log_);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::unavailable);
  EXPECT_FALSE(HttpServer::listen({{"nowhere", 0, Audience::users}}, {}, clock_, log_).ok());
}

}  // namespace
}  // namespace quire
