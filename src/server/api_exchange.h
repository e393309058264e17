// What ApiServer keeps of an exchange until it is answered. Seen by its own files alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/api_server.h"

namespace quire {

struct ApiServer::Exchange {
  std::string id;         // ours, sent as x-request-id
  std::string client_id;  // the client's, checked; for the log
  std::string peer;
  std::string path;
  int64_t started_us = 0;
  int64_t first_token_us = 0;  // 0: none yet
  int64_t last_token_us = 0;
  std::unique_ptr<Answer> answer;  // once admitted; none for a probe
  bool is_probe = false;           // of /health_generate
  bool stream_begun = false;
  // Of the choices, by index.
  std::vector<RequestId> requests;
  std::vector<bool> is_generating;
};

struct ApiServer::Route {
  std::string_view path;
  HttpMethod method;
  Audience audience;
  enum class Key : uint8_t { open, needed } key;
  void (ApiServer::*handler)(Call);
};

}  // namespace quire
