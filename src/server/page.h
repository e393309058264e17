// The page at "/": a chat with the served model in a browser. One self-contained document, no
// requests to other hosts.
#pragma once

#include <string_view>

namespace quire {

inline constexpr std::string_view kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";

std::string_view page_html();

}  // namespace quire
