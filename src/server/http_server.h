// HttpServer: sockets. Accepts connections, enforces the limits, and moves bytes between clients
// and a handler. It knows HTTP but no route and no JSON.
//
// One thread runs it: everything the handler does happens there and must be short. Each connection
// has one coroutine that always reads, so that a client that goes away is noticed while its answer
// is being made, and one that writes. Requests of a connection are answered one after the other.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "server/http.h"

namespace quire {

// What the application does with requests. Called on the server's thread.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // The answer comes by Responder, now or later.
  virtual void on_request(ExchangeId exchange, HttpRequest request) = 0;
  // The client went away, or takes no bytes, before its answer ended. Nothing more is sent.
  virtual void on_gone(ExchangeId exchange) = 0;
  // After HttpServer::wake(), once for any number of calls.
  virtual void on_wake() = 0;
  // About four times a second.
  virtual void on_tick() = 0;
  // The body of the answer to bytes that are not a request.
  virtual HttpResponse refusal_response(const HttpRefusal& refusal) = 0;
};

struct HttpListener {
  std::string host;   // an address, IPv4 or IPv6
  uint16_t port = 0;  // 0: any free one
  Audience audience = Audience::users;
};

struct HttpServerStats {
  int connections = 0;
  uint64_t requests = 0, refused = 0, gone = 0, stalled = 0;
};

class HttpServer final : public Responder {
 public:
  // Binds all listeners, without accepting yet. Errors: invalid_argument (not an address),
  // unavailable (port in use). `clock`, `log` and the handler outlive the server.
  static Result<std::unique_ptr<HttpServer>> listen(const std::vector<HttpListener>& listeners,
                                                    const HttpLimits& limits, const Clock& clock,
                                                    Log& log);
  ~HttpServer() override;

  // The port of a listener, in the order in which they were given.
  uint16_t port(size_t listener) const;

  // Serves until finish() is done or stop() is called. Once.
  void run(HttpHandler& handler);

  // From any thread: run() returns soon, whatever is being sent.
  void stop();
  void wake() override;

  // On the thread of run() alone.
  void respond(ExchangeId exchange, HttpResponse response) override;
  void begin_stream(ExchangeId exchange, HttpResponse head) override;
  void write(ExchangeId exchange, std::string_view bytes) override;
  void end_stream(ExchangeId exchange, StreamEnd end) override;
  void finish() override;
  const HttpServerStats& stats() const;

 private:
  struct State;
  explicit HttpServer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
