// FieldReader: typed, bounded reading of the fields of one JSON object of a request.
//
// A field that is absent or null gives nothing. One of the wrong type or out of range is an error
// that names its path; the first error is kept and the reading may go on, so that a list of fields
// reads as a list. Ask failed() once, at the end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "server/openai_error.h"

namespace quire {

class FieldReader {
 public:
  struct IntegerRange {
    int64_t min;
    int64_t max;
  };
  struct NumberRange {
    double min;
    double max;
    bool min_allowed = true;
  };

  // `object` is a JSON object and outlives this. `prefix` is its path, empty for the body.
  explicit FieldReader(const Json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // The field, unless absent or null.
  const Json* find(const char* name) const;
  std::optional<int64_t> integer(const char* name, IntegerRange range);
  std::optional<double> number(const char* name, NumberRange range);
  std::optional<bool> boolean(const char* name);
  std::optional<std::string_view> string(const char* name, size_t bytes_max);
  // An array of at most `items_max`.
  const Json* array(const char* name, size_t items_max);
  const Json* object(const char* name);

  // The same rules for a value that is not a field of the object. `path` is relative to it.
  std::optional<int64_t> integer_at(const Json& value, const std::string& path, IntegerRange range);
  std::optional<double> number_at(const Json& value, const std::string& path, NumberRange range);

  // `path` is relative to the object.
  void refuse(std::string_view code, const std::string& path, std::string message);
  void refuse(ApiError error);
  bool failed() const { return error_.has_value(); }
  const ApiError& error() const { return *error_; }

 private:
  void wrong_type(const std::string& path, const char* expected, const Json& found);

  const Json& object_;
  std::string prefix_;
  std::optional<ApiError> error_;
};

}  // namespace quire
