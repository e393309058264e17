#include "text/python_json.h"

#include <array>
#include <charconv>
#include <cmath>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

// Recursion is bounded by the depth that parse_json lets through.
void append(const Json& value, std::string* out) {
  switch (value.type()) {
    case Json::value_t::object: {
      const char* separator = "{";
      for (const auto& [key, member] : value.items()) {
        *out += separator;
        *out += dump_json(Json(key));
        *out += ": ";
        append(member, out);
        separator = ", ";
      }
      *out += value.empty() ? "{}" : "}";
      return;
    }
    case Json::value_t::array: {
      const char* separator = "[";
      for (const Json& item : value) {
        *out += separator;
        append(item, out);
        separator = ", ";
      }
      *out += value.empty() ? "[]" : "]";
      return;
    }
    case Json::value_t::number_float:
      *out += python_repr(value.get<double>());
      return;
    case Json::value_t::null:
    case Json::value_t::string:
    case Json::value_t::boolean:
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
    case Json::value_t::binary:
    case Json::value_t::discarded:
      *out += dump_json(value);
      return;
  }
}

}  // namespace

std::string python_json(const Json& value) {
  std::string out;
  append(value, &out);
  return out;
}

std::string python_repr(double value) {
  CHECK(std::isfinite(value));
  std::array<char, 64> buffer{};
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                     std::chars_format::scientific);
  CHECK(written.ec == std::errc{});
  const std::string_view text(buffer.data(), static_cast<size_t>(written.ptr - buffer.data()));
  const size_t e = text.find('e');
  const bool is_positive = text[e + 1] == '+';
  const auto exponent = parse_int(text.substr(is_positive ? e + 2 : e + 1));
  CHECK(exponent.has_value());
  if (*exponent < -4 || *exponent >= 16) return std::string(text);
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = text[0] == '-' ? "-" : "";
  if (*exponent < 0) {
    return out + "0." + std::string(static_cast<size_t>(-*exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(*exponent) + 1;
  if (digits.size() < whole) digits.append(whole - digits.size(), '0');
  out += digits.substr(0, whole) + ".";
  return out + (digits.size() > whole ? digits.substr(whole) : "0");
}

}  // namespace quire
