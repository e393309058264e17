#include "text/utf8_assembler.h"

namespace quire {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Length of the sequence that a first byte opens; 0 when none begins so (RFC 3629).
int sequence_bytes(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return 2;
  if (lead >= 0xe0 && lead <= 0xef) return 3;
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  return 0;
}

// Whether `byte` may come second after `lead`: overlong forms, surrogates and values past U+10FFFF
// show themselves here.
bool may_follow_lead(unsigned char lead, unsigned char byte) {
  unsigned char least = 0x80;
  unsigned char most = 0xbf;
  if (lead == 0xe0) least = 0xa0;
  if (lead == 0xed) most = 0x9f;
  if (lead == 0xf0) least = 0x90;
  if (lead == 0xf4) most = 0x8f;
  return byte >= least && byte <= most;
}

}  // namespace

void Utf8Assembler::push(std::string_view bytes, std::string* out) {
  for (const char byte : bytes) push_byte(static_cast<unsigned char>(byte), out);
}

void Utf8Assembler::push_byte(unsigned char byte, std::string* out) {
  if (held_bytes_ > 0) {
    const bool fits = held_bytes_ == 1 ? may_follow_lead(static_cast<unsigned char>(held_[0]), byte)
                                       : byte >= 0x80 && byte <= 0xbf;
    if (fits) {
      held_[held_bytes_++] = static_cast<char>(byte);
      if (held_bytes_ < wanted_bytes_) return;
      out->append(held_, static_cast<size_t>(held_bytes_));
      held_bytes_ = 0;
      return;
    }
    finish(out);
  }
  const int wanted = sequence_bytes(byte);
  if (wanted == 1) {
    out->push_back(static_cast<char>(byte));
  } else if (wanted == 0) {
    *out += kReplacement;
  } else {
    held_[0] = static_cast<char>(byte);
    held_bytes_ = 1;
    wanted_bytes_ = wanted;
  }
}

void Utf8Assembler::finish(std::string* out) {
  if (held_bytes_ > 0) *out += kReplacement;
  held_bytes_ = 0;
}

}  // namespace quire
