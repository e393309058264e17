// Vocabulary: the byte strings a tokenizer knows, by rank and by bytes.
//
// Read from a tiktoken file (lines "BASE64 RANK"). Ranks are the token ids and also the order of
// merges: there is no merges file. Not a tokenizer: it neither splits nor merges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace quire {

class Vocabulary {
 public:
  // Bounds on foreign files: Kimi's has 163,584 entries and no token above 128 bytes.
  static constexpr size_t kRanksMax = 1U << 20;
  static constexpr size_t kTokenBytesMax = 1024;

  // The text of a tiktoken file. Errors: invalid_argument naming the line, for anything but
  // canonical base64, ranks 0..n-1 in order, no byte string twice, and all 256 single bytes there.
  static Result<Vocabulary> parse(std::string_view text);

  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }
  std::string_view bytes(Token rank) const;
  // The rank of exactly these bytes.
  std::optional<Token> find(std::string_view bytes) const;

  // The longest byte string, in bytes: no longer one needs looking up.
  size_t token_bytes_max() const { return token_bytes_max_; }

 private:
  Vocabulary() = default;
  bool insert(std::string_view bytes);
  void rebuild_slots();

  // One hash slot: the rank and the high bits of its hash, so that most misses touch no bytes.
  struct Slot {
    uint32_t tag = 0;
    Token rank = -1;
  };

  std::string arena_;              // all byte strings, end to end
  std::vector<uint32_t> offsets_;  // [size() + 1] into arena_
  std::vector<Slot> slots_;        // open addressing, a power of two, at most half full
  size_t token_bytes_max_ = 0;
};

}  // namespace quire
