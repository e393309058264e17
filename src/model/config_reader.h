// ConfigReader: one object of config.json, read field by field, strictly typed and bounded.
//
// A field that is null counts as absent, as it does for the publishers' code. Every refusal names
// the field with its path, what was expected and what was found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "weights/weight_scheme.h"

namespace quire {

struct IntRange {
  int64_t least;
  int64_t most;
};

class ConfigReader {
 public:
  struct NumberRange {
    double least;
    double most;
  };

  // `object` is a JSON object and outlives the reader. `path` is "" or ends in a dot.
  ConfigReader(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {}

  bool has(const char* key) const { return find(key) != nullptr; }

  Result<int64_t> integer(const char* key, IntRange range) const;
  Result<int64_t> integer_or(const char* key, IntRange range, int64_t otherwise) const;
  // One integer, or an array of at most `count_max`.
  Result<std::vector<int64_t>> integers(const char* key, IntRange range, int count_max) const;
  Result<double> number(const char* key, NumberRange range) const;
  Result<double> number_or(const char* key, NumberRange range, double otherwise) const;
  Result<bool> boolean_or(const char* key, bool otherwise) const;
  Result<std::string> text(const char* key) const;
  Result<std::string> text_or(const char* key, const char* otherwise) const;
  Result<std::vector<std::string>> texts(const char* key, int count_max) const;
  Result<ConfigReader> object(const char* key) const;
  // The only member of an object that has exactly one.
  Result<ConfigReader> only_member(const char* key) const;

  Error refuse(const char* key, const std::string& expected, const std::string& found) const;

 private:
  const Json* find(const char* key) const;
  Error refuse_value(const char* key, const std::string& expected) const;
  Result<int64_t> as_integer(const char* key, const Json& value, IntRange range) const;

  const Json* object_;
  std::string path_;
};

// `quantization_config` of `owner`, which may lack one. What is well formed and not known becomes
// WeightScheme::other. (model/weight_scheme_reader.cc)
Status read_weight_scheme(const ConfigReader& owner, WeightSource* source);

}  // namespace quire
