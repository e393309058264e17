#include "text/pre_tokenize.h"

#include <unicode/uchar.h>
#include <unicode/uscript.h>
#include <unicode/utf8.h>

#include <array>
#include <cstdint>

#include "base/check.h"

namespace quire {

namespace {

// What the pattern asks of a character, as bits.
enum : unsigned {
  kHan = 1U << 0,
  kLetter = 1U << 1,   // \p{L}
  kNumber = 1U << 2,   // \p{N}
  kUpper = 1U << 3,    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
  kLower = 1U << 4,    // [\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]
  kBlank = 1U << 5,    // \s
  kNewline = 1U << 6,  // [\r\n]
  kSymbol = 1U << 7,   // [^\s\p{L}\p{N}]
};

constexpr uint32_t kUpperTypes = U_GC_LU_MASK | U_GC_LT_MASK | U_GC_LM_MASK | U_GC_LO_MASK |
                                 U_GC_MN_MASK | U_GC_MC_MASK | U_GC_ME_MASK;
constexpr uint32_t kLowerTypes =
    U_GC_LL_MASK | U_GC_LM_MASK | U_GC_LO_MASK | U_GC_MN_MASK | U_GC_MC_MASK | U_GC_ME_MASK;

unsigned classify(int32_t code) {
  const uint32_t type = U_MASK(u_charType(code));
  UErrorCode status = U_ZERO_ERROR;
  const bool is_han = uscript_getScript(code, &status) == USCRIPT_HAN;
  CHECK(U_SUCCESS(status));
  unsigned out = is_han ? unsigned{kHan} : 0U;
  if ((type & U_GC_L_MASK) != 0) out |= kLetter;
  if ((type & U_GC_N_MASK) != 0) out |= kNumber;
  if ((type & kUpperTypes) != 0 && !is_han) out |= kUpper;
  if ((type & kLowerTypes) != 0 && !is_han) out |= kLower;
  if (u_isUWhiteSpace(code) != 0) out |= kBlank;
  if (code == '\r' || code == '\n') out |= kNewline;
  if ((out & (kLetter | kNumber | kBlank)) == 0) out |= kSymbol;
  return out;
}

// ASCII needs no library: the same classes by range, held equal to classify() by the test of the
// whole splitter against ICU's regex.
constexpr unsigned classify_ascii(unsigned char code) {
  if (code >= 'a' && code <= 'z') return kLetter | kLower;
  if (code >= 'A' && code <= 'Z') return kLetter | kUpper;
  if (code >= '0' && code <= '9') return kNumber;
  if (code == '\r' || code == '\n') return kBlank | kNewline;
  if (code == ' ' || (code >= '\t' && code <= '\f')) return kBlank;
  return kSymbol;
}

constexpr std::array<uint8_t, 128> make_ascii_classes() {
  std::array<uint8_t, 128> out{};
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<uint8_t>(classify_ascii(static_cast<unsigned char>(i)));
  }
  return out;
}

constexpr std::array<uint8_t, 128> kAsciiClasses = make_ascii_classes();

struct Decoded {
  int32_t code;  // negative: not UTF-8
  size_t bytes;
};

// The character at `position`; bytes that are not UTF-8 come one by one.
Decoded decode(std::string_view text, size_t position) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
  size_t next = position;
  int32_t code = 0;
  U8_NEXT(bytes, next, text.size(), code);
  if (code < 0) return {code, 1};
  return {code, next - position};
}

// Python's str.isspace, which the publisher slices by: White_Space and the four separators.
bool is_python_space(int32_t code) {
  if (code >= 0x1c && code <= 0x1f) return true;
  return code >= 0 && u_isUWhiteSpace(code) != 0;
}

}  // namespace

std::vector<std::string_view> slice_text(std::string_view text) {
  std::vector<std::string_view> out;
  if (text.size() <= kRunCharsMax) {
    if (!text.empty()) out.push_back(text);
    return out;
  }
  size_t start = 0;
  size_t block_chars = 0;
  size_t run_chars = 0;
  bool run_is_space = false;
  size_t at = 0;
  while (at < text.size()) {
    const Decoded c = decode(text, at);
    const bool is_space = is_python_space(c.code);
    const bool block_is_full = block_chars == kSliceCharsMax;
    if (block_is_full) block_chars = 0;
    const bool same_run = block_chars > 0 && is_space == run_is_space;
    if (block_is_full || (same_run && run_chars == kRunCharsMax)) {
      out.push_back(text.substr(start, at - start));
      start = at;
      run_chars = 0;
    }
    run_chars = same_run ? run_chars + 1 : 1;
    run_is_space = is_space;
    ++block_chars;
    at += c.bytes;
  }
  out.push_back(text.substr(start));
  return out;
}

// A character as the pattern sees it; `classes` is 0 past the end.
struct PieceReader::Char {
  unsigned classes;
  size_t bytes;
  bool is(unsigned wanted) const { return (classes & wanted) != 0; }
};

PieceReader::Char PieceReader::at(size_t position) const {
  if (position >= text_.size()) return {0, 0};
  const auto lead = static_cast<uint8_t>(text_[position]);
  if (lead < 0x80) return {kAsciiClasses[lead], 1};
  const Decoded c = decode(text_, position);
  return {c.code < 0 ? unsigned{kSymbol} : classify(c.code), c.bytes};
}

size_t PieceReader::run_end(size_t position, unsigned classes) const {
  for (Char c = at(position); c.is(classes); c = at(position)) position += c.bytes;
  return position;
}

// (?i:'s|'t|'re|'ve|'m|'ll|'d)?  The long s (U+017F) folds to s.
size_t PieceReader::contraction_end(size_t position) const {
  if (position + 1 >= text_.size() || text_[position] != '\'') return position;
  const std::string_view rest = text_.substr(position + 1);
  if (rest.starts_with("\xc5\xbf")) return position + 3;
  const auto lower = [&](size_t i) {
    return i < rest.size() ? static_cast<char>(rest[i] | 0x20) : '\0';
  };
  switch (lower(0)) {
    case 's':
    case 't':
    case 'm':
    case 'd':
      return position + 2;
    case 'r':
    case 'v':
      return lower(1) == 'e' ? position + 3 : position;
    case 'l':
      return lower(1) == 'l' ? position + 3 : position;
    default:
      return position;
  }
}

// kUpper* kLower+ from `position`, or 0. The first run is greedy and gives back from its end: when
// nothing lower follows it, the match ends after the last character of the run that is lower too.
size_t PieceReader::lower_word_end(size_t position) const {
  size_t last_lower_end = 0;
  Char c = at(position);
  for (; c.is(kUpper); c = at(position)) {
    position += c.bytes;
    if (c.is(kLower)) last_lower_end = position;
  }
  return c.is(kLower) ? run_end(position, kLower) : last_lower_end;
}

// kUpper+ kLower* from `position`, or 0.
size_t PieceReader::upper_word_end(size_t position) const {
  const size_t end = run_end(position, kUpper);
  return end == position ? 0 : run_end(end, kLower);
}

// The two word alternatives, each tried with the leading character before without it; 0 if none.
size_t PieceReader::word_end(size_t position, const Char& first) const {
  const bool may_lead = !first.is(kNewline | kLetter | kNumber);
  const size_t after = position + first.bytes;
  size_t end = may_lead ? lower_word_end(after) : 0;
  if (end == 0) end = lower_word_end(position);
  if (end == 0 && may_lead) end = upper_word_end(after);
  if (end == 0) end = upper_word_end(position);
  return end == 0 ? 0 : contraction_end(end);
}

size_t PieceReader::number_end(size_t position) const {
  for (int i = 0; i < 3; ++i) {
    const Char c = at(position);
    if (!c.is(kNumber)) break;
    position += c.bytes;
  }
  return position;
}

//  ?[^\s\p{L}\p{N}]+[\r\n]*, or 0.
size_t PieceReader::symbols_end(size_t position) const {
  const size_t start = text_[position] == ' ' ? position + 1 : position;
  const size_t end = run_end(start, kSymbol);
  return end == start ? 0 : run_end(end, kNewline);
}

// The three blank alternatives: through the last newline of the run; else all of it at the end of
// the slice; else all but the last, which will lead the next word; else that one alone.
size_t PieceReader::blanks_end(size_t position) const {
  size_t end = position;
  size_t after_newline = 0;
  size_t last_start = position;
  for (Char c = at(end); c.is(kBlank); c = at(end)) {
    last_start = end;
    end += c.bytes;
    if (c.is(kNewline)) after_newline = end;
  }
  if (after_newline != 0) return after_newline;
  if (end == text_.size() || last_start == position) return end;
  return last_start;
}

size_t PieceReader::piece_end(size_t position) const {
  const Char first = at(position);
  if (first.is(kHan)) return run_end(position, kHan);
  size_t end = word_end(position, first);
  if (end != 0) return end;
  if (first.is(kNumber)) return number_end(position);
  end = symbols_end(position);
  if (end != 0) return end;
  return blanks_end(position);
}

std::string_view PieceReader::next() {
  CHECK(!done());
  const size_t start = at_;
  at_ = piece_end(start);
  CHECK(at_ > start);
  return text_.substr(start, at_ - start);
}

}  // namespace quire
