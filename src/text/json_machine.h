// JsonMachine: which byte may come next in a JSON value that follows a schema.
//
// One value, written as Kimi writes arguments: at most one space where JSON allows blanks, and
// none before a comma, colon or closing bracket. Strings are UTF-8, without surrogate escapes. No
// recursion, no memory beyond the object: it is copied for every branch of a token trie.
// From every state that push() leads to, the value can be completed.
#pragma once

#include <array>
#include <cstdint>

#include "text/json_schema.h"

namespace quire {

// A place in a sorted list of texts: those from `begin` to `end` share the first `matched` bytes.
struct LiteralCursor {
  uint16_t begin = 0;
  uint16_t end = 0;
  uint16_t matched = 0;

  // Narrows to the texts that go on with `byte`; false, and unchanged, when none does.
  bool push(const JsonSchema::Literals& texts, uint8_t byte);
  // Whether the first text in range ends here. (A text sorts before those it begins.)
  bool is_complete(const JsonSchema::Literals& texts) const {
    return begin < end && texts[begin].size() == matched;
  }
};

// The inside of a JSON string, without its quotes.
class JsonStringState {
 public:
  // False: not allowed. A closing quote is not for this class: ask is_plain() first.
  bool push(uint8_t byte);
  // Between characters: a quote would close the string.
  bool is_plain() const { return need_ == Need::none; }

 private:
  enum class Need : uint8_t { none, escape, hex4, hex3_not_surrogate, hex3, hex2, hex1, tail };

  Need need_ = Need::none;
  uint8_t tails_ = 0;  // continuation bytes still to come
  uint8_t least_ = 0;  // range of the next one
  uint8_t most_ = 0;
};

class JsonMachine {
 public:
  // Deeper values than this are not let through; schemas are never so deep.
  static constexpr int kDepthMax = 24;
  static_assert(kDepthMax > JsonSchema::kDepthMax);
  // Digits, sign, point and exponent of one number, together.
  static constexpr int kNumberBytesMax = 32;

  // At the start of a value that follows `node`. Not for a value where a bare number is the whole.
  explicit JsonMachine(int32_t node) : node_(node) {}

  // False: the byte is not allowed, and the machine must not be used further.
  bool push(const JsonSchema& schema, uint8_t byte);
  // The value is complete; no byte may follow.
  bool is_done() const { return mode_ == Mode::done; }
  // In a string, between characters, so that tokens of plain text are all allowed.
  bool is_in_plain_string() const {
    return (mode_ == Mode::string || mode_ == Mode::key_string) && string_.is_plain();
  }

 private:
  enum class Mode : uint8_t {
    value,        // the first byte of a value
    string,       // inside a value's quotes
    literal,      // inside null, true, false or a member of an enum
    number,       //
    after_value,  // a comma or the end of what encloses it
    first_key,    // behind {
    key,          // behind a comma in an object
    key_string,   // inside the quotes of a free name
    key_literal,  // inside a named property
    colon,        //
    first_item,   // behind [
    done,
  };
  // Two digits of exponent at most: every number let through is a finite double.
  enum class Number : uint8_t {
    minus,
    zero,
    whole,
    point,
    fraction,
    exponent,
    sign,
    power,
    last_power
  };

  struct Frame {
    uint64_t seen = 0;  // bit i: names[i] was written
    int32_t node = 0;
    bool is_object = false;
  };

  Frame& top() { return frames_[static_cast<size_t>(depth_ - 1)]; }
  const Frame& top() const { return frames_[static_cast<size_t>(depth_ - 1)]; }

  bool begin_value(const JsonSchema& schema, uint8_t byte);
  bool open(bool is_object);
  void close();
  void end_value();
  bool in_literal(const JsonSchema& schema, uint8_t byte);
  bool begin_number(uint8_t byte);
  bool in_number(const JsonSchema& schema, uint8_t byte);
  bool after_value(const JsonSchema& schema, uint8_t byte);
  bool begin_key(const JsonSchema& schema, uint8_t byte);
  bool in_key_literal(const JsonSchema& schema, uint8_t byte);
  bool take_space(uint8_t byte);
  bool has_more_names(const JsonSchema& schema) const;
  void enter(Mode mode) {
    mode_ = mode;
    spaced_ = false;
  }

  std::array<Frame, kDepthMax> frames_{};
  int32_t depth_ = 0;
  int32_t node_;  // of the value at hand, until it is complete
  LiteralCursor cursor_;
  JsonStringState string_;
  Mode mode_ = Mode::value;
  Number number_ = Number::whole;
  uint8_t number_bytes_ = 0;
  bool spaced_ = true;  // the one space of this place was taken; none leads the whole value
};

}  // namespace quire
