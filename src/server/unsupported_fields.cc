#include "server/unsupported_fields.h"

#include <string>

#include "base/json.h"

namespace quire {

namespace {

// Fields by which the roles of a cluster talk to each other in SGLang and vLLM.
constexpr const char* kInternal[] = {
    "kv_transfer_params", "bootstrap_host",     "bootstrap_port",
    "bootstrap_room",     "bootstrap_pair_key", "cache_salt",
    "extra_key",          "data_parallel_rank", "data_parallel_rank_decode",
    "routed_dp_rank",     "session_params",     "disagg_prefill_dp_rank",
    "do_remote_prefill",  "do_remote_decode",   "remote_engine_id",
    "remote_block_ids",   "remote_host",        "remote_port",
};

// Fields whose meaning we do not offer, whatever their value.
constexpr const char* kUnsupported[] = {
    "chat_template",
    "functions",
    "function_call",
    "audio",
    "prediction",
    "web_search_options",
    "suffix",
    "regex",
    "ebnf",
    "json_schema",
    "structural_tag",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "lora_path",
    "stop_regex",
    "custom_logit_processor",
    "input_ids",
    "image_data",
    "input_embeds",
    "prompt_embeds",
    "prompt_logprobs",
};

// Fields that may say only what we do anyway.
struct FixedField {
  const char* name;
  Json only;
};

std::vector<FixedField> fixed_fields() {
  return {
      {"response_format", {{"type", "text"}}},
      {"modalities", Json::array({"text"})},
      {"best_of", 1},
      {"min_tokens", 0},
      {"use_beam_search", false},
      {"continue_final_message", false},
      {"skip_special_tokens", true},
      {"separate_reasoning", true},
      {"stream_reasoning", true},
  };
}

}  // namespace

void refuse_unsupported_fields(FieldReader& body) {
  for (const char* name : kInternal) {
    if (body.find(name) == nullptr) continue;
    body.refuse("unknown_parameter", name, std::string("Unknown parameter: '") + name + "'.");
  }
  for (const char* name : kUnsupported) {
    if (body.find(name) == nullptr) continue;
    body.refuse("unsupported_parameter", name,
                std::string("Unsupported parameter: '") + name + "' is not supported.");
  }
  for (const FixedField& field : fixed_fields()) {
    const Json* value = body.find(field.name);
    if (value == nullptr || *value == field.only) continue;
    body.refuse("unsupported_parameter", field.name,
                std::string("Unsupported parameter: '") + field.name + "' may only be " +
                    dump_json(field.only) + ".");
  }
}

}  // namespace quire
