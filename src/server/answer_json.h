// The JSON of answers, as OpenAI's clients read it: choices, deltas, log-probabilities and usage.
// Pure functions of what a choice gave; which of them is sent when is server/answer's.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/json_fwd.h"
#include "server/choice.h"

namespace quire {

std::string_view name(Finish finish);

// An event of a stream: "data: ...", one line, an empty line after it.
std::string sse_event(const Json& data);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

// Of chat: {"content":[{"token","logprob","bytes","top_logprobs"}],"refusal":null}.
Json chat_logprobs(std::span<const TokenLogprob> tokens);
// Of completions: {"tokens","token_logprobs","top_logprobs","text_offset"}; the first token lies
// at `text_offset` characters of the answer. A prompt's first token has null for both.
Json text_logprobs(std::span<const TokenLogprob> tokens, size_t text_offset);

// The `delta` of a chat chunk; fields with nothing new are left out.
Json chat_delta(const ChoiceDelta& delta);
// The `message` of a whole chat answer.
Json chat_message(const ChoiceDelta& all);

Json usage_json(const ChoiceUsage& usage);

}  // namespace quire
