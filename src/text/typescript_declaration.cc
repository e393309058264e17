#include "text/typescript_declaration.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "text/python_json.h"

namespace quire {

namespace {

constexpr std::string_view kIndent = "  ";
constexpr std::string_view kBetweenFields = ",\n";

// A scalar as Python's str() writes it.
Result<std::string> python_str(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return std::string("None");
  if (value.is_boolean()) return std::string(value.get<bool>() ? "True" : "False");
  if (value.is_number()) return python_json(value);
  return invalid_argument("expected a single value, found an array or object");
}

// What Python counts as true.
bool is_truthy(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() != 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

// "// " before each line; an empty line stays empty, without indent.
std::string comment_lines(std::string_view text, std::string_view indent) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    if (!line.empty()) {
      out += indent;
      out += "// ";
      out += line;
    }
    if (end == std::string_view::npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

Result<std::string> description_of(const Json& schema) {
  const auto found = schema.find("description");
  if (found == schema.end() || !is_truthy(*found)) return std::string();
  if (!found->is_string()) return invalid_argument("description: expected a string");
  return found->get<std::string>();
}

// What a schema turns out to be; the first that applies, in this order.
enum class Shape { any, null, reference, any_of, enumeration, union_of, object, array, scalar };

Result<Shape> shape_of(const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>() ? Shape::any : Shape::null;
  if (!schema.is_object()) return invalid_argument("expected a schema");
  if (schema.contains("$ref")) return Shape::reference;
  if (schema.contains("anyOf")) return Shape::any_of;
  if (schema.contains("enum")) return Shape::enumeration;
  const auto type = schema.find("type");
  if (type == schema.end()) {
    if (schema.empty()) return Shape::any;
    return invalid_argument("a schema without type, enum, anyOf or $ref");
  }
  if (type->is_array()) return Shape::union_of;
  if (!type->is_string()) return invalid_argument("type: expected a string");
  if (*type == "object") return Shape::object;
  if (*type == "array") return Shape::array;
  return Shape::scalar;
}

// The constraints that show as a comment, in order of their names.
std::span<const std::string_view> constraint_keys(Shape shape, std::string_view type) {
  static constexpr std::array<std::string_view, 3> kOfString = {"maxLength", "minLength",
                                                                "pattern"};
  static constexpr std::array<std::string_view, 2> kOfNumber = {"maximum", "minimum"};
  static constexpr std::array<std::string_view, 2> kOfArray = {"maxItems", "minItems"};
  if (shape == Shape::array) return kOfArray;
  if (shape != Shape::scalar) return {};
  if (type == "string") return kOfString;
  if (type == "number" || type == "integer") return kOfNumber;
  return {};
}

// Writes one function. Two passes over its schema, as the original makes them: `collect` learns the
// definitions and whether anything refers to the whole, then the writing can name them.
class FunctionWriter {
 public:
  Result<std::string> write(const Json& function);

 private:
  Status collect(const Json& schema);
  Status collect_object(const Json& schema);
  Status check_reference(const Json& schema);
  Json* definition(std::string_view name);

  Result<std::string> docs(const Json& schema, const std::string& indent) const;
  Result<std::string> type(const Json& schema, const std::string& indent) const;
  Result<std::string> object(const Json& schema, const std::string& indent) const;
  Result<std::string> array(const Json& schema, const std::string& indent) const;
  Result<std::string> any_of(const Json& schema, const std::string& indent) const;
  Result<std::string> field(const std::string& name, const Json& schema, bool is_optional,
                            const std::string& indent) const;
  Result<std::string> whole_as_interface(const Json& parameters) const;
  Result<std::string> interfaces(const Json& parameters);

  std::vector<std::pair<std::string, Json>> definitions_;  // in order of registration
  bool refers_to_whole_ = false;
};

bool is_required(const Json& schema, const std::string& name) {
  const auto required = schema.find("required");
  if (required == schema.end() || !required->is_array()) return false;
  return std::find(required->begin(), required->end(), Json(name)) != required->end();
}

// The definition of this name, or null.
Json* FunctionWriter::definition(std::string_view name) {
  for (auto& [known, schema] : definitions_) {
    if (known == name) return &schema;
  }
  return nullptr;
}

Status FunctionWriter::check_reference(const Json& schema) {
  if (!schema["$ref"].is_string()) return invalid_argument("$ref: expected a string");
  const auto& target = schema["$ref"].get_ref<const std::string&>();
  if (target == "#") {
    refers_to_whole_ = true;
    return {};
  }
  if (!target.starts_with("#/$defs/")) return invalid_argument("$ref: unsupported form");
  const std::string name = target.substr(target.rfind('/') + 1);
  if (definition(name) == nullptr) return invalid_argument("$ref: no definition of that name");
  return {};
}

Status check_enum(const Json& schema) {
  const Json& values = schema["enum"];
  if (!values.is_array()) return invalid_argument("enum: expected an array");
  if (!schema.contains("type")) return {};
  Json type = schema["type"];
  if (type.is_array()) {
    const bool has_null = std::find(type.begin(), type.end(), Json("null")) != type.end();
    if (type.empty() || type.size() > 2 || (type.size() == 2 && !has_null)) {
      return invalid_argument("enum: a type that is not supported");
    }
    const bool is_second = type.size() == 2 && type[0] == "null";
    const Json chosen = type[is_second ? 1 : 0];
    type = chosen;
  }
  for (const Json& value : values) {
    if (value.is_null()) continue;
    // In Python a bool is an int.
    const bool is_int = value.is_number_integer() || value.is_boolean();
    const bool fits = type == "string"    ? value.is_string()
                      : type == "number"  ? is_int || value.is_number()
                      : type == "integer" ? is_int
                      : type == "boolean" ? value.is_boolean()
                                          : true;
    if (!fits) return invalid_argument("enum: a value that is not of the type");
  }
  return {};
}

Status FunctionWriter::collect_object(const Json& schema) {
  const auto definitions = schema.find("$defs");
  if (definitions != schema.end() && is_truthy(*definitions)) {
    if (!definitions->is_object()) return invalid_argument("$defs: expected an object");
    for (const auto& [name, value] : definitions->items()) {
      if (Json* known = definition(name)) {
        *known = value;
      } else {
        definitions_.emplace_back(name, value);
      }
    }
  }
  const auto more = schema.find("additionalProperties");
  if (more != schema.end()) {
    if (more->is_object()) TRY_OK(collect(*more));
    if (!more->is_object() && !more->is_boolean() && !more->is_null()) {
      return invalid_argument("additionalProperties: expected a schema, true or false");
    }
  }
  const auto properties = schema.find("properties");
  if (properties == schema.end()) return {};
  if (!properties->is_object()) return invalid_argument("properties: expected an object");
  for (const auto& [name, value] : properties->items()) TRY_OK(collect(value));
  return {};
}

Status FunctionWriter::collect(const Json& schema) {
  switch (TRY(shape_of(schema))) {
    case Shape::reference:
      return check_reference(schema);
    case Shape::any_of:
      if (!schema["anyOf"].is_array()) return invalid_argument("anyOf: expected an array");
      for (const Json& one : schema["anyOf"]) TRY_OK(collect(one));
      return {};
    case Shape::enumeration:
      return check_enum(schema);
    case Shape::object:
      return collect_object(schema);
    case Shape::array:
      if (schema.contains("items") && is_truthy(schema["items"])) return collect(schema["items"]);
      return {};
    case Shape::any:
    case Shape::null:
    case Shape::union_of:
    case Shape::scalar:
      return {};
  }
  return {};
}

Result<std::string> FunctionWriter::docs(const Json& schema, const std::string& indent) const {
  const Shape shape = TRY(shape_of(schema));
  if (shape == Shape::null || schema.is_boolean()) return std::string();
  std::string out;
  const std::string description = TRY(description_of(schema));
  if (!description.empty()) out += comment_lines(description, indent) + "\n";
  const std::string type = shape == Shape::scalar ? schema["type"].get<std::string>() : "";
  std::string constraints;
  for (const std::string_view key : constraint_keys(shape, type)) {
    const auto found = schema.find(std::string(key));
    if (found == schema.end()) continue;
    if (!constraints.empty()) constraints += ", ";
    constraints += std::string(key) + ": " + TRY(python_str(*found));
  }
  if (!constraints.empty()) out += indent + "// " + constraints + "\n";
  return out;
}

Result<std::string> joined_types(const Json& types) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames = {{
      {"string", "string"},
      {"number", "number"},
      {"integer", "number"},
      {"boolean", "boolean"},
      {"null", "null"},
      {"object", "{}"},
      {"array", "Array<any>"},
  }};
  std::string out;
  for (const Json& type : types) {
    const auto* name = std::find_if(kNames.begin(), kNames.end(),
                                    [&](const auto& entry) { return type == entry.first; });
    if (name == kNames.end()) return invalid_argument("type: not a JSON type");
    if (!out.empty()) out += " | ";
    out += name->second;
  }
  return out;
}

Result<std::string> joined_values(const Json& values) {
  std::string out;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string text = TRY(python_str(values[i]));
    if (i > 0) out += " | ";
    out += values[i].is_string() ? "\"" + text + "\"" : text;
  }
  return out;
}

std::string reference_name(const Json& schema) {
  const auto& target = schema["$ref"].get_ref<const std::string&>();
  return target == "#" ? "parameters" : target.substr(target.rfind('/') + 1);
}

Result<std::string> FunctionWriter::type(const Json& schema, const std::string& indent) const {
  switch (TRY(shape_of(schema))) {
    case Shape::any:
      return std::string("any");
    case Shape::null:
      return std::string("null");
    case Shape::reference:
      return reference_name(schema);
    case Shape::any_of:
      return any_of(schema, indent);
    case Shape::enumeration:
      return joined_values(schema["enum"]);
    case Shape::union_of:
      return joined_types(schema["type"]);
    case Shape::object:
      return object(schema, indent);
    case Shape::array:
      return array(schema, indent);
    case Shape::scalar:
      return schema["type"] == "integer" ? std::string("number")
                                         : schema["type"].get<std::string>();
  }
  return std::string();
}

Result<std::string> FunctionWriter::any_of(const Json& schema, const std::string& indent) const {
  const Json& types = schema["anyOf"];
  std::string out;
  for (size_t i = 0; i < types.size(); ++i) {
    if (i > 0) out += " | ";
    out += TRY(type(types[i], indent));
  }
  return out;
}

Result<std::string> FunctionWriter::array(const Json& schema, const std::string& indent) const {
  const bool has_items = schema.contains("items") && is_truthy(schema["items"]);
  const Json items = has_items ? schema["items"] : Json::object();
  const std::string inner = indent + std::string(kIndent);
  const std::string item_docs = TRY(docs(items, inner));
  if (item_docs.empty()) {
    const std::string item = TRY(type(items, indent));
    return "Array<" + item + ">";
  }
  const std::string item = TRY(type(items, inner));
  return "Array<\n" + item_docs + inner + item + "\n" + indent + ">";
}

Result<std::string> FunctionWriter::field(const std::string& name, const Json& schema,
                                          bool is_optional, const std::string& indent) const {
  std::string out = TRY(docs(schema, indent));
  const auto standard = schema.is_object() ? schema.find("default") : schema.end();
  if (schema.is_object() && standard != schema.end() && !standard->is_null()) {
    const bool is_bare = standard->is_number() || standard->is_boolean();
    const std::string text = is_bare ? TRY(python_str(*standard)) : python_json(*standard);
    out += indent + "// Default: " + text + "\n";
  }
  const std::string written = TRY(type(schema, indent));
  return out + indent + name + (is_optional ? "?: " : ": ") + written;
}

Result<std::string> FunctionWriter::object(const Json& schema, const std::string& indent) const {
  const std::string inner = indent + std::string(kIndent);
  const Json properties = schema.value("properties", Json::object());
  std::string fields;
  const auto append = [&](const std::string& text) {
    if (!fields.empty()) fields += kBetweenFields;
    fields += text;
  };
  for (const bool is_optional : {false, true}) {
    for (const auto& [name, value] : properties.items()) {
      if (is_required(schema, name) == is_optional) continue;
      append(TRY(field(name, value, is_optional, inner)));
    }
  }
  const auto more = schema.find("additionalProperties");
  if (more != schema.end() && !more->is_null()) {
    const std::string value = !more->is_boolean() ? TRY(type(*more, inner))
                              : more->get<bool>() ? "any"
                                                  : "never";
    append(inner + "[k: string]: " + value);
  }
  if (fields.empty()) return std::string("{}");
  return "{\n" + fields + "\n" + indent + "}";
}

// For a schema that refers to itself: its properties by name, required or not, and nothing more.
Result<std::string> FunctionWriter::whole_as_interface(const Json& parameters) const {
  const Json properties = parameters.value("properties", Json::object());
  std::string fields;
  for (const auto& [name, value] : properties.items()) {
    if (!fields.empty()) fields += kBetweenFields;
    fields += TRY(field(name, value, !is_required(parameters, name), std::string(kIndent)));
  }
  if (!fields.empty()) fields = "\n" + fields + "\n";
  return "interface parameters {" + fields + "}";
}

Result<std::string> FunctionWriter::interfaces(const Json& parameters) {
  std::string out;
  if (refers_to_whole_) out = TRY(whole_as_interface(parameters));
  const auto definitions = definitions_;  // those found below get no interface of their own
  for (const auto& [name, schema] : definitions) {
    if (!schema.is_object()) return invalid_argument("$defs: expected schemas");
    TRY_OK(collect(schema));
    const std::string body = TRY(type(schema, ""));
    const std::string description = TRY(description_of(schema));
    if (!out.empty()) out += "\n";
    if (!description.empty()) out += comment_lines(description, "") + "\n";
    out += "interface " + name + " " + body;
  }
  return out;
}

Result<std::string> FunctionWriter::write(const Json& function) {
  Json parameters = function.value("parameters", Json::object());
  if (!is_truthy(parameters)) parameters = Json::object();
  if (!parameters.is_object()) return invalid_argument("parameters: expected an object");
  TRY_OK(collect_object(parameters));
  const bool by_name = refers_to_whole_;
  const std::string head = TRY(interfaces(parameters));
  const std::string description = TRY(description_of(function));
  const std::string argument = by_name ? std::string("parameters") : TRY(object(parameters, ""));
  std::string out = head;
  if (!head.empty()) out += "\n";
  if (!description.empty()) {
    const std::string lines = comment_lines(description, "");
    out += lines + (lines.empty() ? "" : "\n");
  }
  const std::string name = TRY(python_str(function.value("name", Json("function"))));
  return out + "type " + name + " = (_: " + argument + ") => any;";
}

}  // namespace

Json sorted_by_key(const Json& value) {
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& item : value) out.push_back(sorted_by_key(item));
    return out;
  }
  if (!value.is_object()) return value;
  std::map<std::string, const Json*> sorted;
  for (const auto& [key, member] : value.items()) sorted.emplace(key, &member);
  Json out = Json::object();
  for (const auto& [key, member] : sorted) out[key] = sorted_by_key(*member);
  return out;
}

Result<std::string> typescript_declaration(const Json& tools) {
  if (!tools.is_array()) return invalid_argument("tools: expected an array");
  std::string functions;
  for (const Json& tool : sorted_by_key(tools)) {
    if (!tool.is_object() || tool.value("type", Json()) != "function") continue;
    const Json function = tool.value("function", Json::object());
    if (!function.is_object()) return invalid_argument("function: expected an object");
    if (function.empty()) continue;
    FunctionWriter writer;
    functions += TRY(writer.write(function)) + "\n";
  }
  if (functions.empty()) return functions;
  return "# Tools\n\n## functions\nnamespace functions {\n" + functions + "}\n";
}

}  // namespace quire
