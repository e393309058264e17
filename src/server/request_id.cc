#include "server/request_id.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"

namespace quire {

std::string make_request_id() {
  std::array<uint64_t, 2> random;
  CHECK(fill_secure_random(std::as_writable_bytes(std::span(random))).ok());
  return format("%016llx%016llx", static_cast<unsigned long long>(random[0]),
                static_cast<unsigned long long>(random[1]));
}

std::optional<std::string_view> valid_client_id(std::optional<std::string_view> header) {
  constexpr size_t kBytesMax = 128;
  if (!header || header->empty() || header->size() > kBytesMax) return std::nullopt;
  const bool valid = std::all_of(header->begin(), header->end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' ||
           c == '_' || c == '-';
  });
  return valid ? header : std::nullopt;
}

}  // namespace quire
