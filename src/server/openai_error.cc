#include "server/openai_error.h"

#include <utility>

#include "base/json.h"

namespace quire {

namespace {

// Seconds after which a client may try again. A queue moves in seconds, a start takes longer.
constexpr int kQueueRetryS = 1;
constexpr int kUnavailableRetryS = 5;

std::string_view type_of(int status) {
  if (status == 429) return "rate_limit_error";
  // 505 is the client's doing.
  return status >= 500 && status != 505 ? "server_error" : "invalid_request_error";
}

Json null_if_empty(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

Json to_json(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", type_of(error.status)},
            {"param", null_if_empty(error.param)},
            {"code", null_if_empty(error.code)}}}};
}

HttpResponse to_response(const ApiError& error) {
  HttpResponse out;
  out.status = error.status;
  out.body = dump_json(to_json(error));
  if (error.retry_after_s) {
    out.headers.push_back({"Retry-After", std::to_string(*error.retry_after_s)});
  }
  if (error.status == 401) out.headers.push_back({"WWW-Authenticate", "Bearer"});
  return out;
}

ApiError bad_field(std::string_view code, std::string_view param, std::string message) {
  return {.status = 400,
          .code = std::string(code),
          .param = std::string(param),
          .message = std::move(message)};
}

ApiError draining_error() {
  return {.status = 503,
          .code = "engine_unavailable",
          .message = "The server is shutting down.",
          .retry_after_s = kUnavailableRetryS};
}

ApiError starting_error() {
  return {.status = 503,
          .code = "engine_unavailable",
          .message = "The server is starting: the model is being loaded.",
          .retry_after_s = kUnavailableRetryS};
}

ApiError queue_full_error() {
  return {.status = 429,
          .code = "queue_full",
          .message = "The request queue is full.",
          .retry_after_s = kQueueRetryS};
}

ApiError to_api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::invalid_argument:
      return {.status = 400, .code = "invalid_value", .message = error.message};
    case ErrorCode::unsupported:
      return {.status = 400, .code = "unsupported_value", .message = error.message};
    case ErrorCode::not_found:
      return {.status = 404, .code = "not_found", .message = error.message};
    case ErrorCode::corruption:
      return to_api_error(FailureKind::integrity);
    case ErrorCode::resource_exhausted:
      return queue_full_error();
    case ErrorCode::unavailable:
      return draining_error();
  }
  return to_api_error(FailureKind::internal);
}

ApiError to_api_error(FailureKind failure) {
  switch (failure) {
    case FailureKind::numerical:
      return {.status = 500,
              .code = "numerical_error",
              .message = "The model produced values that are not numbers for this request."};
    case FailureKind::integrity:
      return {.status = 500,
              .code = "kv_integrity_error",
              .message = "A check of this request's cache failed; the request was stopped."};
    case FailureKind::dead_end:
      return {.status = 500,
              .code = "grammar_dead_end",
              .message = "No token may follow under the tools that the request asked for."};
    case FailureKind::none:
    case FailureKind::internal:
      break;
  }
  return {.status = 500, .code = "internal_error", .message = "The request failed inside."};
}

}  // namespace quire
