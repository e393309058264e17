#include "server/admission.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "server/chat_fields.h"
#include "server/context_errors.h"
#include "server/field_reader.h"
#include "server/sampling_fields.h"
#include "server/unsupported_fields.h"

namespace quire {

namespace {

// OpenAI's default for completions.
constexpr int32_t kCompletionTokensDefault = 16;
constexpr size_t kPromptsMax = 64;
constexpr size_t kModelNameBytesMax = 1024;
// Log-probabilities that one whole answer may hold, and about what each takes as JSON.
constexpr int64_t kLogprobBytesMax = int64_t{64} << 20;
constexpr int64_t kLogprobBytes = 96;

// What both endpoints are made of, once their fields are read.
struct Draft {
  AnswerStyle style;
  SamplingFields sampling;
  std::vector<std::vector<Token>> prompts;
  const char* prompt_field = "prompt";
  ChatDemand chat;  // of chat alone
};

void read_model(FieldReader& body, const ServedModel& model, AnswerStyle* style) {
  const auto asked = body.string("model", kModelNameBytesMax);
  if (body.failed()) return;
  if (!asked) {
    return body.refuse("missing_required_parameter", "model", "You must provide a 'model'.");
  }
  style->model = std::string(*asked);
  if (std::find(model.names.begin(), model.names.end(), style->model) != model.names.end()) return;
  body.refuse({.status = 404,
               .code = "model_not_found",
               .param = "model",
               .message = "The model '" + excerpt(*asked) + "' does not exist."});
}

void read_delivery(FieldReader& body, AnswerStyle* style) {
  const bool stream = body.boolean("stream").value_or(false);
  style->delivery = stream ? Delivery::streamed : Delivery::whole;
  const Json* options = body.object("stream_options");
  if (options == nullptr) return;
  if (!stream) {
    return body.refuse("invalid_value", "stream_options",
                       "The 'stream_options' parameter is only allowed when 'stream' is enabled.");
  }
  FieldReader fields(*options, "stream_options.");
  style->include_usage = fields.boolean("include_usage").value_or(false);
  if (fields.failed()) body.refuse(fields.error());
}

void refuse_chat_echo(FieldReader& body) {
  if (!body.boolean("echo").value_or(false)) return;
  body.refuse("unsupported_parameter", "echo",
              "Unsupported parameter: 'echo' may only be false in a chat.");
}

void read_chat_logprobs(FieldReader& body, Draft* draft) {
  draft->style.logprobs = body.boolean("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", {.min = 0, .max = kTopLogprobsMax});
  if (top.value_or(0) > 0 && !draft->style.logprobs) {
    return body.refuse("invalid_value", "top_logprobs",
                       "'top_logprobs' is only allowed when 'logprobs' is enabled.");
  }
  draft->style.top_logprobs = static_cast<int32_t>(top.value_or(0));
}

// The prompt before the answer, or alone.
void read_echo(FieldReader& body, Draft* draft) {
  draft->style.echo = body.boolean("echo").value_or(false);
  draft->style.prompt_only = draft->sampling.max_tokens == 0;
  if (draft->style.prompt_only && !draft->style.echo) {
    body.refuse("integer_below_min_value", "max_tokens",
                "'max_tokens' may be 0 only when 'echo' is enabled: there would be no answer.");
  }
}

void read_text_logprobs(FieldReader& body, Draft* draft) {
  const auto top = body.integer("logprobs", {.min = 0, .max = kTopLogprobsMax});
  draft->style.logprobs = top.has_value();
  draft->style.top_logprobs = static_cast<int32_t>(top.value_or(0));
}

void read_token_ids(FieldReader& body, const Json& ids, const std::string& path,
                    const ServedModel& model, Draft* draft) {
  std::vector<Token> prompt;
  prompt.reserve(ids.size());
  for (size_t i = 0; i < ids.size() && !body.failed(); ++i) {
    const auto id =
        body.integer_at(ids[i], path + format("[%zu]", i), {.min = 0, .max = model.vocab_size - 1});
    prompt.push_back(static_cast<Token>(id.value_or(0)));
  }
  draft->prompts.push_back(std::move(prompt));
}

void read_one_prompt(FieldReader& body, const Json& value, const std::string& path,
                     const ServedModel& model, Draft* draft) {
  if (value.is_array()) return read_token_ids(body, value, path, model, draft);
  if (!value.is_string()) {
    return body.refuse("invalid_type", path, "A prompt must be a string or an array of token ids.");
  }
  const auto& text = value.get_ref<const std::string&>();
  if (const auto error = hopeless_text_error(model, text.size(), path)) return body.refuse(*error);
  draft->prompts.push_back(model.tokenizer.encode(text));
}

// A string, token ids, or an array of either.
void read_prompts(FieldReader& body, const ServedModel& model, Draft* draft) {
  const Json* prompt = body.find("prompt");
  if (prompt == nullptr) {
    return body.refuse("missing_required_parameter", "prompt", "You must provide a 'prompt'.");
  }
  const bool several = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (!several) return read_one_prompt(body, *prompt, "prompt", model, draft);
  if (prompt->size() > kPromptsMax) {
    return body.refuse("array_above_max_length", "prompt",
                       format("Invalid 'prompt': expected at most %zu prompts.", kPromptsMax));
  }
  for (size_t i = 0; i < prompt->size() && !body.failed(); ++i) {
    read_one_prompt(body, (*prompt)[i], format("prompt[%zu]", i), model, draft);
  }
}

// The length of the answer to `prompt`, or an error when the two do not fit the context.
std::optional<int32_t> answer_tokens(FieldReader& body, const ServedModel& model,
                                     const Draft& draft, size_t prompt_tokens) {
  const auto prompt = static_cast<int32_t>(prompt_tokens);
  const int32_t rest = model.context_tokens - prompt;
  const bool chat = draft.style.endpoint == Endpoint::chat;
  int32_t wanted =
      draft.sampling.max_tokens.value_or(chat ? rest : std::min(rest, kCompletionTokensDefault));
  // The engine chooses a token after the prompt in any case; the answer leaves it out.
  if (draft.style.prompt_only) wanted = 1;
  if (prompt == 0) {
    body.refuse("invalid_value", draft.prompt_field, "The prompt must have at least one token.");
  } else if (rest <= 0) {
    body.refuse(prompt_too_long_error(model, prompt, draft.prompt_field));
  } else if (wanted > rest) {
    body.refuse(request_too_long_error(model, prompt, wanted, draft.prompt_field));
  }
  if (body.failed()) return std::nullopt;
  return wanted;
}

std::vector<Token> stop_tokens(const ServedModel& model, const SamplingFields& sampling) {
  std::vector<Token> out = sampling.stop_tokens;
  if (!sampling.ignore_eos) {
    out.insert(out.end(), model.turn_ends.begin(), model.turn_ends.end());
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// One request a choice. Choices of one prompt differ in their seeds alone.
void make_choices(FieldReader& body, const ServedModel& model, const Caller& caller, Draft* draft,
                  AdmittedRequest* out) {
  const uint64_t seed = draft->sampling.seed.value_or(caller.fresh_seed);
  int64_t logprobs = 0;
  for (const std::vector<Token>& prompt : draft->prompts) {
    const auto max_tokens = answer_tokens(body, model, *draft, prompt.size());
    if (!max_tokens) return;
    for (int32_t i = 0; i < draft->sampling.n; ++i) {
      GenerateRequest request{.prompt = prompt,
                              .sampling = draft->sampling.settings,
                              .max_new_tokens = *max_tokens,
                              .stop_tokens = stop_tokens(model, draft->sampling),
                              .grammar = draft->chat.grammar,
                              .tenant = caller.tenant};
      request.sampling.seed = i == 0 ? seed : mix64(seed + static_cast<uint64_t>(i));
      request.sampling.top_logprobs = draft->style.logprobs ? draft->style.top_logprobs : 0;
      int64_t told = *max_tokens;
      AdmittedChoice choice;
      if (draft->style.echo) {
        choice.echo = prompt;
        told += static_cast<int64_t>(prompt.size());
        if (draft->style.logprobs) request.prompt_logprobs = draft->style.top_logprobs;
      }
      choice.request = std::move(request);
      out->choices.push_back(std::move(choice));
      logprobs += told * (draft->style.top_logprobs + 1);
    }
  }
  const bool kept = draft->style.logprobs && draft->style.delivery == Delivery::whole;
  if (kept && logprobs > kLogprobBytesMax / kLogprobBytes) {
    body.refuse("invalid_value", "logprobs",
                "The log-probabilities of such a long answer are too many to be kept: set "
                "'max_tokens', ask for fewer, or 'stream'.");
  }
}

Admission admit_fields(FieldReader& body, const ServedModel& model, Endpoint endpoint,
                       const Json& json, const Caller& caller) {
  Draft draft;
  draft.style.endpoint = endpoint;
  read_model(body, model, &draft.style);
  refuse_unsupported_fields(body);
  read_delivery(body, &draft.style);
  const bool chat = endpoint == Endpoint::chat;
  draft.sampling = read_sampling_fields(body, model.vocab_size, chat ? 1 : 0);
  draft.style.stops = draft.sampling.stops;
  // Rendering and tokenizing are for requests that are right so far.
  if (chat) {
    refuse_chat_echo(body);
    read_chat_logprobs(body, &draft);
    draft.prompt_field = "messages";
    if (!body.failed()) draft.chat = read_chat_fields(body, json, model, draft.sampling);
    draft.style.tool_calls = draft.chat.tool_calls;
    draft.prompts.push_back(std::move(draft.chat.prompt));
  } else {
    read_echo(body, &draft);
    read_text_logprobs(body, &draft);
    if (!body.failed()) read_prompts(body, model, &draft);
  }
  if (body.failed()) return body.error();
  AdmittedRequest out;
  make_choices(body, model, caller, &draft, &out);
  if (body.failed()) return body.error();
  for (AdmittedChoice& choice : out.choices) {
    if (chat) choice.parser = make_chat_parser(body, draft.chat, model);
  }
  if (body.failed()) return body.error();
  out.style = std::move(draft.style);
  out.choices_per_prompt = draft.sampling.n;
  return out;
}

}  // namespace

Admission admit(const ServedModel& model, Endpoint endpoint, std::string_view body,
                const Caller& caller) {
  const Result<Json> json = parse_json(body);
  if (!json.ok()) {
    return ApiError{.message = "We could not parse the JSON body of your request: " +
                               json.error().message + "."};
  }
  if (!json.value().is_object()) {
    return ApiError{.code = "invalid_type", .message = "The body must be a JSON object."};
  }
  FieldReader fields(json.value());
  return admit_fields(fields, model, endpoint, json.value(), caller);
}

}  // namespace quire
