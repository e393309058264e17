#include "server/answer_json.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

// What stands for a log-probability of minus infinity, which JSON cannot say; OpenAI's value.
constexpr float kLogprobMin = -9999.0F;

float finite(float logprob) {
  return std::isnan(logprob) ? kLogprobMin : std::max(logprob, kLogprobMin);
}

Json byte_values(std::string_view bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

Json chat_token(std::string_view bytes, float logprob) {
  return {{"token", bytes}, {"logprob", finite(logprob)}, {"bytes", byte_values(bytes)}};
}

// A token of the older API has no `bytes`: one that is not a character is spelt out.
std::string text_token(std::string_view bytes) {
  if (!first_invalid_utf8(bytes)) return std::string(bytes);
  std::string out = "bytes:";
  for (const char c : bytes) out += format("\\x%02x", static_cast<unsigned char>(c));
  return out;
}

size_t count_characters(std::string_view utf8) {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

Json whole_call(const ToolCallDelta& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

}  // namespace

std::string_view name(Finish finish) {
  switch (finish) {
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::tool_calls:
      return "tool_calls";
  }
  return "stop";
}

std::string sse_event(const Json& data) { return "data: " + dump_json(data) + "\n\n"; }

Json chat_logprobs(std::span<const TokenLogprob> tokens) {
  Json content = Json::array();
  for (const TokenLogprob& token : tokens) {
    Json entry = chat_token(token.bytes, token.logprob.value());
    Json top = Json::array();
    for (const auto& [bytes, logprob] : token.top) top.push_back(chat_token(bytes, logprob));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json text_logprobs(std::span<const TokenLogprob> tokens, size_t text_offset) {
  Json names = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const TokenLogprob& token : tokens) {
    names.push_back(text_token(token.bytes));
    const bool has_logprob = token.logprob.has_value();
    logprobs.push_back(has_logprob ? Json(finite(*token.logprob)) : Json(nullptr));
    Json top = has_logprob ? Json::object() : Json(nullptr);
    for (const auto& [bytes, logprob] : token.top) top[text_token(bytes)] = finite(logprob);
    tops.push_back(std::move(top));
    offsets.push_back(text_offset);
    text_offset += count_characters(token.bytes);
  }
  return {{"tokens", std::move(names)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json chat_delta(const ChoiceDelta& delta) {
  Json out = Json::object();
  if (!delta.reasoning.empty()) out["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty()) out["content"] = delta.content;
  if (delta.calls.empty()) return out;
  Json calls = Json::array();
  for (const ToolCallDelta& call : delta.calls) {
    Json entry = {{"index", call.index}};
    if (call.begins) entry.update(whole_call(call));
    if (!call.begins) entry["function"] = {{"arguments", call.arguments}};
    calls.push_back(std::move(entry));
  }
  out["tool_calls"] = std::move(calls);
  return out;
}

Json chat_message(const ChoiceDelta& all) {
  Json out = {{"role", "assistant"}};
  const bool calls_only = all.content.empty() && !all.calls.empty();
  out["content"] = calls_only ? Json(nullptr) : Json(all.content);
  if (!all.reasoning.empty()) out["reasoning_content"] = all.reasoning;
  if (all.calls.empty()) return out;
  Json calls = Json::array();
  for (const ToolCallDelta& call : all.calls) calls.push_back(whole_call(call));
  out["tool_calls"] = std::move(calls);
  return out;
}

Json usage_json(const ChoiceUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

}  // namespace quire
