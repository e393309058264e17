#include "text/json_schema.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr uint32_t kAllKinds = JsonSchema::kObject | JsonSchema::kArray | JsonSchema::kString |
                               JsonSchema::kInteger | JsonSchema::kNumber;

// Adds what `type` allows. False for a name that JSON Schema does not have.
bool add_kind(const std::string& type, JsonSchema::Node* node) {
  if (type == "object") {
    node->kinds |= JsonSchema::kObject;
  } else if (type == "array") {
    node->kinds |= JsonSchema::kArray;
  } else if (type == "string") {
    node->kinds |= JsonSchema::kString;
  } else if (type == "integer") {
    node->kinds |= JsonSchema::kInteger;
  } else if (type == "number") {
    node->kinds |= JsonSchema::kInteger | JsonSchema::kNumber;
  } else if (type == "boolean") {
    node->literals.insert(node->literals.end(), {"false", "true"});
  } else if (type == "null") {
    node->literals.push_back("null");
  } else {
    return false;
  }
  return true;
}

void sort_unique(JsonSchema::Literals* literals) {
  std::sort(literals->begin(), literals->end());
  literals->erase(std::unique(literals->begin(), literals->end()), literals->end());
}

}  // namespace

JsonSchema::JsonSchema() {
  nodes_.push_back({.kinds = kAllKinds, .literals = {"false", "null", "true"}});
}

Result<int32_t> JsonSchema::add(const Json& schema) { return add_at(schema, 0); }

Result<int32_t> JsonSchema::add_parameters(const Json& schema) {
  int32_t index = kAny;
  if (!schema.is_null()) {
    if (!schema.is_object()) return invalid_argument("parameters: expected an object");
    Json typed = schema;
    if (!typed.contains("type")) typed["type"] = "object";
    index = TRY(add_at(typed, 0));
  }
  Node node = nodes_[static_cast<size_t>(index)];
  node.kinds = kObject;
  node.literals.clear();
  nodes_.push_back(std::move(node));
  return static_cast<int32_t>(nodes_.size()) - 1;
}

Result<int32_t> JsonSchema::add_at(const Json& schema, int depth) {
  if (!schema.is_object() || depth >= kDepthMax) return kAny;
  if (nodes_.size() >= kNodesMax) {
    return invalid_argument(format("a schema of more than %zu parts", kNodesMax));
  }
  for (const char* key : {"$ref", "anyOf", "oneOf", "allOf", "not"}) {
    if (schema.contains(key)) return kAny;
  }
  Node node;
  const auto values = schema.find("enum");
  const auto value = schema.find("const");
  if (values != schema.end()) {
    TRY_OK(read_values(*values, &node));
  } else if (value != schema.end()) {
    TRY_OK(read_values(Json::array({*value}), &node));
  } else {
    TRY_OK(read_kinds(schema, &node));
    TRY_OK(read_object(schema, depth, &node));
  }
  nodes_.push_back(std::move(node));
  return static_cast<int32_t>(nodes_.size()) - 1;
}

Status JsonSchema::read_kinds(const Json& schema, Node* node) const {
  const auto type = schema.find("type");
  if (type == schema.end()) {
    const bool is_object = schema.contains("properties");
    node->kinds = is_object ? uint32_t{kObject} : kAllKinds;
    if (!is_object) node->literals = nodes_[kAny].literals;
    return {};
  }
  const Json types = type->is_array() ? *type : Json::array({*type});
  if (types.empty()) return invalid_argument("type: expected at least one");
  for (const Json& one : types) {
    if (!one.is_string() || !add_kind(one.get<std::string>(), node)) {
      return invalid_argument("type: \"" + excerpt(dump_json(one)) + "\" is not a JSON type");
    }
  }
  sort_unique(&node->literals);
  return {};
}

Status JsonSchema::read_values(const Json& values, Node* node) {
  if (!values.is_array() || values.empty()) {
    return invalid_argument("enum: expected an array of at least one value");
  }
  for (const Json& value : values) {
    std::string text = dump_json(value);
    TRY_OK(count_literal(text));
    node->literals.push_back(std::move(text));
  }
  sort_unique(&node->literals);
  return {};
}

Status JsonSchema::read_object(const Json& schema, int depth, Node* node) {
  const auto items = schema.find("items");
  if ((node->kinds & kArray) != 0 && items != schema.end()) {
    node->child = TRY(add_at(*items, depth + 1));
  }
  if ((node->kinds & kObject) == 0) return {};
  const Json properties = schema.value("properties", Json::object());
  const Json required = schema.value("required", Json::array());
  if (!properties.is_object()) return invalid_argument("properties: expected an object");
  if (!required.is_array()) return invalid_argument("required: expected an array");
  Json named = properties;
  for (const Json& name : required) {
    if (!name.is_string()) return invalid_argument("required: expected strings");
    if (!named.contains(name.get<std::string>())) named[name.get<std::string>()] = Json::object();
  }
  const auto more = schema.find("additionalProperties");
  const bool is_closed = more != schema.end() && more->is_boolean() && !more->get<bool>();
  node->any_name = (named.empty() && !is_closed) || named.size() > kPropertiesMax;
  if (node->any_name) {
    // One child serves arrays and objects alike; a node that allows both takes any JSON in either.
    const bool is_typed = more != schema.end() && (node->kinds & kArray) == 0 && named.empty();
    if (is_typed) node->child = TRY(add_at(*more, depth + 1));
    if (!is_typed && (node->kinds & kArray) != 0) node->child = kAny;
    return {};
  }
  std::vector<std::pair<std::string, int32_t>> entries;
  for (const auto& [name, value] : named.items()) {
    entries.emplace_back(dump_json(name), TRY(add_at(value, depth + 1)));
    TRY_OK(count_literal(entries.back().first));
  }
  std::sort(entries.begin(), entries.end());
  for (const auto& [name, child] : entries) {
    node->names.push_back(name);
    node->name_nodes.push_back(child);
  }
  for (const Json& name : required) {
    const auto at = std::lower_bound(node->names.begin(), node->names.end(), dump_json(name));
    node->required |= uint64_t{1} << (at - node->names.begin());
  }
  return {};
}

Status JsonSchema::count_literal(const std::string& text) {
  literal_bytes_ += text.size();
  if (literal_bytes_ > kLiteralBytesMax) {
    return invalid_argument(
        format("a schema with more than %zu bytes of names and enum values", kLiteralBytesMax));
  }
  return {};
}

}  // namespace quire
