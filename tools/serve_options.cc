#include "tools/serve_options.h"

#include <cstdlib>
#include <limits>

#include "base/json.h"
#include "base/text.h"
#include "tools/absent_flags.h"
#include "tools/option_value.h"

namespace quire {

namespace {

Result<LogLevel> parse_log_level(const std::string& text) {
  if (text == "debug") return LogLevel::debug;
  if (text == "info") return LogLevel::info;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  return invalid_argument("--log-level: expected debug, info, warning or error");
}

Result<Activation> parse_activation(const std::string& text) {
  if (text == "bf16") return Activation::bf16;
  if (text == "fp8") return Activation::fp8_group128;
  return invalid_argument("--activation: expected bf16 or fp8");
}

Result<IntegrityLevel> parse_integrity(const std::string& text) {
  if (text == "off") return IntegrityLevel::off;
  if (text == "tags") return IntegrityLevel::tags;
  if (text == "full") return IntegrityLevel::full;
  return invalid_argument("--integrity: expected off, tags or full");
}

Status check_parser(const CLI::App& command, const char* flag) {
  const auto value = option_value<std::string>(command, flag, "auto");
  if (value == "auto" || value == "kimi_k2") return {};
  return unsupported(std::string(flag) + ": only auto and kimi_k2 are supported");
}

void add_model_flags(CLI::App& command) {
  const auto add = [&](const char* names, const std::string& help) {
    command.add_option(names, help);
  };
  const auto flag = [&](const char* name, const std::string& help) {
    command.add_flag(name, help);
  };
  add_model_source_flags(command);
  command
      .add_option("--served-model-name",
                  "Names that requests may use (default: the path and "
                  "its last part)")
      ->type_size(1)
      ->expected(1, 16);
  add("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  add("--activation", "What activations are rounded to before a product: bf16 or fp8");
  add("--context-length", "Longest sequence, in tokens (default: the model's)");
  add("--max-running-requests", "Requests that generate at once (64)");
  add("--max-queued-requests", "Requests that wait beside them (1024); past it: 429");
  add("--max-total-tokens", "Tokens of the KV pool, at most (default: by memory)");
  add("--mem-fraction-static", "Of a GPU's memory, for weights, pool and all (0.95)");
  add("--chunked-prefill-size", "Prompt tokens of one step (8192 on a GPU, 256 on a CPU)");
  flag("--disable-radix-cache", "Do not share prefixes between requests");
  add("--integrity", "Which checks of cache pages are made: off, tags or full (full)");
  add("--integrity-retry", "How often a request that a check stopped begins again (0)");
  add("--chat-family", "auto, kimi-k2-thinking, kimi-k2.5 or kimi-k2.6");
  add("--tool-call-parser", "auto or kimi_k2: the chat family decides");
  add("--reasoning-parser", "auto or kimi_k2: the chat family decides");
  add("--random-seed", "Seed of requests that name none (default: a random one)");
  flag("--trust-remote-code", "Accepted and without effect: no model's code ever runs");
}

void add_server_flags(CLI::App& command) {
  const auto add = [&](const char* names, const std::string& help) {
    command.add_option(names, help);
  };
  const auto flag = [&](const char* name, const std::string& help) {
    command.add_flag(name, help);
  };
  add("--host", "Address to listen on (127.0.0.1)");
  add("--port", "Port to listen on (30000; 0: any free one)");
  add("--admin-port", "Port on 127.0.0.1 for operators' routes (default: none)");
  add("--api-key", "Key that requests must carry");
  add("--api-key-file",
      "File with lines \"tenant key\"; each tenant has a prefix cache of its own");
  add("--log-level", "debug, info, warning or error");
  add("--log-format", "text or json");
  flag("--log-requests", "One line a request; never its text");
  flag("--enable-metrics", "Accepted: /metrics is always there");
  add("--drain-timeout", "Seconds that running answers get when told to end (30)");
  add("--header-timeout", "Seconds to receive a request's head (10)");
  add("--body-timeout", "Seconds to receive its body (60)");
  add("--keep-alive-timeout", "Seconds a connection may idle (30)");
  add("--stall-timeout", "Seconds a client may take no byte of its answer (30)");
  add("--max-body-bytes", "Largest request body (16777216)");
  add("--max-connections", "Open connections, in all (2048)");
  add("--max-connections-per-address", "Open connections of one address (1024)");
}

// The integer of a flag, in a range that its message states.
template <class T>
Status read_integer(const CLI::App& command, const char* flag, int64_t min, T* out) {
  if (command.count(flag) == 0) return {};
  const auto value = parse_int(command.get_option(flag)->as<std::string>());
  const int64_t max = static_cast<int64_t>(std::numeric_limits<T>::max() / 2000);
  if (!value || *value < min || *value > max) {
    return invalid_argument(format("%s: expected a whole number from %lld to %lld", flag,
                                   static_cast<long long>(min), static_cast<long long>(max)));
  }
  *out = static_cast<T>(*value);
  return {};
}

Status read_port(const CLI::App& command, const char* flag, uint16_t* out) {
  if (command.count(flag) == 0) return {};
  const auto value = parse_int(command.get_option(flag)->as<std::string>());
  if (!value || *value < 0 || *value > 65535) {
    return invalid_argument(std::string(flag) + ": expected a port from 0 to 65535");
  }
  *out = static_cast<uint16_t>(*value);
  return {};
}

Status read_seconds(const CLI::App& command, const char* flag, int64_t* out_ms) {
  int64_t seconds = *out_ms / 1000;
  TRY_OK(read_integer(command, flag, 1, &seconds));
  *out_ms = seconds * 1000;
  return {};
}

Status read_limits(const CLI::App& command, HttpLimits* out) {
  TRY_OK(read_seconds(command, "--header-timeout", &out->head_ms_max));
  TRY_OK(read_seconds(command, "--body-timeout", &out->body_ms_max));
  TRY_OK(read_seconds(command, "--keep-alive-timeout", &out->idle_ms_max));
  TRY_OK(read_seconds(command, "--stall-timeout", &out->output_stall_ms_max));
  TRY_OK(read_integer(command, "--max-body-bytes", 1, &out->body_bytes_max));
  TRY_OK(read_integer(command, "--max-connections", 1, &out->connections_max));
  return read_integer(command, "--max-connections-per-address", 1,
                      &out->connections_per_address_max);
}

Status read_mem_fraction(const CLI::App& command, ServeOptions* out) {
  const bool is_given = command.count("--mem-fraction-static") > 0;
  if (is_given && out->source.device == "cpu") {
    return unsupported("--mem-fraction-static is for GPUs; on a CPU --max-total-tokens says it");
  }
  const auto text = option_value<std::string>(command, "--mem-fraction-static", "");
  char* end = nullptr;
  if (is_given) out->mem_fraction_static = std::strtod(text.c_str(), &end);
  if (is_given && (text.empty() || *end != '\0' || !(out->mem_fraction_static > 0) ||
                   out->mem_fraction_static > 1)) {
    return invalid_argument("--mem-fraction-static: expected a number above 0, up to 1");
  }
  return {};
}

Status read_engine_flags(const CLI::App& command, ServeOptions* out) {
  TRY_OK(read_integer(command, "--context-length", 2, &out->context_length));
  TRY_OK(read_integer(command, "--max-running-requests", 1, &out->max_running_requests));
  TRY_OK(read_integer(command, "--max-queued-requests", 1, &out->max_queued_requests));
  TRY_OK(read_integer(command, "--max-total-tokens", 1, &out->max_total_tokens));
  TRY_OK(read_integer(command, "--chunked-prefill-size", 1, &out->chunked_prefill_size));
  TRY_OK(read_mem_fraction(command, out));
  TRY_OK(read_integer(command, "--random-seed", 0, &out->random_seed));
  out->has_random_seed = command.count("--random-seed") > 0;
  out->disable_radix_cache = command.count("--disable-radix-cache") > 0;
  out->integrity = TRY(parse_integrity(option_value<std::string>(command, "--integrity", "full")));
  TRY_OK(read_integer(command, "--integrity-retry", 0, &out->integrity_retries));
  out->kv_format =
      TRY(parse_kv_format(option_value<std::string>(command, "--kv-cache-dtype", "auto")));
  out->activation =
      TRY(parse_activation(option_value<std::string>(command, "--activation", "bf16")));
  return {};
}

}  // namespace

void add_serve_flags(CLI::App& command) {
  add_model_flags(command);
  add_server_flags(command);
  add_absent_flags(command);
}

Result<ServeOptions> read_serve_flags(const CLI::App& command) {
  TRY_OK(refuse_absent_flags(command));
  ServeOptions out;
  out.source = TRY(read_model_source(command));
  if (out.source.share) {
    return unsupported("--rank-share: one rank alone answers nothing; quire bench measures it");
  }
  TRY_OK(check_parser(command, "--tool-call-parser"));
  TRY_OK(check_parser(command, "--reasoning-parser"));
  TRY_OK(read_port(command, "--port", &out.port));
  TRY_OK(read_port(command, "--admin-port", &out.admin_port));
  TRY_OK(read_engine_flags(command, &out));
  TRY_OK(read_limits(command, &out.limits));
  TRY_OK(read_integer(command, "--drain-timeout", 0, &out.drain_seconds));
  out.model_path = out.source.dir;
  out.served_model_names = option_value(command, "--served-model-name", out.served_model_names);
  out.host = option_value(command, "--host", out.host);
  out.chat_family = option_value(command, "--chat-family", out.chat_family);
  out.api_key = option_value(command, "--api-key", out.api_key);
  out.api_key_file = option_value(command, "--api-key-file", out.api_key_file);
  out.log_level = TRY(parse_log_level(option_value<std::string>(command, "--log-level", "info")));
  out.log_requests = command.count("--log-requests") > 0;
  const auto log_format = option_value<std::string>(command, "--log-format", "text");
  if (log_format != "text" && log_format != "json") {
    return invalid_argument("--log-format: expected text or json");
  }
  out.log_format = log_format == "json" ? LogFormat::json : LogFormat::text;
  return out;
}

Json describe(const ServeOptions& options) {
  return {{"model_path", options.model_path},
          {"served_model_name", options.served_model_names},
          {"host", options.host},
          {"port", options.port},
          {"kv_cache_dtype", name(options.kv_format)},
          {"activation", options.activation == Activation::bf16 ? "bf16" : "fp8"},
          {"max_running_requests", options.max_running_requests},
          {"max_queued_requests", options.max_queued_requests},
          {"disable_radix_cache", options.disable_radix_cache},
          {"integrity", name(options.integrity)},
          {"integrity_retry", options.integrity_retries},
          {"chat_family", options.chat_family},
          {"device", options.source.device},
          {"mem_fraction_static", options.mem_fraction_static}};
}

}  // namespace quire
