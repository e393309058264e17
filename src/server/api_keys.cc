#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"

namespace quire {

namespace {

std::string_view next_word(std::string_view* line) {
  const size_t begin = line->find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  const size_t end = std::min(line->find_first_of(" \t\r", begin), line->size());
  const std::string_view word = line->substr(begin, end - begin);
  line->remove_prefix(end);
  return word;
}

}  // namespace

Result<ApiKeys> ApiKeys::create() {
  ApiKeys out;
  TRY_OK(fill_secure_random(std::as_writable_bytes(std::span(out.secret_))));
  out.everybody_ = out.salt_of("");
  return out;
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest out;
  unsigned size = 0;
  CHECK(EVP_Digest(key.data(), key.size(), out.data(), &size, EVP_sha256(), nullptr) == 1);
  CHECK(size == out.size());
  return out;
}

TenantSalt ApiKeys::salt_of(std::string_view tenant) const {
  Digest mac;
  unsigned size = 0;
  CHECK(HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
             reinterpret_cast<const unsigned char*>(tenant.data()), tenant.size(), mac.data(),
             &size) != nullptr);
  TenantSalt out;
  std::copy_n(mac.begin(), out.size(), out.begin());
  return out;
}

Status ApiKeys::add(std::string_view tenant, std::string_view key) {
  if (key.empty() || key.size() > kKeyBytesMax) {
    return invalid_argument(format("an API key must have 1 to %zu bytes", kKeyBytesMax));
  }
  if (keys_.size() >= kKeysMax) return invalid_argument("too many API keys");
  const Digest digest = digest_of(key);
  for (const Key& known : keys_) {
    if (known.digest == digest) return invalid_argument("an API key appears twice");
  }
  keys_.push_back({digest, salt_of(tenant)});
  return {};
}

Status ApiKeys::add_file(std::string_view text) {
  int line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    const std::string_view tenant = next_word(&line);
    if (tenant.empty() || tenant.front() == '#') continue;
    const std::string_view key = next_word(&line);
    if (key.empty() || !next_word(&line).empty()) {
      return invalid_argument(format("line %d of the key file is not \"tenant key\"", line_number));
    }
    if (const Status added = add(tenant, key); !added.ok()) {
      return invalid_argument(
          format("line %d of the key file: %s", line_number, added.error().message.c_str()));
    }
  }
  return {};
}

std::optional<TenantSalt> ApiKeys::authorize(std::optional<std::string_view> authorization) const {
  if (is_open()) return everybody_;
  constexpr std::string_view kScheme = "Bearer ";
  std::string_view sent = authorization.value_or("");
  const bool has_scheme = sent.substr(0, kScheme.size()) == kScheme;
  if (has_scheme) sent.remove_prefix(kScheme.size());
  const Digest digest = digest_of(sent);
  // All keys, whichever matches, and the same work when nothing was sent.
  int found = -1;
  for (size_t i = 0; i < keys_.size(); ++i) {
    const bool equal = CRYPTO_memcmp(digest.data(), keys_[i].digest.data(), digest.size()) == 0;
    found = equal ? static_cast<int>(i) : found;
  }
  if (found < 0 || !has_scheme) return std::nullopt;
  return keys_[static_cast<size_t>(found)].salt;
}

}  // namespace quire
