#include "text/typescript_declaration.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace quire {
namespace {

// The declaration of one function `f` with these parameters, without its frame; "refused" on error.
std::string declare(const std::string& parameters) {
  const std::string tools =
      R"([{"type":"function","function":{"name":"f","parameters":)" + parameters + "}}]";
  const auto out = typescript_declaration(parse_json(tools).value());
  if (!out.ok()) return "refused";
  const std::string head = "# Tools\n\n## functions\nnamespace functions {\n";
  const std::string tail = "\n}\n";
  EXPECT_TRUE(out.value().starts_with(head) && out.value().ends_with(tail)) << out.value();
  return out.value().substr(head.size(), out.value().size() - head.size() - tail.size());
}

TEST(TypescriptDeclaration, MatchesThePublishersCases) {
  std::ifstream lines(std::string(QUIRE_SOURCE_DIR) +
                      "/../shared/data/kimi/tool_declarations.jsonl");
  if (!lines) GTEST_SKIP() << "no tool declarations in ../shared/data";
  std::string line;
  int n = 0;
  while (std::getline(lines, line)) {
    const Json value = parse_json(line).value();
    const auto out = typescript_declaration(value["tools"]);
    ASSERT_TRUE(out.ok()) << line;
    EXPECT_EQ(out.value(), value["declaration"].get<std::string>());
    ++n;
  }
  EXPECT_GE(n, 9);
}

TEST(TypescriptDeclaration, DescribesFieldsRequiredFirst) {
  EXPECT_EQ(declare(R"({"type":"object","properties":{
      "unit":{"enum":["C","F"]},
      "days":{"type":"integer","minimum":1,"default":3},
      "city":{"type":"string","description":"Name\n\nof it"}},"required":["city"]})"),
            "type f = (_: {\n  // Name\n\n  // of it\n  city: string,\n  // minimum: 1\n"
            "  // Default: 3\n  days?: number,\n  unit?: \"C\" | \"F\"\n}) => any;");
}

TEST(TypescriptDeclaration, NestsObjectsAndArrays) {
  EXPECT_EQ(declare(R"({"properties":{"a":{"type":"array","items":{"type":"string",
      "description":"one"}},"b":{"type":"object","properties":{"c":{}},
      "additionalProperties":{"type":"number"}}}})"),
            "type f = (_: {\n  a?: Array<\n    // one\n    string\n  >,\n  b?: {\n    c?: any,\n"
            "    [k: string]: number\n  }\n}) => any;");
}

TEST(TypescriptDeclaration, WritesValuesAsPythonDoes) {
  EXPECT_EQ(
      declare(R"({"properties":{"a":{"enum":["q\"",1.0,null,true]},
      "b":{"type":"boolean","default":false},"c":{"type":"number","maximum":1e20}}})"),
      "type f = (_: {\n  a?: \"q\"\" | 1.0 | None | True,\n  // Default: False\n  b?: boolean,\n"
      "  // maximum: 1e+20\n  c?: number\n}) => any;");
}

TEST(TypescriptDeclaration, NamesDefinitionsAndItself) {
  EXPECT_EQ(declare(R"({"$defs":{"N":{"type":"string","description":"d"}},"properties":{
      "z":{"$ref":"#"},"a":{"$ref":"#/$defs/N"}},"required":["z"]})"),
            "interface parameters {\n  a?: N,\n  z: parameters\n}\n// d\ninterface N string\n"
            "type f = (_: parameters) => any;");
}

TEST(TypescriptDeclaration, RefusesWhatThePublisherRefuses) {
  EXPECT_EQ(declare(R"({"properties":{"a":{"oneOf":[{"type":"string"}]}}})"), "refused");
  EXPECT_EQ(declare(R"({"properties":{"a":{"$ref":"#/$defs/none"}}})"), "refused");
  EXPECT_EQ(declare(R"({"properties":{"a":{"type":["string","nonsense"]}}})"), "refused");
  EXPECT_EQ(declare(R"({"properties":{"a":{"type":"string","enum":[1]}}})"), "refused");
  EXPECT_EQ(declare(R"({"$defs":{"A":true},"properties":{}})"), "refused");
}

TEST(TypescriptDeclaration, IsEmptyWithoutFunctions) {
  EXPECT_EQ(typescript_declaration(Json::array()).value(), "");
}

TEST(SortedByKey, SortsAtEveryDepth) {
  const Json value = parse_json(R"({"b":[{"z":1,"a":2}],"a":{"d":1,"c":2}})").value();
  EXPECT_EQ(dump_json(sorted_by_key(value)), R"({"a":{"c":2,"d":1},"b":[{"a":2,"z":1}]})");
}

}  // namespace
}  // namespace quire
