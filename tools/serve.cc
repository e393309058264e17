// quire serve: an OpenAI-compatible server of one model.
//
// Threads: this one loads the model and waits; one serves HTTP; one admits requests; one is the
// engine's (and the CPU backend has its own workers); one waits for signals. The port is open
// before the model is loaded: /health says 503 until then.
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "base/mapped_file.h"
#include "base/rng.h"
#include "base/text.h"
#include "engine/service.h"
#include "model/config.h"
#include "server/api_server.h"
#include "server/generator.h"
#include "server/http_server.h"
#include "tools/commands.h"
#include "tools/engine_source.h"
#include "tools/serve_options.h"
#include "tools/text_source.h"

namespace quire {

namespace {

constexpr size_t kKeyFileBytesMax = size_t{1} << 20;
// What a request is expected to hold of the pool when its size is chosen for it.
constexpr int64_t kTokensARequest = 4096;
// The share of the free memory that the pool may take then.
constexpr int64_t kMemoryShare = 4;

int64_t unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// Waits for SIGINT and SIGTERM: the first drains the server, the next aborts what is left.
class Signals {
 public:
  // Before any other thread is started: they all inherit that the signals are for this one.
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }

  void watch(ApiServer& api) {
    thread_ = std::jthread([this, &api](const std::stop_token& stop) {
      bool is_draining = false;
      while (!stop.stop_requested()) {
        constexpr timespec kPoll{.tv_sec = 0, .tv_nsec = 200'000'000};
        if (sigtimedwait(&set_, nullptr, &kPoll) < 0) continue;
        is_draining ? api.abort_all() : api.drain();
        is_draining = true;
      }
    });
  }
  // Before the watched server goes.
  void ignore() { thread_ = {}; }

 private:
  sigset_t set_;
  std::jthread thread_;
};

class Server {
 public:
  Server(ServeOptions options, Log& log) : options_(std::move(options)), log_(log) {
    if (options_.served_model_names.empty()) {
      options_.served_model_names = {options_.model_path, last_part(options_.model_path)};
    }
  }

  // Serves until it is told to end.
  Status run(Signals& signals) {
    const int64_t started_us = clock_.now_us();
    ApiKeys keys = TRY(read_keys());
    if (!options_.has_random_seed) {
      TRY_OK(fill_secure_random(std::as_writable_bytes(std::span(&options_.random_seed, 1))));
    }
    std::vector<HttpListener> listeners = {{options_.host, options_.port, Audience::users}};
    if (options_.admin_port != 0) {
      listeners.push_back({"127.0.0.1", options_.admin_port, Audience::operators});
    }
    auto http = TRY(HttpServer::listen(listeners, options_.limits, clock_, log_));
    Metrics metrics(options_.served_model_names.front(), kPageTokens);
    ApiServer api(api_config(), {*http, http->stats(), keys, metrics, clock_, log_});
    log_.info(format("Listening on http://%s:%d", options_.host.c_str(), http->port(0)));
    std::jthread serving([&] { http->run(api); });
    signals.watch(api);

    std::unique_ptr<Loaded> loaded;
    const Status opened = open(api, metrics, started_us, &loaded);
    if (!opened.ok()) http->stop();
    serving.join();
    signals.ignore();
    api.close();
    return opened;
  }

 private:
  // In the order of their making; the engine's thread ends first.
  struct Loaded {
    std::unique_ptr<TextSource> text;
    std::optional<ModelEngine> engine;
    std::optional<ServedModel> model;
    std::unique_ptr<EngineService> service;
    std::optional<EngineGenerator> generator;
  };

  Result<ApiKeys> read_keys() {
    ApiKeys keys = TRY(ApiKeys::create());
    if (!options_.api_key.empty()) TRY_OK(keys.add("", options_.api_key));
    if (!options_.api_key_file.empty()) {
      TRY_OK(keys.add_file(TRY(read_text_file(options_.api_key_file, kKeyFileBytesMax))));
    }
    return keys;
  }

  ApiConfig api_config() const {
    return {.version = QUIRE_VERSION,
            .server_info = describe(options_),
            .drain_ms_max = options_.drain_seconds * 1000,
            .seed = options_.random_seed,
            .request_log = options_.log_requests ? LogLevel::info : LogLevel::debug};
  }

  // Loads the model and opens the server to requests. `loaded` stays the caller's.
  Status open(ApiServer& api, Metrics& metrics, int64_t started_us,
              std::unique_ptr<Loaded>* loaded) {
    auto out = std::make_unique<Loaded>();
    out->text = TRY(load_text(options_.model_path, options_.chat_family));
    LoadedModel weights = TRY(load_model(options_.source));
    TRY_OK(check_vocabulary(weights.config, out->text->tokenizer.vocab_size()));
    const int64_t weights_us = clock_.now_us();
    const EngineSettings settings = engine_settings(weights);
    out->engine = TRY(make_model_engine(std::move(weights), settings));
    const EngineConfig& config = out->engine->config;
    const int32_t pool_tokens = (config.n_pages - 1) * config.page_tokens;
    out->model.emplace(ServedModel{.names = options_.served_model_names,
                                   .path = options_.model_path,
                                   .tokenizer = out->text->tokenizer,
                                   .chat = *out->text->chat,
                                   .trie = out->text->trie,
                                   .vocab_size = config.vocab_size,
                                   .context_tokens = std::min(config.context_tokens, pool_tokens),
                                   .turn_ends = out->text->chat->stop_tokens(out->text->tokenizer),
                                   .created_s = unix_seconds()});
    out->service = std::make_unique<EngineService>(config, *out->engine->executor, clock_, log_);
    out->generator.emplace(*out->service);
    const int64_t ready_us = clock_.now_us();
    metrics.set_startup(static_cast<double>(weights_us - started_us) * 1e-6,
                        static_cast<double>(ready_us - started_us) * 1e-6);
    *loaded = std::move(out);
    announce(config, *(*loaded)->model);
    const StartupReport& startup = (*loaded)->engine->loaded.startup;
    for (const std::string& line : startup.lines()) log_.info(line);
    for (const std::string& message : startup.warnings()) log_.warning(message);
    api.open(*(*loaded)->model, *(*loaded)->generator);
    log_.info("The server is fired up and ready to roll!");
    return {};
  }

  EngineSettings engine_settings(const LoadedModel& loaded) const {
    EngineSettings out{.kv_format = options_.kv_format,
                       .activation = options_.activation,
                       .context_tokens = options_.context_length,
                       .running_requests_max = options_.max_running_requests,
                       .queued_requests_max = options_.max_queued_requests,
                       .kv_tokens = options_.max_total_tokens,
                       .pool_size = PoolSize::all_there_is,
                       .mem_fraction = options_.mem_fraction_static,
                       .chunked_prefill_tokens = options_.chunked_prefill_size,
                       .prefix_cache = !options_.disable_radix_cache,
                       .integrity = options_.integrity,
                       .integrity_retries = options_.integrity_retries,
                       .seed = options_.random_seed};
    if (out.kv_tokens > 0 || !loaded.backend->reads_host_memory()) return out;
    const ModelConfig& model = loaded.config;
    const int64_t free_bytes = loaded.backend->memory_info().free;
    const int64_t context = out.context_tokens > 0 ? out.context_tokens : model.positions_max;
    const int64_t page_bytes = model.kv_layout(options_.kv_format).page_bytes;
    const int64_t affordable = free_bytes / kMemoryShare / page_bytes * kPageTokens;
    const int64_t wanted =
        int64_t{out.running_requests_max} * std::min<int64_t>(context, kTokensARequest);
    out.kv_tokens = std::max<int64_t>(std::min(wanted, affordable), kPageTokens);
    log_.info(
        format("KV pool: %lld tokens, %s, chosen from %s of free memory; "
               "--max-total-tokens sets it.",
               static_cast<long long>(out.kv_tokens),
               human_bytes(out.kv_tokens / kPageTokens * page_bytes).c_str(),
               human_bytes(free_bytes).c_str()));
    return out;
  }

  // Lines that scripts for SGLang and vLLM look for.
  void announce(const EngineConfig& config, const ServedModel& model) const {
    const int64_t pool_tokens = int64_t{config.n_pages - 1} * config.page_tokens;
    log_.info(
        format("max_total_num_tokens=%lld, chunked_prefill_size=%d, "
               "max_running_requests=%d, context_len=%d",
               static_cast<long long>(pool_tokens), config.chunked_prefill_tokens,
               config.running_requests_max, model.context_tokens));
    log_.info(format("Maximum concurrency for %d tokens per request: %.2fx", model.context_tokens,
                     static_cast<double>(pool_tokens) / model.context_tokens));
  }

  ServeOptions options_;
  Log& log_;
  SteadyClock clock_;
};

ExitCode serve(const CLI::App& command) {
  Signals signals;
  Result<ServeOptions> options = read_serve_flags(command);
  if (!options.ok()) return fail(options.error());
  Log log(options.value().log_level, options.value().log_format);
  Server server(std::move(options).value(), log);
  const Status ended = server.run(signals);
  return ended.ok() ? ExitCode::ok : fail(ended.error());
}

}  // namespace

void add_serve_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand("serve", "Serve a model through the OpenAI API");
  add_serve_flags(*command);
  command->callback([command, exit_code] { *exit_code = serve(*command); });
}

}  // namespace quire
