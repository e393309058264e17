// The command line of `quire serve`: SGLang's flag names, what each may be, and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/log.h"
#include "base/result.h"
#include "engine/integrity.h"
#include "format/kv_page.h"
#include "ops/weight_matrix.h"
#include "server/http.h"
#include "tools/commands.h"
#include "tools/model_source.h"
#include "tools/pool_budget.h"

namespace quire {

struct ServeOptions {
  std::string model_path;  // as source.dir
  ModelSource source;
  std::string host = "127.0.0.1";
  uint16_t port = 30000;
  uint16_t admin_port = 0;  // 0: no operators' listener
  std::vector<std::string> served_model_names;
  std::string chat_family = "auto";
  KvFormat kv_format = KvFormat::bf16;
  Activation activation = Activation::bf16;
  int32_t context_length = 0;  // 0: the model's
  int32_t max_running_requests = 64;
  int32_t max_queued_requests = 1024;
  int64_t max_total_tokens = 0;  // 0: by memory
  double mem_fraction_static = kMemFraction;
  int32_t chunked_prefill_size = 0;
  bool disable_radix_cache = false;
  IntegrityLevel integrity = IntegrityLevel::full;
  int32_t integrity_retries = 0;
  std::string api_key;
  std::string api_key_file;
  LogLevel log_level = LogLevel::info;
  LogFormat log_format = LogFormat::text;
  bool log_requests = false;
  uint64_t random_seed = 0;
  bool has_random_seed = false;
  int64_t drain_seconds = 30;
  HttpLimits limits;
};

// Adds every flag to `command`.
void add_serve_flags(CLI::App& command);
// The parsed flags, checked. Errors: invalid_argument, unsupported (a GPU's flag on a CPU).
Result<ServeOptions> read_serve_flags(const CLI::App& command);
// What /server_info tells of them: no keys, no files of keys.
Json describe(const ServeOptions& options);

}  // namespace quire
