// What goes into the engine and what comes out of it. Tokens only: text is the server's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "format/sampling.h"
#include "text/tool_grammar.h"

namespace quire {

// Who asks: prefix pages are shared only between requests of equal salt. Derived from the
// credential by the server (HMAC of a server secret), never taken from a request body.
using TenantSalt = std::array<uint8_t, 16>;

// A request that was validated at admission (server/admission.h) or built by a tool.
struct GenerateRequest {
  std::vector<Token> prompt;  // 1 .. context - 1 tokens, each in [0, vocab)
  SamplingSettings sampling;
  int32_t max_new_tokens = 0;          // >= 1; prompt + max_new_tokens <= context
  std::vector<Token> stop_tokens;      // ends the request; the stop token is reported
  std::optional<ToolGrammar> grammar;  // restricts the tokens that may be chosen
  TenantSalt tenant{};
  // Set: the log-probability of every token of the prompt after the first is wanted, with as many
  // alternatives, [0, kTopLogprobsMax]. No cached page is used for such a prompt.
  std::optional<int32_t> prompt_logprobs;
};

enum class FinishReason : uint8_t {
  stop,     // a stop token
  length,   // max_new_tokens
  aborted,  // abort(), or shutdown
  failed,   // `error` says why: numerical_error, kv_integrity_error, grammar_dead_end ...
};

// What a failed request ended on, as the public `code` of the error body.
enum class FailureKind : uint8_t { none, numerical, integrity, dead_end, internal };

struct GeneratedToken {
  Token token = -1;
  float logprob = 0;
  std::vector<std::pair<Token, float>> top;  // as many as `top_logprobs`, descending
};

// What happened to a request in one step. Only tokens that passed every check are in it.
struct RequestOutput {
  RequestId request;
  std::vector<GeneratedToken> tokens;
  // The next tokens of the prompt, from the second on, when they were asked for. All of them come
  // before the first of `tokens`.
  std::vector<GeneratedToken> prompt_tokens_scored;
  std::optional<FinishReason> finish;  // the last output of a request has it
  FailureKind failure = FailureKind::none;
  std::optional<Error> error;
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;      // of the prompt, found in the prefix index
  int32_t completion_tokens = 0;  // so far
};

// Where a request's outputs go. Called on the engine's thread, must not block and must not call
// back into the engine. Destroyed on the engine's thread after the last output.
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void on_output(RequestOutput output) = 0;
};

}  // namespace quire
