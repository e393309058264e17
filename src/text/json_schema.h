// JsonSchema: what a tool's arguments may look like, compiled for text/json_machine.h.
//
// A subset of JSON Schema, each keyword of which only narrows: type, properties, required,
// additionalProperties, items, enum, const. What else a schema says ($ref, anyOf, patterns, ranges)
// is not enforced: there any JSON is let through. An object with named properties takes those names
// alone, even where additionalProperties would allow more.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/result.h"

namespace quire {

class JsonSchema {
 public:
  static constexpr size_t kNodesMax = 4096;
  static constexpr size_t kLiteralBytesMax = size_t{64} << 10;  // of enums and names, together
  static constexpr size_t kPropertiesMax = 64;                  // of one object; more: any names
  static constexpr int kDepthMax = 16;                          // deeper: any JSON

  // The kinds of value a node allows, as bits.
  enum : uint32_t { kObject = 1, kArray = 2, kString = 4, kInteger = 8, kNumber = 16 };

  // Texts a value or a name may be, sorted bytewise, none twice.
  using Literals = std::vector<std::string>;

  struct Node {
    uint32_t kinds = 0;  // besides `literals`
    Literals literals;   // whole values: null, true, false, or the members of an enum
    // Of an object: the quoted names, sorted; empty with `any_name` when every name will do.
    Literals names;
    std::vector<int32_t> name_nodes;  // [names]
    uint64_t required = 0;            // bit i: names[i] must be there
    bool any_name = true;
    int32_t child = 0;  // node of an array's items, or of the values behind any name
  };

  // Node 0 allows any JSON.
  static constexpr int32_t kAny = 0;

  JsonSchema();
  // Adds the schema of a value and gives its node. Errors: invalid_argument, over a bound or where
  // a keyword above has the wrong type.
  Result<int32_t> add(const Json& schema);
  // The same for a function's parameters: always an object; null or absent means any object.
  Result<int32_t> add_parameters(const Json& schema);

  const Node& node(int32_t index) const { return nodes_[static_cast<size_t>(index)]; }

 private:
  Result<int32_t> add_at(const Json& schema, int depth);
  Status read_kinds(const Json& schema, Node* node) const;
  Status read_values(const Json& values, Node* node);
  Status read_object(const Json& schema, int depth, Node* node);
  Status count_literal(const std::string& text);

  std::vector<Node> nodes_;
  size_t literal_bytes_ = 0;
};

}  // namespace quire
