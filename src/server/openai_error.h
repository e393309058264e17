// ApiError: how a request that fails is told so, in the shape that OpenAI's clients read.
//
// {"error":{"message","type","param","code"}}; `param` and `code` are null when empty here.
// Messages are our own text; of what the client sent, at most an escaped excerpt.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/result.h"
#include "engine/request.h"
#include "server/http.h"

namespace quire {

struct ApiError {
  int status = 400;
  std::string code;
  std::string param;  // path of the field, such as "messages[3].content[0].text"
  std::string message;
  std::optional<int> retry_after_s;
};

// The error object alone: what a stream sends when it fails after its first byte.
Json to_json(const ApiError& error);
HttpResponse to_response(const ApiError& error);

// 400 of a field.
ApiError bad_field(std::string_view code, std::string_view param, std::string message);
ApiError draining_error();
ApiError starting_error();
ApiError queue_full_error();

// What an Error of the engine or the text layer is to a client. Text of a `corruption` stays here.
ApiError to_api_error(const Error& error);
// What a request that the engine gave up on ended with.
ApiError to_api_error(FailureKind failure);

}  // namespace quire
