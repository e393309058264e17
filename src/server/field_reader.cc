#include "server/field_reader.h"

#include <cinttypes>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

const char* type_name(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "an array";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    case Json::value_t::binary:
    case Json::value_t::discarded:
      break;
  }
  return "something else";
}

// Integral values of magnitude up to here are exact as doubles.
constexpr double kExactMax = 9007199254740992.0;

}  // namespace

const Json* FieldReader::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::refuse(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::refuse(std::string_view code, const std::string& path, std::string message) {
  refuse(bad_field(code, prefix_ + path, std::move(message)));
}

void FieldReader::wrong_type(const std::string& path, const char* expected, const Json& found) {
  refuse("invalid_type", path,
         format("Invalid type for '%s': expected %s, but got %s instead.", (prefix_ + path).c_str(),
                expected, type_name(found)));
}

std::optional<int64_t> FieldReader::integer_at(const Json& value, const std::string& path,
                                               IntegerRange range) {
  const std::string full = prefix_ + path;
  if (!value.is_number()) {
    wrong_type(path, "an integer", value);
    return std::nullopt;
  }
  const double real = value.get<double>();
  if (value.is_number_float() && (real != std::floor(real))) {
    wrong_type(path, "an integer", value);
    return std::nullopt;
  }
  // A number without a fraction is an integer however it is written; past 2^53 only digits are
  // exact, and past 64 bits the comparison as a double is.
  const bool is_above = value.is_number_unsigned() && range.max >= 0
                            ? value.get<uint64_t>() > static_cast<uint64_t>(range.max)
                        : value.is_number_float() ? real > static_cast<double>(range.max)
                                                  : value.get<int64_t>() > range.max;
  const bool is_below =
      value.is_number_unsigned()
          ? range.min > 0 && value.get<uint64_t>() < static_cast<uint64_t>(range.min)
      : value.is_number_float() ? real < static_cast<double>(range.min)
                                : value.get<int64_t>() < range.min;
  if (is_above || (value.is_number_float() && real > kExactMax)) {
    refuse("integer_above_max_value", path,
           format("Invalid '%s': integer above maximum value. Expected a value <= %" PRId64 ".",
                  full.c_str(), range.max));
    return std::nullopt;
  }
  if (is_below || (value.is_number_float() && real < -kExactMax)) {
    refuse("integer_below_min_value", path,
           format("Invalid '%s': integer below minimum value. Expected a value >= %" PRId64 ".",
                  full.c_str(), range.min));
    return std::nullopt;
  }
  return value.is_number_float() ? static_cast<int64_t>(real) : value.get<int64_t>();
}

std::optional<double> FieldReader::number_at(const Json& value, const std::string& path,
                                             NumberRange range) {
  const std::string full = prefix_ + path;
  if (!value.is_number()) {
    wrong_type(path, "a number", value);
    return std::nullopt;
  }
  const double real = value.get<double>();
  if (!std::isfinite(real)) {
    refuse("invalid_value", path, format("Invalid '%s': the value must be finite.", full.c_str()));
    return std::nullopt;
  }
  if (real > range.max) {
    refuse("decimal_above_max_value", path,
           format("Invalid '%s': decimal above maximum value. Expected a value <= %g.",
                  full.c_str(), range.max));
    return std::nullopt;
  }
  if (real < range.min || (real == range.min && !range.min_allowed)) {
    refuse("decimal_below_min_value", path,
           format("Invalid '%s': decimal below minimum value. Expected a value %s %g.",
                  full.c_str(), range.min_allowed ? ">=" : ">", range.min));
    return std::nullopt;
  }
  return real;
}

std::optional<int64_t> FieldReader::integer(const char* name, IntegerRange range) {
  const Json* value = find(name);
  return value == nullptr ? std::nullopt : integer_at(*value, name, range);
}

std::optional<double> FieldReader::number(const char* name, NumberRange range) {
  const Json* value = find(name);
  return value == nullptr ? std::nullopt : number_at(*value, name, range);
}

std::optional<bool> FieldReader::boolean(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    wrong_type(name, "a boolean", *value);
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<std::string_view> FieldReader::string(const char* name, size_t bytes_max) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    wrong_type(name, "a string", *value);
    return std::nullopt;
  }
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    refuse("string_above_max_length", name,
           format("Invalid '%s': string too long. Expected at most %zu bytes, but got %zu.",
                  (prefix_ + name).c_str(), bytes_max, text.size()));
    return std::nullopt;
  }
  return text;
}

const Json* FieldReader::array(const char* name, size_t items_max) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) {
    wrong_type(name, "an array", *value);
    return nullptr;
  }
  if (value->size() > items_max) {
    refuse("array_above_max_length", name,
           format("Invalid '%s': array too long. Expected at most %zu items, but got %zu.",
                  (prefix_ + name).c_str(), items_max, value->size()));
    return nullptr;
  }
  return value;
}

const Json* FieldReader::object(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) {
    wrong_type(name, "an object", *value);
    return nullptr;
  }
  return value;
}

}  // namespace quire
