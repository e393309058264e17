// Names of requests, for clients and logs. Ours is random and the only one that is ever a key's
// part; a client's own is checked and goes to the log, nowhere else.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire {

// 32 hexadecimal digits from the operating system's randomness.
std::string make_request_id();

// The client's id when it is 1 to 128 of [A-Za-z0-9._-], otherwise nothing.
std::optional<std::string_view> valid_client_id(std::optional<std::string_view> header);

}  // namespace quire
