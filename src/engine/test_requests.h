// What the engine's tests share: a sink that keeps everything, requests in one line, and an engine
// so small that eight requests fill it. Test code.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/engine_config.h"
#include "engine/request.h"

namespace quire {

// All that a request was told. Outlives the engine that tells it.
struct Heard {
  std::vector<GeneratedToken> tokens;
  std::vector<RequestOutput> outputs;
  int n_finishes = 0;

  std::vector<Token> ids() const {
    std::vector<Token> out;
    for (const GeneratedToken& token : tokens) out.push_back(token.token);
    return out;
  }
  // Of the prompt, from its second token on.
  std::vector<GeneratedToken> scores() const {
    std::vector<GeneratedToken> out;
    for (const RequestOutput& output : outputs) {
      const std::vector<GeneratedToken>& told = output.prompt_tokens_scored;
      out.insert(out.end(), told.begin(), told.end());
    }
    return out;
  }
  const RequestOutput& last() const { return outputs.back(); }
};

class HearingSink final : public OutputSink {
 public:
  explicit HearingSink(Heard& heard) : heard_(heard) {}
  void on_output(RequestOutput output) override {
    heard_.tokens.insert(heard_.tokens.end(), output.tokens.begin(), output.tokens.end());
    heard_.n_finishes += output.finish ? 1 : 0;
    heard_.outputs.push_back(std::move(output));
  }

 private:
  Heard& heard_;
};

inline std::unique_ptr<OutputSink> hear(Heard& heard) {
  return std::make_unique<HearingSink>(heard);
}

// Always samples from the same seed, so that its answer is known.
inline GenerateRequest seeded_request(std::vector<Token> prompt, int32_t max_new_tokens) {
  GenerateRequest request{.prompt = std::move(prompt), .max_new_tokens = max_new_tokens};
  request.sampling.seed = 11;
  return request;
}

// `n` tokens that begin at `first`, within `vocab_size`: equal calls give equal prefixes.
inline std::vector<Token> counting_prompt(Token first, int32_t n, int32_t vocab_size) {
  std::vector<Token> prompt;
  for (int32_t i = 0; i < n; ++i) prompt.push_back((first + 7 * i) % vocab_size);
  return prompt;
}

// Four requests run and four wait.
inline EngineConfig small_engine(int32_t vocab_size) {
  return {.n_pages = 40,
          .page_tokens = 4,
          .vocab_size = vocab_size,
          .context_tokens = 64,
          .running_requests_max = 4,
          .queued_requests_max = 4,
          .chunked_prefill_tokens = 16};
}

}  // namespace quire
