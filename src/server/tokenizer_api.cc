#include "server/tokenizer_api.h"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "server/field_reader.h"
#include "server/openai_error.h"
#include "text/detokenizer.h"

namespace quire {

namespace {

constexpr std::string_view kBosName = "[BOS]";

HttpResponse respond_with(const Json& body) {
  HttpResponse out;
  out.body = dump_json(body);
  return out;
}

// The object in `body`, or the refusal.
std::variant<Json, HttpResponse> parse_object(std::string_view body) {
  Result<Json> json = parse_json(body);
  if (json.ok() && json.value().is_object()) return std::move(json).value();
  return to_response({.code = "invalid_type", .message = "The body must be a JSON object."});
}

std::vector<Token> tokens_of(const ServedModel& model, std::string_view text) {
  if (const std::optional<Token> special = model.tokenizer.special(text)) return {*special};
  return model.tokenizer.encode(text);
}

}  // namespace

HttpResponse tokenize(const ServedModel& model, std::string_view body) {
  const auto parsed = parse_object(body);
  if (const auto* refusal = std::get_if<HttpResponse>(&parsed)) return *refusal;
  FieldReader fields(std::get<Json>(parsed));
  const auto text = fields.string("prompt", kTokenizeBytesMax);
  if (!fields.failed() && !text) {
    fields.refuse("missing_required_parameter", "prompt", "You must provide a 'prompt'.");
  }
  if (fields.failed()) return to_response(fields.error());
  const std::vector<Token> tokens = tokens_of(model, *text);
  return respond_with(
      {{"tokens", tokens}, {"count", tokens.size()}, {"max_model_len", model.context_tokens}});
}

HttpResponse detokenize(const ServedModel& model, std::string_view body) {
  const auto parsed = parse_object(body);
  if (const auto* refusal = std::get_if<HttpResponse>(&parsed)) return *refusal;
  FieldReader fields(std::get<Json>(parsed));
  const Json* ids = fields.array("tokens", static_cast<size_t>(model.context_tokens));
  if (!fields.failed() && ids == nullptr) {
    fields.refuse("missing_required_parameter", "tokens", "You must provide 'tokens'.");
  }
  Detokenizer detokenizer(model.tokenizer, SpecialText::show_all);
  std::string text;
  for (size_t i = 0; ids != nullptr && i < ids->size() && !fields.failed(); ++i) {
    const auto id = fields.integer_at((*ids)[i], format("tokens[%zu]", i),
                                      {.min = 0, .max = model.tokenizer.vocab_size() - 1});
    if (id) text += detokenizer.push(static_cast<Token>(*id));
  }
  if (fields.failed()) return to_response(fields.error());
  return respond_with({{"prompt", text + detokenizer.finish()}});
}

HttpResponse tokenizer_info(const ServedModel& model) {
  const auto name_of = [&](std::optional<Token> token) {
    return token ? Json(model.tokenizer.token_bytes(*token)) : Json(nullptr);
  };
  std::optional<Token> end;
  if (!model.turn_ends.empty()) end = model.turn_ends.front();
  return respond_with({{"tokenizer_class", "TikTokenTokenizer"},
                       {"bos_token", name_of(model.tokenizer.special(kBosName))},
                       {"eos_token", name_of(end)}});
}

}  // namespace quire
