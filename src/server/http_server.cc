#include "server/http_server.h"

// One thread runs the handlers, and what other threads post passes a mutex: Asio's fences around
// each handler add nothing, and ThreadSanitizer cannot see through them.
#define BOOST_ASIO_DISABLE_FENCED_BLOCK 1

#include <array>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "server/http_request_reader.h"

namespace quire {

namespace asio = boost::asio;
using asio::awaitable;
using asio::redirect_error;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kAcceptRetry = std::chrono::milliseconds(100);
constexpr size_t kReadBytes = size_t{16} << 10;
constexpr int64_t kBodyRateGraceMs = 5'000;
// A stream whose client reads slower than we write may be behind by this many times its limit
// before the wait for it is cut short.
constexpr size_t kUnsentHardFactor = 16;

enum class Phase : uint8_t {
  receiving,  // a request, or idle between two
  answering,  // the handler has it; the answer may be under way
  lingering,  // all is sent and the sending side is shut; reading what is on its way
  closed,
};

struct Connection {
  Connection(tcp::socket accepted, const HttpLimits& limits)
      : socket(std::move(accepted)),
        output_ready(socket.get_executor()),
        input_wanted(socket.get_executor()),
        reader(std::make_unique<HttpRequestReader>(limits)) {}

  tcp::socket socket;
  asio::steady_timer output_ready;  // cancelled when there is something for the writer
  asio::steady_timer input_wanted;  // cancelled when the reader may go on
  std::unique_ptr<HttpRequestReader> reader;
  std::string received;  // not yet taken by `reader`
  std::string unsent;    // not yet with the writer
  std::string sending;   // with the writer, up to `sent` taken by the client
  size_t sent = 0;
  uint64_t id = 0;
  std::string peer;
  Audience audience = Audience::users;
  Phase phase = Phase::receiving;
  ExchangeId exchange;
  bool answer_ended = false;  // all of the answer is in `unsent` or sent
  bool streaming = false;     // its head was written, its body has no known length
  bool chunked = false;
  bool body_suppressed = false;  // HEAD
  bool http_1_0 = false;
  bool keep_alive = true;
  size_t reserved_bytes = 0;       // of bodies_bytes_max, for the body being received
  int64_t receive_started_us = 0;  // of the request being received, or of idleness
  int64_t body_started_us = 0;     // 0: not yet in the body
  int64_t progress_us = 0;         // when the client last took bytes, or had none to take
  int64_t over_limit_us = 0;       // since when `unsent` is past its limit; 0: it is not
  int coroutines = 0;

  size_t unsent_bytes() const { return unsent.size() + sending.size() - sent; }
};

void close_socket(Connection& c) {
  c.phase = Phase::closed;
  error_code ignored;
  c.socket.close(ignored);
  c.output_ready.cancel();
  c.input_wanted.cancel();
}

struct Acceptor {
  tcp::acceptor socket;
  Audience audience;
};

}  // namespace

struct HttpServer::State {
  State(const HttpLimits& the_limits, const Clock& the_clock, Log& the_log)
      : limits(the_limits), clock(the_clock), log(the_log), tick(io) {}

  const HttpLimits limits;
  const Clock& clock;
  Log& log;
  HttpHandler* handler = nullptr;
  asio::io_context io{1};
  asio::steady_timer tick;
  std::vector<Acceptor> acceptors;
  // After `io`: sockets go before the context that serves them.
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections;
  std::unordered_map<ExchangeId, Connection*> exchanges;
  std::unordered_map<std::string, int> per_address;
  uint64_t last_id = 0;
  size_t reserved_bytes = 0;  // by all connections
  bool finishing = false;
  std::atomic<bool> wake_pending{false};
  HttpServerStats stats;

  awaitable<void> accept_loop(Acceptor& acceptor);
  awaitable<void> read_loop(Connection& c);
  awaitable<void> write_loop(Connection& c);
  awaitable<void> tick_loop();
  void admit(tcp::socket socket, Audience audience);
  void leave(Connection& c);
  void advance(Connection& c);
  bool begin_body(Connection& c);
  void release_body(Connection& c);
  void begin_exchange(Connection& c);
  void refuse(Connection& c, const HttpRefusal& refusal);
  void send_whole(Connection& c, const HttpResponse& response);
  void answer_sent(Connection& c);
  void client_gone(Connection& c);
  void enforce_deadlines(Connection& c, int64_t now_us);
  bool is_late(const Connection& c, int64_t now_us) const;
  Connection* find(ExchangeId exchange);
};

Connection* HttpServer::State::find(ExchangeId exchange) {
  const auto found = exchanges.find(exchange);
  return found == exchanges.end() ? nullptr : found->second;
}

awaitable<void> HttpServer::State::accept_loop(Acceptor& acceptor) {
  while (!finishing) {
    error_code error;
    tcp::socket socket =
        co_await acceptor.socket.async_accept(redirect_error(use_awaitable, error));
    if (error == asio::error::operation_aborted) break;
    if (error) {
      // Most likely out of file descriptors: connections that end will give some back.
      log.warning("accept failed: " + error.message());
      asio::steady_timer retry(io, kAcceptRetry);
      co_await retry.async_wait(redirect_error(use_awaitable, error));
      continue;
    }
    admit(std::move(socket), acceptor.audience);
  }
}

void HttpServer::State::admit(tcp::socket socket, Audience audience) {
  error_code error;
  const tcp::endpoint endpoint = socket.remote_endpoint(error);
  if (error) return;
  socket.set_option(tcp::no_delay(true), error);
  auto owned = std::make_unique<Connection>(std::move(socket), limits);
  Connection& c = *owned;
  c.id = ++last_id;
  c.peer = endpoint.address().to_string();
  c.audience = audience;
  c.receive_started_us = c.progress_us = clock.now_us();
  const int from_address = ++per_address[c.peer];
  const bool crowded = stats.connections >= limits.connections_max ||
                       from_address > limits.connections_per_address_max;
  ++stats.connections;
  c.coroutines = 2;
  connections.emplace(c.id, std::move(owned));
  asio::co_spawn(io, write_loop(c), asio::detached);
  asio::co_spawn(io, read_loop(c), asio::detached);
  if (crowded) refuse(c, {503, "overloaded", "Too many connections."});
}

void HttpServer::State::leave(Connection& c) {
  if (--c.coroutines > 0) return;
  release_body(c);
  --stats.connections;
  const auto counted = per_address.find(c.peer);
  if (--counted->second == 0) per_address.erase(counted);
  connections.erase(c.id);
}

awaitable<void> HttpServer::State::read_loop(Connection& c) {
  std::array<char, kReadBytes> buffer;
  while (c.phase != Phase::closed) {
    error_code error;
    const size_t n = co_await c.socket.async_read_some(asio::buffer(buffer),
                                                       redirect_error(use_awaitable, error));
    if (c.phase == Phase::closed) break;
    if (error) {
      client_gone(c);
      break;
    }
    if (c.phase == Phase::lingering) continue;
    c.received.append(buffer.data(), n);
    if (c.phase == Phase::receiving) advance(c);
    // A client may send its next request early, but not without bound. Past the bound its going
    // away is noticed when we write.
    while (c.phase == Phase::answering && c.received.size() >= limits.pipelined_bytes_max) {
      c.input_wanted.expires_at(asio::steady_timer::time_point::max());
      co_await c.input_wanted.async_wait(redirect_error(use_awaitable, error));
    }
  }
  leave(c);
}

awaitable<void> HttpServer::State::write_loop(Connection& c) {
  while (c.phase != Phase::closed) {
    error_code error;
    if (c.unsent_bytes() == 0) {
      if (c.phase == Phase::answering && c.answer_ended) {
        answer_sent(c);
        continue;
      }
      c.output_ready.expires_at(asio::steady_timer::time_point::max());
      co_await c.output_ready.async_wait(redirect_error(use_awaitable, error));
      continue;
    }
    if (c.sent == c.sending.size()) {
      c.sending.clear();
      c.sent = 0;
      c.sending.swap(c.unsent);
    }
    const auto rest = asio::buffer(c.sending.data() + c.sent, c.sending.size() - c.sent);
    const size_t n = co_await c.socket.async_write_some(rest, redirect_error(use_awaitable, error));
    if (c.phase == Phase::closed) break;
    if (error) {
      client_gone(c);
      break;
    }
    c.sent += n;
    c.progress_us = clock.now_us();
    if (c.unsent_bytes() <= limits.stream_unsent_bytes_max) c.over_limit_us = 0;
  }
  leave(c);
}

// Feeds what was received to the reader, as far as it goes.
void HttpServer::State::advance(Connection& c) {
  while (c.phase == Phase::receiving && !c.received.empty()) {
    if (c.reader->is_untouched()) c.receive_started_us = clock.now_us();
    const size_t taken = c.reader->feed(c.received);
    c.received.erase(0, taken);
    switch (c.reader->state()) {
      case HttpRequestReader::State::head:
        return;
      case HttpRequestReader::State::body:
        if (c.body_started_us == 0 && !begin_body(c)) {
          return refuse(c, {503, "overloaded", "Too many large requests at once."});
        }
        return;
      case HttpRequestReader::State::refused:
        return refuse(c, c.reader->refusal());
      case HttpRequestReader::State::complete:
        begin_exchange(c);
        break;
    }
  }
}

// The head of a request is here. False when there is no room for its body.
bool HttpServer::State::begin_body(Connection& c) {
  const size_t bytes = c.reader->body_bytes_expected();
  if (reserved_bytes + bytes > limits.bodies_bytes_max) return false;
  c.body_started_us = clock.now_us();
  c.reserved_bytes = bytes;
  reserved_bytes += bytes;
  if (c.reader->expects_continue()) {
    c.unsent += "HTTP/1.1 100 Continue\r\n\r\n";
    c.output_ready.cancel();
  }
  return true;
}

void HttpServer::State::release_body(Connection& c) {
  reserved_bytes -= std::exchange(c.reserved_bytes, 0);
  c.body_started_us = 0;
}

void HttpServer::State::begin_exchange(Connection& c) {
  HttpRequest request = c.reader->take();
  c.reader = std::make_unique<HttpRequestReader>(limits);
  release_body(c);
  c.phase = Phase::answering;
  c.answer_ended = false;
  c.streaming = false;
  c.body_suppressed = request.method == HttpMethod::head;
  c.http_1_0 = request.http_1_0;
  c.keep_alive = request.keep_alive && !finishing;
  c.progress_us = clock.now_us();
  c.exchange = ExchangeId{++last_id};
  exchanges.emplace(c.exchange, &c);
  ++stats.requests;
  request.peer = c.peer;
  request.audience = c.audience;
  handler->on_request(c.exchange, std::move(request));
}

void HttpServer::State::refuse(Connection& c, const HttpRefusal& refusal) {
  ++stats.refused;
  release_body(c);
  c.phase = Phase::answering;
  c.received.clear();
  c.keep_alive = false;
  c.progress_us = clock.now_us();
  send_whole(c, handler->refusal_response(refusal));
}

void HttpServer::State::send_whole(Connection& c, const HttpResponse& response) {
  if (response.close) c.keep_alive = false;
  c.unsent += serialize_head(response,
                             {.content_length = response.body.size(), .keep_alive = c.keep_alive});
  if (!c.body_suppressed && response.status != 204) c.unsent += response.body;
  c.answer_ended = true;
  c.output_ready.cancel();
}

// The client has taken the whole answer.
void HttpServer::State::answer_sent(Connection& c) {
  exchanges.erase(c.exchange);
  c.receive_started_us = clock.now_us();
  c.answer_ended = false;
  c.streaming = false;
  if (c.keep_alive && !finishing) {
    c.phase = Phase::receiving;
    c.input_wanted.cancel();
    advance(c);
    return;
  }
  // Closing with bytes unread would reset the connection, and the client could lose the answer.
  c.phase = Phase::lingering;
  c.input_wanted.cancel();
  error_code ignored;
  c.socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void HttpServer::State::client_gone(Connection& c) {
  const bool answering = c.phase == Phase::answering && exchanges.erase(c.exchange) > 0;
  close_socket(c);
  // An answer that was complete and only half taken is nobody's work any more.
  if (answering && !c.answer_ended) {
    ++stats.gone;
    handler->on_gone(c.exchange);
  }
}

bool HttpServer::State::is_late(const Connection& c, int64_t now_us) const {
  const int64_t waited_ms = (now_us - c.receive_started_us) / 1000;
  if (c.reader->is_untouched()) return waited_ms > limits.idle_ms_max;
  if (c.body_started_us == 0) return waited_ms > limits.head_ms_max;
  const int64_t body_ms = (now_us - c.body_started_us) / 1000;
  const int64_t body_bytes = static_cast<int64_t>(c.reader->body_bytes_received());
  return body_ms > limits.body_ms_max ||
         (body_ms > kBodyRateGraceMs &&
          body_bytes < (body_ms - kBodyRateGraceMs) / 1000 * limits.body_bytes_per_second_min);
}

void HttpServer::State::enforce_deadlines(Connection& c, int64_t now_us) {
  switch (c.phase) {
    case Phase::receiving:
      if (!is_late(c, now_us) && !(finishing && c.reader->is_untouched())) return;
      if (c.reader->is_untouched()) return close_socket(c);
      return refuse(c, {408, "request_timeout", "The request was not received in time."});
    case Phase::answering: {
      if (c.unsent_bytes() == 0) {
        c.progress_us = now_us;
        return;
      }
      const bool over = c.streaming && c.unsent_bytes() > limits.stream_unsent_bytes_max;
      if (over && c.over_limit_us == 0) c.over_limit_us = now_us;
      const int64_t limit_us = limits.output_stall_ms_max * 1000;
      const bool behind = over && now_us - c.over_limit_us > limit_us;
      const bool flooded =
          over && c.unsent_bytes() > kUnsentHardFactor * limits.stream_unsent_bytes_max;
      if (now_us - c.progress_us <= limit_us && !behind && !flooded) return;
      ++stats.stalled;
      return client_gone(c);
    }
    case Phase::lingering:
      if (now_us - c.receive_started_us > limits.linger_ms_max * 1000) close_socket(c);
      return;
    case Phase::closed:
      return;
  }
}

awaitable<void> HttpServer::State::tick_loop() {
  while (true) {
    error_code error;
    tick.expires_after(kTick);
    co_await tick.async_wait(redirect_error(use_awaitable, error));
    const int64_t now_us = clock.now_us();
    // Closing only marks: connections are erased by their coroutines, later.
    for (auto& [id, connection] : connections) enforce_deadlines(*connection, now_us);
    handler->on_tick();
    if (finishing && connections.empty()) break;
  }
  io.stop();
}

HttpServer::HttpServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const std::vector<HttpListener>& listeners,
                                                       const HttpLimits& limits, const Clock& clock,
                                                       Log& log) {
  auto state = std::make_unique<State>(limits, clock, log);
  for (const HttpListener& listener : listeners) {
    error_code error;
    const auto address = asio::ip::make_address(listener.host, error);
    if (error) return invalid_argument("not an IP address: " + excerpt(listener.host));
    tcp::acceptor socket(state->io);
    const tcp::endpoint endpoint(address, listener.port);
    socket.open(endpoint.protocol(), error);
    if (!error) socket.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) socket.bind(endpoint, error);
    if (!error) socket.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return unavailable("cannot listen on " + listener.host + " port " +
                         std::to_string(listener.port) + ": " + error.message());
    }
    state->acceptors.push_back({std::move(socket), listener.audience});
  }
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

uint16_t HttpServer::port(size_t listener) const {
  CHECK(listener < state_->acceptors.size());
  error_code error;
  return state_->acceptors[listener].socket.local_endpoint(error).port();
}

void HttpServer::run(HttpHandler& handler) {
  State& s = *state_;
  CHECK(s.handler == nullptr);
  s.handler = &handler;
  for (Acceptor& acceptor : s.acceptors) {
    asio::co_spawn(s.io, s.accept_loop(acceptor), asio::detached);
  }
  asio::co_spawn(s.io, s.tick_loop(), asio::detached);
  s.io.run();
}

void HttpServer::stop() { state_->io.stop(); }

void HttpServer::wake() {
  if (state_->wake_pending.exchange(true)) return;
  asio::post(state_->io, [state = state_.get()] {
    state->wake_pending.store(false);
    state->handler->on_wake();
  });
}

void HttpServer::respond(ExchangeId exchange, HttpResponse response) {
  Connection* c = state_->find(exchange);
  if (c == nullptr || c->answer_ended) return;
  CHECK(!c->streaming);
  state_->send_whole(*c, response);
}

void HttpServer::begin_stream(ExchangeId exchange, HttpResponse head) {
  Connection* c = state_->find(exchange);
  if (c == nullptr || c->answer_ended) return;
  CHECK(!c->streaming);
  c->streaming = true;
  c->chunked = !c->http_1_0;
  if (c->http_1_0 || head.close) c->keep_alive = false;
  c->unsent += serialize_head(head, {.keep_alive = c->keep_alive, .chunked = c->chunked});
  c->output_ready.cancel();
}

void HttpServer::write(ExchangeId exchange, std::string_view bytes) {
  Connection* c = state_->find(exchange);
  // An empty chunk would end the body.
  if (c == nullptr || c->answer_ended || c->body_suppressed || bytes.empty()) return;
  CHECK(c->streaming);
  if (c->chunked) c->unsent += format("%zx\r\n", bytes.size());
  c->unsent += bytes;
  if (c->chunked) c->unsent += "\r\n";
  c->output_ready.cancel();
}

void HttpServer::end_stream(ExchangeId exchange, StreamEnd end) {
  Connection* c = state_->find(exchange);
  if (c == nullptr || c->answer_ended) return;
  CHECK(c->streaming);
  if (end == StreamEnd::whole && c->chunked) c->unsent += "0\r\n\r\n";
  if (end == StreamEnd::broken) c->keep_alive = false;
  c->answer_ended = true;
  c->output_ready.cancel();
}

void HttpServer::finish() {
  state_->finishing = true;
  for (Acceptor& acceptor : state_->acceptors) {
    error_code ignored;
    acceptor.socket.close(ignored);
  }
}

const HttpServerStats& HttpServer::stats() const { return state_->stats; }

}  // namespace quire
