#include "server/answer.h"

#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "server/answer_json.h"

namespace quire {

struct Answer::Part {
  std::unique_ptr<Choice> choice;
  bool is_open = true;
  bool role_sent = false;      // of a streamed chat
  size_t text_characters = 0;  // of a streamed completion, so far, by its tokens
  ChoiceDelta all;             // everything, for an answer that is not streamed
};

namespace {

// Adds `delta` to what came before it.
void append(ChoiceDelta* all, ChoiceDelta delta) {
  all->reasoning += delta.reasoning;
  all->content += delta.content;
  for (ToolCallDelta& call : delta.calls) {
    if (call.begins) {
      all->calls.push_back(std::move(call));
    } else {
      CHECK(!all->calls.empty());
      all->calls.back().arguments += call.arguments;
    }
  }
  for (TokenLogprob& logprob : delta.logprobs) all->logprobs.push_back(std::move(logprob));
  all->finish = delta.finish;
}

bool says_something(const ChoiceDelta& delta) {
  return !delta.reasoning.empty() || !delta.content.empty() || !delta.calls.empty() ||
         !delta.logprobs.empty();
}

size_t characters(std::span<const TokenLogprob> tokens) {
  size_t out = 0;
  for (const TokenLogprob& token : tokens) {
    for (const char c : token.bytes) out += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }
  return out;
}

Json chat_choice(int32_t index, Json delta, Json logprobs, Json finish) {
  return {{"index", index},
          {"delta", std::move(delta)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish)}};
}

Json text_choice(int32_t index, std::string_view text, Json logprobs, Json finish) {
  return {{"index", index},
          {"text", text},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", std::move(finish)}};
}

}  // namespace

Answer::Answer(const ServedModel& model, AdmittedRequest* admitted, AnswerLabel label)
    : style_(std::move(admitted->style)),
      choices_per_prompt_(admitted->choices_per_prompt),
      label_(std::move(label)),
      n_open_(admitted->choices.size()) {
  CHECK(n_open_ > 0);
  for (AdmittedChoice& choice : admitted->choices) {
    parts_.push_back({.choice = make_choice(model, style_, &choice)});
  }
}

Answer::~Answer() = default;

ChoiceUsage Answer::usage() const {
  ChoiceUsage out;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const ChoiceUsage& part = parts_[i].choice->usage();
    out.completion_tokens += part.completion_tokens;
    out.reasoning_tokens += part.reasoning_tokens;
    if (i % static_cast<size_t>(choices_per_prompt_) != 0) continue;
    out.prompt_tokens += part.prompt_tokens;
    out.cached_tokens += part.cached_tokens;
  }
  return out;
}

AnswerStep Answer::push(int32_t choice, const RequestOutput& output) {
  Part& part = parts_.at(static_cast<size_t>(choice));
  if (!part.is_open) return {};
  ChoiceDelta delta = part.choice->push(output);
  if (delta.error) return fail(*delta.error);
  AnswerStep step;
  step.choice_ended = delta.ends();
  if (step.choice_ended) {
    part.is_open = false;
    --n_open_;
  }
  step.done = n_open_ == 0;
  if (style_.delivery == Delivery::whole) {
    append(&part.all, std::move(delta));
    if (step.done) step.response = whole();
    return step;
  }
  step.events = events_of(choice, std::move(delta));
  if (step.done && style_.include_usage) {
    Json last =
        envelope(style_.endpoint == Endpoint::chat ? "chat.completion.chunk" : "text_completion");
    last["choices"] = Json::array();
    last["usage"] = usage_json(usage());
    step.events += sse_event(last);
  }
  if (step.done) step.events += kSseDone;
  events_sent_ = events_sent_ || !step.events.empty();
  return step;
}

// One choice that fails ends them all: a client cannot be told of it in any other way.
AnswerStep Answer::fail(const ApiError& error) {
  for (Part& part : parts_) part.is_open = false;
  AnswerStep step{.choice_ended = true, .done = true};
  if (events_sent_) {
    step.events = sse_event(to_json(error));
    step.broken = true;
  } else {
    step.response = to_response(error);
  }
  return step;
}

Json Answer::envelope(const char* object) const {
  const bool chat = style_.endpoint == Endpoint::chat;
  return {{"id", (chat ? "chatcmpl-" : "cmpl-") + label_.id},
          {"object", object},
          {"created", label_.created_s},
          {"model", style_.model}};
}

std::string Answer::events_of(int32_t choice, ChoiceDelta delta) {
  Part& part = parts_[static_cast<size_t>(choice)];
  std::string out;
  const bool chat = style_.endpoint == Endpoint::chat;
  const auto send = [&](Json entry) {
    Json chunk = envelope(chat ? "chat.completion.chunk" : "text_completion");
    chunk["choices"] = Json::array({std::move(entry)});
    if (style_.include_usage) chunk["usage"] = nullptr;
    out += sse_event(chunk);
  };
  if (chat && !part.role_sent) {
    part.role_sent = true;
    send(chat_choice(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr));
  }
  if (says_something(delta)) {
    Json logprobs = nullptr;
    if (style_.logprobs) {
      logprobs = chat ? chat_logprobs(delta.logprobs)
                      : text_logprobs(delta.logprobs, part.text_characters);
      part.text_characters += characters(delta.logprobs);
    }
    send(chat ? chat_choice(choice, chat_delta(delta), std::move(logprobs), nullptr)
              : text_choice(choice, delta.content, std::move(logprobs), nullptr));
  }
  if (delta.finish) {
    Json finish = name(*delta.finish);
    send(chat ? chat_choice(choice, Json::object(), nullptr, std::move(finish))
              : text_choice(choice, "", nullptr, std::move(finish)));
  }
  return out;
}

HttpResponse Answer::whole() const {
  const bool chat = style_.endpoint == Endpoint::chat;
  Json choices = Json::array();
  for (size_t i = 0; i < parts_.size(); ++i) {
    const ChoiceDelta& all = parts_[i].all;
    Json logprobs = nullptr;
    if (style_.logprobs) {
      logprobs = chat ? chat_logprobs(all.logprobs) : text_logprobs(all.logprobs, 0);
    }
    Json entry = {{"index", i}};
    if (chat) entry["message"] = chat_message(all);
    if (!chat) entry["text"] = all.content;
    entry["logprobs"] = std::move(logprobs);
    entry["finish_reason"] = name(all.finish.value());
    choices.push_back(std::move(entry));
  }
  Json body = envelope(chat ? "chat.completion" : "text_completion");
  body["choices"] = std::move(choices);
  body["usage"] = usage_json(usage());
  HttpResponse out;
  out.body = dump_json(body);
  return out;
}

}  // namespace quire
