#include "text/json_machine.h"

#include <string_view>

#include "base/check.h"

namespace quire {

namespace {

bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

bool is_hex(uint8_t byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

bool LiteralCursor::push(const JsonSchema::Literals& texts, uint8_t byte) {
  const auto here = [&](uint16_t i) {
    const std::string& text = texts[i];
    return text.size() > matched ? static_cast<int>(static_cast<uint8_t>(text[matched])) : -1;
  };
  uint16_t first = begin;
  while (first < end && here(first) < byte) ++first;
  uint16_t last = first;
  while (last < end && here(last) == byte) ++last;
  if (first == last) return false;
  begin = first;
  end = last;
  ++matched;
  return true;
}

bool JsonStringState::push(uint8_t byte) {
  switch (need_) {
    case Need::none:
      if (byte == '\\') {
        need_ = Need::escape;
        return true;
      }
      if (byte < 0x80) return byte >= 0x20;
      // RFC 3629, part 4.
      if (byte < 0xc2 || byte > 0xf4) return false;
      need_ = Need::tail;
      tails_ = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
      least_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
      most_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
      return true;
    case Need::tail:
      if (byte < least_ || byte > most_) return false;
      least_ = 0x80;
      most_ = 0xbf;
      if (--tails_ == 0) need_ = Need::none;
      return true;
    case Need::escape:
      if (byte == 'u') {
        need_ = Need::hex4;
        return true;
      }
      need_ = Need::none;
      return byte != '\0' &&
             std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos;
    case Need::hex4:
      need_ = byte == 'd' || byte == 'D' ? Need::hex3_not_surrogate : Need::hex3;
      return is_hex(byte);
    case Need::hex3_not_surrogate:
      need_ = Need::hex2;
      return byte >= '0' && byte <= '7';
    case Need::hex3:
      need_ = Need::hex2;
      return is_hex(byte);
    case Need::hex2:
      need_ = Need::hex1;
      return is_hex(byte);
    case Need::hex1:
      need_ = Need::none;
      return is_hex(byte);
  }
  return false;
}

bool JsonMachine::push(const JsonSchema& schema, uint8_t byte) {
  switch (mode_) {
    case Mode::value:
      return take_space(byte) || begin_value(schema, byte);
    case Mode::string:
    case Mode::key_string:
      if (byte != '"' || !string_.is_plain()) return string_.push(byte);
      if (mode_ == Mode::string) {
        end_value();
      } else {
        enter(Mode::colon);
      }
      return true;
    case Mode::literal:
      return in_literal(schema, byte);
    case Mode::number:
      return in_number(schema, byte);
    case Mode::after_value:
      return after_value(schema, byte);
    case Mode::first_key:
      if (take_space(byte)) return true;
      if (byte == '}' && schema.node(top().node).required == 0) {
        close();
        return true;
      }
      return has_more_names(schema) && begin_key(schema, byte);
    case Mode::key:
      return take_space(byte) || begin_key(schema, byte);
    case Mode::key_literal:
      return in_key_literal(schema, byte);
    case Mode::colon:
      if (byte != ':') return false;
      enter(Mode::value);
      return true;
    case Mode::first_item:
      if (take_space(byte)) return true;
      if (byte == ']') {
        close();
        return true;
      }
      node_ = schema.node(top().node).child;
      return begin_value(schema, byte);
    case Mode::done:
      return false;
  }
  return false;
}

bool JsonMachine::take_space(uint8_t byte) {
  if (byte != ' ' || spaced_) return false;
  spaced_ = true;
  return true;
}

bool JsonMachine::begin_value(const JsonSchema& schema, uint8_t byte) {
  const JsonSchema::Node& node = schema.node(node_);
  if (byte == '{' && (node.kinds & JsonSchema::kObject) != 0) return open(true);
  if (byte == '[' && (node.kinds & JsonSchema::kArray) != 0) return open(false);
  if (byte == '"' && (node.kinds & JsonSchema::kString) != 0) {
    string_ = {};
    enter(Mode::string);
    return true;
  }
  const bool may_be_number = (node.kinds & (JsonSchema::kInteger | JsonSchema::kNumber)) != 0;
  if (may_be_number && (byte == '-' || is_digit(byte))) return begin_number(byte);
  cursor_ = {0, static_cast<uint16_t>(node.literals.size()), 0};
  enter(Mode::literal);
  return in_literal(schema, byte);
}

bool JsonMachine::open(bool is_object) {
  if (depth_ == kDepthMax) return false;
  frames_[static_cast<size_t>(depth_++)] = {.node = node_, .is_object = is_object};
  enter(is_object ? Mode::first_key : Mode::first_item);
  return true;
}

void JsonMachine::close() {
  --depth_;
  end_value();
}

void JsonMachine::end_value() { enter(depth_ == 0 ? Mode::done : Mode::after_value); }

// A member that begins another ("1" and "12") ends at the first byte that continues neither.
bool JsonMachine::in_literal(const JsonSchema& schema, uint8_t byte) {
  const JsonSchema::Literals& texts = schema.node(node_).literals;
  const bool was_complete = cursor_.is_complete(texts);
  if (cursor_.push(texts, byte)) {
    const bool is_only = cursor_.end - cursor_.begin == 1;
    if (is_only && cursor_.is_complete(texts)) end_value();
    return true;
  }
  if (!was_complete) return false;
  end_value();
  return push(schema, byte);
}

bool JsonMachine::begin_number(uint8_t byte) {
  enter(Mode::number);
  number_bytes_ = 1;
  number_ = byte == '-' ? Number::minus : byte == '0' ? Number::zero : Number::whole;
  return true;
}

bool JsonMachine::in_number(const JsonSchema& schema, uint8_t byte) {
  const bool is_real = (schema.node(node_).kinds & JsonSchema::kNumber) != 0;
  // Room is kept for the digit that a point, sign or exponent calls for.
  const bool has_room = number_bytes_ < kNumberBytesMax;
  const bool may_extend = number_bytes_ + 2 < kNumberBytesMax;
  const auto become = [&](Number next) {
    number_ = next;
    ++number_bytes_;
    return true;
  };
  switch (number_) {
    case Number::minus:
      return is_digit(byte) && become(byte == '0' ? Number::zero : Number::whole);
    case Number::point:
      return is_digit(byte) && become(Number::fraction);
    case Number::exponent:
      if (byte == '+' || byte == '-') return become(Number::sign);
      return is_digit(byte) && become(Number::power);
    case Number::sign:
      return is_digit(byte) && become(Number::power);
    case Number::zero:
    case Number::whole:
    case Number::fraction:
    case Number::power:
    case Number::last_power:
      break;
  }
  if (is_digit(byte)) {
    if (number_ == Number::power) return has_room && become(Number::last_power);
    const bool may_go_on = number_ == Number::whole || number_ == Number::fraction;
    return may_go_on && has_room && become(number_);
  }
  const bool is_integral = number_ == Number::zero || number_ == Number::whole;
  if (byte == '.') return is_real && is_integral && may_extend && become(Number::point);
  if (byte == 'e' || byte == 'E') {
    const bool may_have = is_integral || number_ == Number::fraction;
    return is_real && may_have && may_extend && become(Number::exponent);
  }
  end_value();
  return push(schema, byte);
}

bool JsonMachine::after_value(const JsonSchema& schema, uint8_t byte) {
  const Frame& frame = top();
  const JsonSchema::Node& node = schema.node(frame.node);
  if (!frame.is_object) {
    if (byte == ']') {
      close();
      return true;
    }
    if (byte != ',') return false;
    node_ = node.child;
    enter(Mode::value);
    return true;
  }
  if (byte == '}') {
    if ((node.required & ~frame.seen) != 0) return false;
    close();
    return true;
  }
  if (byte != ',' || !has_more_names(schema)) return false;
  enter(Mode::key);
  return true;
}

bool JsonMachine::has_more_names(const JsonSchema& schema) const {
  const JsonSchema::Node& node = schema.node(top().node);
  if (node.any_name) return true;
  const size_t n = node.names.size();
  const uint64_t all = n == 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
  return (all & ~top().seen) != 0;
}

bool JsonMachine::begin_key(const JsonSchema& schema, uint8_t byte) {
  if (byte != '"') return false;
  const JsonSchema::Node& node = schema.node(top().node);
  if (node.any_name) {
    string_ = {};
    node_ = node.child;
    enter(Mode::key_string);
    return true;
  }
  cursor_ = {0, static_cast<uint16_t>(node.names.size()), 0};
  enter(Mode::key_literal);
  return in_key_literal(schema, byte);
}

bool JsonMachine::in_key_literal(const JsonSchema& schema, uint8_t byte) {
  Frame& frame = top();
  const JsonSchema::Node& node = schema.node(frame.node);
  if (!cursor_.push(node.names, byte)) return false;
  bool is_new = false;
  for (uint16_t i = cursor_.begin; i < cursor_.end; ++i) {
    is_new = is_new || (frame.seen >> i & 1) == 0;
  }
  if (!is_new) return false;
  // A quoted name never begins another: complete means the only one.
  if (!cursor_.is_complete(node.names)) return true;
  frame.seen |= uint64_t{1} << cursor_.begin;
  node_ = node.name_nodes[cursor_.begin];
  enter(Mode::colon);
  return true;
}

}  // namespace quire
