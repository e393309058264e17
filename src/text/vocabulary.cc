#include "text/vocabulary.h"

#include <xxhash.h>

#include <array>

#include "base/check.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr uint8_t kNotBase64 = 255;

constexpr std::array<uint8_t, 256> make_base64_values() {
  std::array<uint8_t, 256> values{};
  values.fill(kNotBase64);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    values[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return values;
}

constexpr std::array<uint8_t, 256> kBase64Values = make_base64_values();

// RFC 4648 part 4, strict: padded to four characters, unused bits zero.
bool decode_base64(std::string_view text, std::string* out) {
  out->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  const size_t digits = text.size() - padding;
  uint32_t bits = 0;
  int n_bits = 0;
  for (size_t i = 0; i < digits; ++i) {
    const uint8_t value = kBase64Values[static_cast<uint8_t>(text[i])];
    if (value == kNotBase64) return false;
    bits = (bits << 6) | value;
    n_bits += 6;
    if (n_bits < 8) continue;
    n_bits -= 8;
    out->push_back(static_cast<char>((bits >> n_bits) & 0xffU));
    bits &= (1U << n_bits) - 1;
  }
  return bits == 0;
}

struct Line {
  std::string_view base64;
  std::string_view rank;
};

std::optional<Line> split_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  return Line{line.substr(0, space), line.substr(space + 1)};
}

}  // namespace

Result<Vocabulary> Vocabulary::parse(std::string_view text) {
  Vocabulary out;
  out.offsets_.push_back(0);
  out.rebuild_slots();
  std::string bytes;
  size_t at = 0;
  while (at < text.size()) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    at = end + 1;
    const auto next = static_cast<size_t>(out.size());
    if (next >= kRanksMax) {
      return invalid_argument(format("more than %zu ranks", kRanksMax));
    }
    const auto parts = split_line(line);
    if (!parts || !decode_base64(parts->base64, &bytes)) {
      return invalid_argument(format("line %zu: expected \"BASE64 RANK\", found \"%s\"", next + 1,
                                     excerpt(line).c_str()));
    }
    if (parse_int(parts->rank) != static_cast<int64_t>(next)) {
      return invalid_argument(format("line %zu: expected rank %zu, found \"%s\"", next + 1, next,
                                     excerpt(parts->rank).c_str()));
    }
    if (bytes.size() > kTokenBytesMax) {
      return invalid_argument(format("line %zu: a token of %zu bytes, expected at most %zu",
                                     next + 1, bytes.size(), kTokenBytesMax));
    }
    if (!out.insert(bytes)) {
      return invalid_argument(format("line %zu: the bytes of an earlier rank again", next + 1));
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char single = static_cast<char>(byte);
    if (!out.find({&single, 1})) return invalid_argument(format("no rank for byte %d", byte));
  }
  return out;
}

std::string_view Vocabulary::bytes(Token rank) const {
  CHECK(rank >= 0 && rank < size());
  const auto i = static_cast<size_t>(rank);
  return std::string_view(arena_).substr(offsets_[i], offsets_[i + 1] - offsets_[i]);
}

std::optional<Token> Vocabulary::find(std::string_view bytes) const {
  if (bytes.size() > token_bytes_max_) return std::nullopt;
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  const auto tag = static_cast<uint32_t>(hash >> 32);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.rank < 0) return std::nullopt;
    if (slot.tag == tag && this->bytes(slot.rank) == bytes) return slot.rank;
  }
}

bool Vocabulary::insert(std::string_view bytes) {
  if (find(bytes)) return false;
  arena_ += bytes;
  offsets_.push_back(static_cast<uint32_t>(arena_.size()));
  token_bytes_max_ = std::max(token_bytes_max_, bytes.size());
  if (2 * offsets_.size() > slots_.size()) {
    rebuild_slots();
    return true;
  }
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  while (slots_[i].rank >= 0) i = (i + 1) & mask;
  slots_[i] = {static_cast<uint32_t>(hash >> 32), size() - 1};
  return true;
}

void Vocabulary::rebuild_slots() {
  slots_.assign(std::max<size_t>(1024, 2 * slots_.size()), {});
  const size_t mask = slots_.size() - 1;
  for (Token rank = 0; rank < size(); ++rank) {
    const std::string_view known = bytes(rank);
    const uint64_t hash = XXH3_64bits(known.data(), known.size());
    size_t i = hash & mask;
    while (slots_[i].rank >= 0) i = (i + 1) & mask;
    slots_[i] = {static_cast<uint32_t>(hash >> 32), rank};
  }
}

}  // namespace quire
