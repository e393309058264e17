// ApiKeys: who may ask, and whose prefix cache a request shares.
//
// Only SHA-256 digests of keys are kept. A look-up compares the digest with all of them in constant
// time and learns nothing from where it stops. Each key belongs to a tenant; the tenant's salt is
// HMAC-SHA256(secret of this process, tenant), so that no client can choose or guess it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace quire {

class ApiKeys {
 public:
  static constexpr size_t kKeysMax = 4096;
  static constexpr size_t kKeyBytesMax = 512;

  // Without keys everybody may ask, as one tenant.
  static Result<ApiKeys> create();

  // Errors: invalid_argument for an empty or overlong key, or one that is known already.
  Status add(std::string_view tenant, std::string_view key);
  // Lines "tenant key"; blank lines and those that begin with '#' are skipped. Errors name the
  // line and never show a key.
  Status add_file(std::string_view text);

  bool is_open() const { return keys_.empty(); }

  // The salt of whoever sent this Authorization header, or nothing when it is refused.
  std::optional<TenantSalt> authorize(std::optional<std::string_view> authorization) const;

 private:
  using Digest = std::array<uint8_t, 32>;
  struct Key {
    Digest digest;
    TenantSalt salt;
  };

  ApiKeys() = default;
  static Digest digest_of(std::string_view key);
  TenantSalt salt_of(std::string_view tenant) const;

  std::array<uint8_t, 32> secret_{};
  TenantSalt everybody_{};
  std::vector<Key> keys_;
};

}  // namespace quire
