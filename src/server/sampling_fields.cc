#include "server/sampling_fields.h"

#include <algorithm>
#include <limits>

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

float to_float(std::optional<double> value, float otherwise) {
  return value ? static_cast<float>(*value) : otherwise;
}

void read_stop(FieldReader& body, SamplingFields* out) {
  const Json* stop = body.find("stop");
  if (stop == nullptr) return;
  if (!stop->is_string() && !stop->is_array()) {
    return body.refuse("invalid_type", "stop",
                       "Invalid type for 'stop': expected a string or an array of strings.");
  }
  if (stop->is_array() && stop->size() > kStopsMax) {
    return body.refuse(
        "array_above_max_length", "stop",
        format("Invalid 'stop': array too long. Expected at most %zu items.", kStopsMax));
  }
  const size_t count = stop->is_array() ? stop->size() : 1;
  for (size_t i = 0; i < count; ++i) {
    const Json& item = stop->is_array() ? (*stop)[i] : *stop;
    const std::string path = stop->is_array() ? format("stop[%zu]", i) : "stop";
    if (!item.is_string()) {
      return body.refuse("invalid_type", path, "A stop sequence must be a string.");
    }
    const auto& text = item.get_ref<const std::string&>();
    if (text.empty()) {
      return body.refuse("invalid_value", path, "A stop sequence must not be empty.");
    }
    if (text.size() > kStopBytesMax) {
      return body.refuse("string_above_max_length", path,
                         format("A stop sequence may have at most %zu bytes.", kStopBytesMax));
    }
    out->stops.push_back(text);
  }
}

void read_stop_tokens(FieldReader& body, int32_t vocab_size, SamplingFields* out) {
  const Json* ids = body.array("stop_token_ids", kStopTokensMax);
  if (ids == nullptr) return;
  for (size_t i = 0; i < ids->size(); ++i) {
    const auto id = body.integer_at((*ids)[i], format("stop_token_ids[%zu]", i),
                                    {.min = 0, .max = vocab_size - 1});
    if (id) out->stop_tokens.push_back(static_cast<Token>(*id));
  }
}

void read_logit_bias(FieldReader& body, int32_t vocab_size, SamplingFields* out) {
  const Json* biases = body.object("logit_bias");
  if (biases == nullptr) return;
  if (biases->size() > size_t{kLogitBiasMax}) {
    return body.refuse("array_above_max_length", "logit_bias",
                       format("Invalid 'logit_bias': expected at most %d entries.", kLogitBiasMax));
  }
  for (const auto& [key, value] : biases->items()) {
    const auto id = parse_int(key);
    if (!id || *id < 0 || *id >= vocab_size) {
      return body.refuse(
          "invalid_value", "logit_bias",
          format("Invalid 'logit_bias': keys must be token ids in [0, %d).", vocab_size));
    }
    const auto bias =
        body.number_at(value, "logit_bias." + std::to_string(*id), {.min = -100, .max = 100});
    if (!bias) return;
    out->settings.logit_bias.emplace_back(static_cast<Token>(*id), static_cast<float>(*bias));
  }
  // "5" and "05" are one token: two biases of it would depend on their order.
  auto& list = out->settings.logit_bias;
  std::sort(list.begin(), list.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(list.begin(), list.end(), same) != list.end()) {
    body.refuse("invalid_value", "logit_bias", "Invalid 'logit_bias': a token appears twice.");
  }
}

void read_length(FieldReader& body, int32_t tokens_min, SamplingFields* out) {
  FieldReader::IntegerRange range{.min = 1, .max = std::numeric_limits<int32_t>::max()};
  const auto newer = body.integer("max_completion_tokens", range);
  range.min = tokens_min;
  const auto older = body.integer("max_tokens", range);
  if (const auto length = newer ? newer : older) out->max_tokens = static_cast<int32_t>(*length);
}

}  // namespace

SamplingFields read_sampling_fields(FieldReader& body, int32_t vocab_size, int32_t tokens_min) {
  SamplingFields out;
  SamplingSettings& settings = out.settings;
  settings.temperature = to_float(body.number("temperature", {.min = 0, .max = 2}), 1.0F);
  settings.top_p = to_float(body.number("top_p", {.min = 0, .max = 1, .min_allowed = false}), 1.0F);
  settings.min_p = to_float(body.number("min_p", {.min = 0, .max = 1}), 0.0F);
  settings.presence_penalty =
      to_float(body.number("presence_penalty", {.min = -2, .max = 2}), 0.0F);
  settings.frequency_penalty =
      to_float(body.number("frequency_penalty", {.min = -2, .max = 2}), 0.0F);
  settings.repetition_penalty =
      to_float(body.number("repetition_penalty", {.min = 0, .max = 2, .min_allowed = false}), 1.0F);
  // A value that a float cannot tell from zero would leave the range.
  settings.top_p = std::max(settings.top_p, std::numeric_limits<float>::min());
  settings.repetition_penalty = std::max(settings.repetition_penalty, 1e-3F);
  // -1, SGLang's way, and 0 both mean all; more than all is all.
  const auto top_k = body.integer("top_k", {.min = -1, .max = std::numeric_limits<int32_t>::max()});
  settings.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k.value_or(0), 0, vocab_size));
  const auto seed = body.integer("seed", {.min = std::numeric_limits<int64_t>::min(),
                                          .max = std::numeric_limits<int64_t>::max()});
  if (seed) out.seed = static_cast<uint64_t>(*seed);
  out.n = static_cast<int32_t>(body.integer("n", {.min = 1, .max = kChoicesMax}).value_or(1));
  out.ignore_eos = body.boolean("ignore_eos").value_or(false);
  read_length(body, tokens_min, &out);
  read_stop(body, &out);
  read_stop_tokens(body, vocab_size, &out);
  read_logit_bias(body, vocab_size, &out);
  return out;
}

}  // namespace quire
