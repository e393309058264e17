#include "compress/quantization_config.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "weights/name_pattern.h"

namespace quire {

namespace {

constexpr std::string_view kOwner = "quantization_config";
constexpr std::string_view kTextConfig = "text_config";

// How publishers of INT4 experts say that the rest is left alone.
constexpr std::array kIgnorePatterns = {
    std::string_view("lm_head"),
    std::string_view("re:.*self_attn.*"),
    std::string_view("re:.*shared_experts.*"),
    std::string_view("re:.*mlp\\.(gate|up|gate_up|down)_proj.*"),
    std::string_view("re:.*mlp\\.gate$"),
    std::string_view("re:.*eh_proj.*"),
};
constexpr std::array kVisionPatterns = {
    std::string_view("re:.*vision_tower.*"),
    std::string_view("re:.*mm_projector.*"),
};

// What must be left alone, in few words where that is exact: a pattern that matches nothing that is
// quantised and something that is not; then names, of what no pattern covers.
Result<Json> ignore_list(const CompressPlan& plan) {
  Json out = Json::array();
  std::vector<std::string> left = plan.kept;
  for (const std::string_view text : kIgnorePatterns) {
    const NamePattern pattern = TRY(NamePattern::parse(text));
    const auto matches = [&](const std::string& module) { return pattern.matches(module); };
    if (std::any_of(plan.quantised.begin(), plan.quantised.end(), matches)) continue;
    const auto covered = std::remove_if(left.begin(), left.end(), matches);
    if (covered == left.end()) continue;
    left.erase(covered, left.end());
    out.push_back(std::string(text));
  }
  for (const std::string& module : left) out.push_back(module);
  return out;
}

Result<Json> int4_config(const CompressPlan& plan, bool has_vision) {
  Json ignore = TRY(ignore_list(plan));
  if (has_vision) {
    for (const std::string_view text : kVisionPatterns) ignore.push_back(std::string(text));
  }
  const Json weights = {{"actorder", nullptr},
                        {"block_structure", nullptr},
                        {"dynamic", false},
                        {"group_size", plan.options.group},
                        {"num_bits", 4},
                        {"observer", "minmax"},
                        {"observer_kwargs", Json::object()},
                        {"strategy", "group"},
                        {"symmetric", true},
                        {"type", "int"}};
  const Json group = {{"input_activations", nullptr},
                      {"output_activations", nullptr},
                      {"targets", Json::array({"Linear"})},
                      {"weights", weights}};
  return Json{{"config_groups", {{"group_0", group}}}, {"format", "pack-quantized"},
              {"ignore", std::move(ignore)},           {"kv_cache_scheme", nullptr},
              {"quant_method", "compressed-tensors"},  {"quantization_status", "compressed"}};
}

Json fp8_config(const CompressPlan& plan) {
  return {{"activation_scheme", "dynamic"},
          {"fmt", "e4m3"},
          {"modules_to_not_convert", plan.kept},
          {"quant_method", "fp8"},
          {"weight_block_size", Json::array({128, 128})}};
}

// modelopt lists names, with a star for what follows.
Json nvfp4_config(const CompressPlan& plan, std::string_view prefix) {
  Json ignore = Json::array();
  for (const std::string& module : plan.kept) ignore.push_back(std::string(prefix) + module);
  const Json element = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  const Json group = {
      {"input_activations", element}, {"weights", element}, {"targets", Json::array({"Linear"})}};
  return {{"config_groups", {{"group_0", group}}},
          {"ignore", std::move(ignore)},
          {"quant_algo", "NVFP4"},
          {"producer", {{"name", "modelopt"}}},
          {"quant_method", "modelopt"}};
}

}  // namespace

Result<std::string> compressed_config(std::string_view input_config, const CompressPlan& plan) {
  Json config = TRY(parse_json(input_config));
  if (!config.is_object()) return invalid_argument("config.json: expected an object");
  const bool has_text_config = config.contains(kTextConfig) && config[kTextConfig].is_object();
  Json quantization;
  switch (plan.options.format) {
    case TargetFormat::int4:
      quantization = TRY(int4_config(plan, has_text_config));
      break;
    case TargetFormat::fp8:
      quantization = fp8_config(plan);
      break;
    case TargetFormat::nvfp4:
      quantization = nvfp4_config(plan, has_text_config ? "language_model." : "");
      break;
  }
  // Kimi K2.5 and later say it of the text model alone; modelopt says it of the whole.
  const bool is_of_text = has_text_config && plan.options.format != TargetFormat::nvfp4;
  config.erase(std::string(kOwner));
  if (has_text_config) config[kTextConfig].erase(std::string(kOwner));
  Json& owner = is_of_text ? config[kTextConfig] : config;
  owner[std::string(kOwner)] = std::move(quantization);
  return dump_json(config) + "\n";
}

}  // namespace quire
