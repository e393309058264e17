// The routes of ApiServer: which URL means what, and those that tell of the server itself.
#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"
#include "server/api_exchange.h"
#include "server/api_server.h"
#include "server/integrity_json.h"
#include "server/openai_error.h"
#include "server/page.h"
#include "server/tokenizer_api.h"

namespace quire {

namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

// "%2F" for "/" in the name of a model, as clients write a name into a path.
std::string decode_slashes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const bool slash = text.size() >= 3 && equal_ignoring_case(text.substr(0, 3), "%2f");
    out += slash ? '/' : text.front();
    text.remove_prefix(slash ? 3 : 1);
  }
  return out;
}

Json model_object(const ServedModel& model, const std::string& name) {
  return {{"id", name},
          {"object", "model"},
          {"created", model.created_s},
          {"owned_by", "quire"},
          {"root", model.path},
          {"parent", nullptr},
          {"max_model_len", model.context_tokens}};
}

Json stats_object(const EngineStats& stats) {
  return {{"running", stats.running},
          {"queued", stats.queued},
          {"pages_total", stats.pages_total},
          {"pages_free", stats.pages_free},
          {"pages_cached", stats.pages_cached},
          {"pages_used", stats.pages_used},
          {"pages_quarantined", stats.pages_quarantined},
          {"steps", stats.steps},
          {"requests_finished", stats.requests_finished},
          {"requests_aborted", stats.requests_aborted},
          {"requests_failed", stats.requests_failed},
          {"prompt_tokens", stats.prompt_tokens},
          {"cached_tokens", stats.cached_tokens},
          {"generation_tokens", stats.generation_tokens},
          {"preemptions", stats.preemptions},
          {"device_allocations_after_start", stats.device_allocations},
          {"last_gen_throughput", stats.generation_tokens_per_second}};
}

}  // namespace

std::span<const ApiServer::Route> ApiServer::routes() {
  using Key = Route::Key;
  constexpr auto kUsers = Audience::users;
  constexpr auto kOperators = Audience::operators;
  constexpr auto kGet = HttpMethod::get;
  constexpr auto kPost = HttpMethod::post;
  using Api = ApiServer;
  static constexpr std::array kRoutes = {
      Route{"/v1/chat/completions", kPost, kUsers, Key::needed, &Api::chat_completions},
      Route{"/v1/completions", kPost, kUsers, Key::needed, &Api::completions},
      Route{"/v1/models", kGet, kUsers, Key::needed, &Api::models},
      Route{"/health", kGet, kUsers, Key::open, &Api::health},
      Route{"/ping", kGet, kUsers, Key::open, &Api::health},
      Route{"/health_generate", kGet, kUsers, Key::open, &Api::health_generate},
      Route{"/server_info", kGet, kUsers, Key::needed, &Api::server_info},
      Route{"/get_server_info", kGet, kUsers, Key::needed, &Api::server_info},
      Route{"/model_info", kGet, kUsers, Key::needed, &Api::model_info},
      Route{"/get_model_info", kGet, kUsers, Key::needed, &Api::model_info},
      Route{"/tokenize", kPost, kUsers, Key::needed, &Api::tokenize},
      Route{"/detokenize", kPost, kUsers, Key::needed, &Api::detokenize},
      Route{"/tokenizer_info", kGet, kUsers, Key::needed, &Api::tokenizer_info},
      Route{"/metrics", kGet, kUsers, Key::open, &Api::metrics_page},
      Route{"/", kGet, kUsers, Key::open, &Api::web_page},
      Route{"/flush_cache", kPost, kOperators, Key::open, &Api::flush_cache},
      Route{"/audit", kGet, kOperators, Key::open, &Api::audit},
      Route{"/integrity", kGet, kOperators, Key::open, &Api::integrity},
      Route{"/integrity/release", kPost, kOperators, Key::open, &Api::release_page},
  };
  return kRoutes;
}

const ApiServer::Route* ApiServer::find_route(std::string_view path) {
  // "/v1/models/NAME": one route for all names.
  if (path.substr(0, kModelsPath.size()) == kModelsPath && path.size() > kModelsPath.size()) {
    path = "/v1/models";
  }
  for (const Route& route : routes()) {
    if (route.path == path) return &route;
  }
  return nullptr;
}

void ApiServer::models(Call call) {
  if (model_ == nullptr) return respond(call.exchange, to_response(starting_error()));
  if (call.request.path.size() <= kModelsPath.size()) {
    Json list = Json::array();
    for (const std::string& name : model_->names) list.push_back(model_object(*model_, name));
    return respond_json(call.exchange, {{"object", "list"}, {"data", std::move(list)}});
  }
  const std::string name = decode_slashes(call.request.path.substr(kModelsPath.size()));
  const auto& names = model_->names;
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return respond_json(call.exchange, model_object(*model_, name));
  }
  respond(call.exchange,
          to_response({.status = 404,
                       .code = "model_not_found",
                       .param = "model",
                       .message = "The model '" + excerpt(name) + "' does not exist."}));
}

void ApiServer::health(Call call) {
  if (const auto error = not_serving()) return respond(call.exchange, to_response(*error));
  respond_json(call.exchange, {{"status", "ok"}});
}

// One real token through the engine. Prefix pages are shared with nobody: no tenant has this salt.
void ApiServer::health_generate(Call call) {
  if (const auto error = not_serving()) return respond(call.exchange, to_response(*error));
  Exchange& exchange = *exchanges_.at(call.exchange);
  exchange.is_probe = true;
  GenerateRequest probe{.prompt = {0}, .max_new_tokens = 1};
  probe.sampling.temperature = 0;
  const Status submitted = submit(call.exchange, exchange, std::move(probe));
  if (!submitted.ok()) respond(call.exchange, to_response(to_api_error(submitted.error())));
}

void ApiServer::server_info(Call call) {
  Json out = config_.server_info;
  out["version"] = config_.version;
  if (generator_ != nullptr) {
    out["internal_states"] = Json::array({stats_object(generator_->stats())});
  }
  respond_json(call.exchange, out);
}

void ApiServer::model_info(Call call) {
  if (model_ == nullptr) return respond(call.exchange, to_response(starting_error()));
  respond_json(call.exchange, {{"model_path", model_->path},
                               {"tokenizer_path", model_->path},
                               {"is_generation", true},
                               {"served_model_name", model_->names.front()},
                               {"context_length", model_->context_tokens},
                               {"vocab_size", model_->vocab_size},
                               {"chat_family", model_->chat.family()}});
}

void ApiServer::tokenize(Call call) {
  if (model_ == nullptr) return respond(call.exchange, to_response(starting_error()));
  respond(call.exchange, quire::tokenize(*model_, call.request.body));
}

void ApiServer::detokenize(Call call) {
  if (model_ == nullptr) return respond(call.exchange, to_response(starting_error()));
  respond(call.exchange, quire::detokenize(*model_, call.request.body));
}

void ApiServer::tokenizer_info(Call call) {
  if (model_ == nullptr) return respond(call.exchange, to_response(starting_error()));
  respond(call.exchange, quire::tokenizer_info(*model_));
}

void ApiServer::metrics_page(Call call) {
  const HttpServerStats& http = parts_.http_stats;
  const ServerCounts counts{.connections = http.connections,
                            .exchanges_active = static_cast<int>(exchanges_.size()) - 1,
                            .http_requests = http.requests,
                            .http_refused = http.refused,
                            .clients_gone = http.gone,
                            .clients_stalled = http.stalled,
                            .late_events = late_events_};
  const EngineStats stats = generator_ == nullptr ? EngineStats{} : generator_->stats();
  respond(call.exchange, {.content_type = "text/plain; version=0.0.4; charset=utf-8",
                          .body = parts_.metrics.render(stats, counts)});
}

void ApiServer::web_page(Call call) {
  respond(call.exchange, {.content_type = "text/html; charset=utf-8",
                          .headers = {{"Content-Security-Policy", std::string(kPagePolicy)},
                                      {"X-Content-Type-Options", "nosniff"}},
                          .body = std::string(page_html())});
}

// Work that waits for the engine's thread runs on one of its own, one at a time.
void ApiServer::operate(Call call, std::function<HttpResponse(Generator&)> work) {
  if (generator_ == nullptr) return respond(call.exchange, to_response(starting_error()));
  if (is_operating_) return respond(call.exchange, to_response(queue_full_error()));
  is_operating_ = true;
  operation_ = std::jthread([this, exchange = call.exchange, work = std::move(work)] {
    post(Operated{exchange, work(*generator_)});
  });
}

void ApiServer::take(Operated event) {
  is_operating_ = false;
  if (exchanges_.contains(event.exchange)) respond(event.exchange, std::move(event.response));
}

void ApiServer::flush_cache(Call call) {
  operate(std::move(call), [](Generator& generator) {
    if (generator.flush_cache()) return HttpResponse{.body = R"({"success":true})"};
    return to_response({.status = 400,
                        .code = "invalid_value",
                        .message = "The cache cannot be flushed while requests are running."});
  });
}

void ApiServer::audit(Call call) {
  operate(std::move(call), [](Generator& generator) {
    const Status found = generator.audit();
    Json body = {{"clean", found.ok()}};
    if (!found.ok()) body["message"] = found.error().message;
    return HttpResponse{.status = found.ok() ? 200 : 500, .body = dump_json(body)};
  });
}

void ApiServer::integrity(Call call) {
  operate(std::move(call), [](Generator& generator) {
    return HttpResponse{.body = dump_json(to_json(generator.integrity(), generator.stats()))};
  });
}

void ApiServer::release_page(Call call) {
  const std::optional<PageId> page = read_page(call.request.body);
  if (!page) {
    return respond(call.exchange, to_response(bad_field("invalid_value", "page",
                                                        "The body must be {\"page\": NUMBER}.")));
  }
  operate(std::move(call), [page](Generator& generator) {
    const Status released = generator.release_page(*page);
    if (released.ok()) return HttpResponse{.body = R"({"success":true})"};
    return to_response({.status = 400,
                        .code = "invalid_value",
                        .param = "page",
                        .message = released.error().message});
  });
}

}  // namespace quire
