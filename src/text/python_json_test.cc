#include "text/python_json.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace quire {
namespace {

std::string rewrite(std::string_view text) { return python_json(parse_json(text).value()); }

TEST(PythonJson, SeparatesAsPythonDoes) {
  EXPECT_EQ(rewrite(R"({"a":1,"b":[1,"x",null,true],"c":{}})"),
            R"({"a": 1, "b": [1, "x", null, true], "c": {}})");
  EXPECT_EQ(rewrite("[]"), "[]");
  EXPECT_EQ(rewrite("[[],[{}]]"), "[[], [{}]]");
}

TEST(PythonJson, KeepsKeyOrderAndNonAscii) {
  EXPECT_EQ(rewrite("{\"z\":\"\xe5\x8c\x97\",\"a\":\"<&>\\u0001\\n\\\"\"}"),
            "{\"z\": \"\xe5\x8c\x97\", \"a\": \"<&>\\u0001\\n\\\"\"}");
}

// Right values: Python 3.11's repr().
TEST(PythonRepr, WritesNumbersAsPythonDoes) {
  EXPECT_EQ(python_repr(0.0), "0.0");
  EXPECT_EQ(python_repr(-0.0), "-0.0");
  EXPECT_EQ(python_repr(1.0), "1.0");
  EXPECT_EQ(python_repr(-2.5), "-2.5");
  EXPECT_EQ(python_repr(0.1), "0.1");
  EXPECT_EQ(python_repr(100.0), "100.0");
  EXPECT_EQ(python_repr(123456.789), "123456.789");
  EXPECT_EQ(python_repr(0.0001), "0.0001");
  EXPECT_EQ(python_repr(0.00001), "1e-05");
  EXPECT_EQ(python_repr(1e15), "1000000000000000.0");
  EXPECT_EQ(python_repr(9007199254740993.0), "9007199254740992.0");
  EXPECT_EQ(python_repr(1e16), "1e+16");
  EXPECT_EQ(python_repr(1.5e300), "1.5e+300");
  EXPECT_EQ(python_repr(5e-324), "5e-324");
}

}  // namespace
}  // namespace quire
