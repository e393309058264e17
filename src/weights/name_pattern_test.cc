#include "weights/name_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

bool matches(std::string_view pattern, std::string_view name) {
  const Result<NamePattern> parsed = NamePattern::parse(pattern);
  EXPECT_TRUE(parsed.ok()) << pattern;
  return parsed.ok() && parsed.value().matches(name);
}

TEST(NamePattern, PlainTextIsAWholeName) {
  EXPECT_TRUE(matches("lm_head", "lm_head"));
  EXPECT_FALSE(matches("lm_head", "lm_head.x"));
  EXPECT_FALSE(matches("lm_head", "x.lm_head"));
  EXPECT_FALSE(matches("lm.head", "lm_head"));
  EXPECT_FALSE(matches("", "a"));
}

TEST(NamePattern, ThePublishedIgnoreListOfKimi) {
  EXPECT_TRUE(matches("re:.*self_attn.*", "model.layers.3.self_attn.q_a_proj"));
  EXPECT_FALSE(matches("re:.*self_attn.*", "model.layers.3.mlp.gate_proj"));
  EXPECT_TRUE(matches("re:.*shared_experts.*", "model.layers.3.mlp.shared_experts.up_proj"));
  const std::string_view dense = "re:.*mlp\\.(gate|up|gate_up|down)_proj.*";
  EXPECT_TRUE(matches(dense, "model.layers.0.mlp.gate_proj"));
  EXPECT_TRUE(matches(dense, "model.layers.0.mlp.gate_up_proj"));
  EXPECT_TRUE(matches(dense, "model.layers.0.mlp.down_proj"));
  EXPECT_FALSE(matches(dense, "model.layers.1.mlp.experts.7.down_proj"));
  EXPECT_FALSE(matches(dense, "model.layers.0.mlp_gate_proj"));
}

TEST(NamePattern, ARegularExpressionMatchesFromTheStart) {
  EXPECT_TRUE(matches("re:model", "model.norm"));
  EXPECT_FALSE(matches("re:norm", "model.norm"));
  EXPECT_TRUE(matches("re:^model\\.norm$", "model.norm"));
  EXPECT_FALSE(matches("re:^model\\.norm$", "model.norms"));
  EXPECT_TRUE(matches("re:m.del$", "model"));
}

TEST(NamePattern, WhatIsNotUnderstoodIsRefused) {
  for (const char* text : {"re:a*", "re:a+", "re:[ab]", "re:(a(b))", "re:(ab", "re:\\d", "re:a|b",
                           "re:(a|b)*", "re:a{2}", "re:.+", "re:a$b", "re:\\"}) {
    const Result<NamePattern> parsed = NamePattern::parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::unsupported) << text;
  }
  EXPECT_FALSE(NamePattern::parse("re:(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)(a|b)").ok());
  EXPECT_FALSE(NamePattern::parse(std::string(513, 'a')).ok());
}

TEST(NamePattern, ManyRunsCostNoMoreThanPatternTimesName) {
  std::string text = "re:";
  for (int i = 0; i < 80; ++i) text += ".*a";
  text += "$";
  EXPECT_FALSE(matches(text, std::string(4000, 'a') + "b"));
  EXPECT_TRUE(matches(text, std::string(4000, 'a')));
}

}  // namespace
}  // namespace quire
