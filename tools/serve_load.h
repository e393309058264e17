// A load on a server: many streamed completions at once, of random tokens and lengths.
//
// Speaks /v1/completions of any OpenAI-compatible server, with prompts as token ids. Some requests
// may share prefixes and some may leave early, which makes it the tester of a server under pressure
// as well as its measure. One thread a request in flight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "tools/http_exchange.h"

namespace quire {

struct LoadPlan {
  ServerAddress server;
  std::string model;
  std::string api_key;
  int32_t n_requests = 0;
  double seconds = 0;       // > 0: no request starts after it, whatever n_requests is
  double request_rate = 0;  // requests a second, at random (Poisson); 0: as fast as streams allow
  int32_t streams = 1;      // in flight, at most
  int32_t input_len = 0;    // tokens: a request's is uniform in [ratio x len, len], at least 1
  int32_t output_len = 0;   // likewise
  double range_ratio = 1;
  int32_t vocab = 0;         // token ids are below it
  int32_t n_prefixes = 0;    // > 0: this many shared prefixes, one at the head of every prompt ...
  int32_t prefix_len = 0;    // ... of this many tokens, counted in input_len
  double abandon_share = 0;  // of requests whose client leaves before the end
  uint64_t seed = 1;
};

enum class RequestEnd : uint8_t {
  finished,   // every token that was asked for came, and the end mark
  abandoned,  // our client left, as planned
  refused,    // 429 or 503: a full server said so
  lost,       // anything else; `message` says what
};

// What a client saw of one request. Times are seconds from the start of the load.
struct RequestRecord {
  RequestEnd end = RequestEnd::lost;
  int32_t prompt_tokens = 0;
  int32_t output_tokens = 0;  // as the server counts them
  double start = 0;
  double finish = 0;
  std::vector<double> events;  // when each piece of the answer came
  std::string message;
};

struct LoadRecord {
  std::vector<RequestRecord> requests;
  double seconds = 0;  // until the last request ended
};

// Errors: unavailable, when nobody answers at all.
Result<LoadRecord> run_load(const LoadPlan& plan);

// The fields of SGLang's bench_serving, under its names, and what became of the other requests.
Json describe_load(const LoadRecord& record);

}  // namespace quire
