#include "model/config_reader.h"

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr size_t kTextBytesMax = 512;

std::string describe(IntRange range) {
  return format("an integer in [%lld, %lld]", static_cast<long long>(range.least),
                static_cast<long long>(range.most));
}

}  // namespace

const Json* ConfigReader::find(const char* key) const {
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

Error ConfigReader::refuse(const char* key, const std::string& expected,
                           const std::string& found) const {
  return invalid_argument(format("config.json: %s%s: expected %s, found %s", path_.c_str(), key,
                                 expected.c_str(), excerpt(found).c_str()));
}

Error ConfigReader::refuse_value(const char* key, const std::string& expected) const {
  const Json* value = find(key);
  return refuse(key, expected, value == nullptr ? "nothing" : dump_json(*value));
}

Result<int64_t> ConfigReader::as_integer(const char* key, const Json& value, IntRange range) const {
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits) return refuse_value(key, describe(range));
  const auto number = value.get<int64_t>();
  if (number < range.least || number > range.most) return refuse_value(key, describe(range));
  return number;
}

Result<int64_t> ConfigReader::integer(const char* key, IntRange range) const {
  const Json* value = find(key);
  if (value == nullptr) return refuse_value(key, describe(range));
  return as_integer(key, *value, range);
}

Result<int64_t> ConfigReader::integer_or(const char* key, IntRange range, int64_t otherwise) const {
  return has(key) ? integer(key, range) : otherwise;
}

Result<std::vector<int64_t>> ConfigReader::integers(const char* key, IntRange range,
                                                    int count_max) const {
  const Json* value = find(key);
  std::vector<int64_t> out;
  if (value != nullptr && value->is_array()) {
    if (value->size() > static_cast<size_t>(count_max)) {
      return refuse(key, format("at most %d integers", count_max), std::to_string(value->size()));
    }
    for (const Json& item : *value) out.push_back(TRY(as_integer(key, item, range)));
    return out;
  }
  out.push_back(TRY(integer(key, range)));
  return out;
}

Result<double> ConfigReader::number(const char* key, NumberRange range) const {
  const Json* value = find(key);
  const double number = value != nullptr && value->is_number() ? value->get<double>() : 0;
  const bool fits =
      value != nullptr && value->is_number() && number >= range.least && number <= range.most;
  if (!fits) return refuse_value(key, format("a number in [%g, %g]", range.least, range.most));
  return number;
}

Result<double> ConfigReader::number_or(const char* key, NumberRange range, double otherwise) const {
  return has(key) ? number(key, range) : otherwise;
}

Result<bool> ConfigReader::boolean_or(const char* key, bool otherwise) const {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) return refuse_value(key, "true or false");
  return value->get<bool>();
}

Result<std::string> ConfigReader::text(const char* key) const {
  const Json* value = find(key);
  const bool fits = value != nullptr && value->is_string() &&
                    value->get_ref<const std::string&>().size() <= kTextBytesMax;
  if (!fits) return refuse_value(key, "a short string");
  return value->get<std::string>();
}

Result<std::string> ConfigReader::text_or(const char* key, const char* otherwise) const {
  return has(key) ? text(key) : std::string(otherwise);
}

Result<std::vector<std::string>> ConfigReader::texts(const char* key, int count_max) const {
  const Json* value = find(key);
  const bool fits =
      value != nullptr && value->is_array() && value->size() <= static_cast<size_t>(count_max);
  if (!fits) return refuse_value(key, format("an array of at most %d strings", count_max));
  std::vector<std::string> out;
  for (const Json& item : *value) {
    if (!item.is_string()) return refuse_value(key, "an array of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

Result<ConfigReader> ConfigReader::object(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr || !value->is_object()) return refuse_value(key, "an object");
  return ConfigReader(*value, path_ + key + ".");
}

Result<ConfigReader> ConfigReader::only_member(const char* key) const {
  const Json* value = find(key);
  const bool fits =
      value != nullptr && value->is_object() && value->size() == 1 && value->front().is_object();
  if (!fits) return refuse_value(key, "an object with one object in it");
  return ConfigReader(value->front(), path_ + key + "." + value->begin().key() + ".");
}

}  // namespace quire
