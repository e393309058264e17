#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire {
namespace {

TEST(ApiKeys, WithoutKeysEverybodyIsOneTenant) {
  const ApiKeys keys = ApiKeys::create().value();
  EXPECT_TRUE(keys.is_open());
  EXPECT_EQ(keys.authorize(std::nullopt), keys.authorize("Bearer anything"));
  EXPECT_TRUE(keys.authorize(std::nullopt).has_value());
}

TEST(ApiKeys, RefusesWhatIsNoKey) {
  ApiKeys keys = ApiKeys::create().value();
  ASSERT_TRUE(keys.add("a", "key-one").ok());
  EXPECT_TRUE(keys.authorize("Bearer key-one").has_value());
  for (const char* header : {"", "key-one", "Bearer", "Bearer ", "Bearer key-on", "Bearer key-onee",
                             "bearer key-one", "Basic key-one", "Bearer  key-one"}) {
    EXPECT_FALSE(keys.authorize(header).has_value()) << header;
  }
  EXPECT_FALSE(keys.authorize(std::nullopt).has_value());
}

TEST(ApiKeys, TenantsHaveSaltsOfTheirOwnAndKeysOfATenantShareOne) {
  ApiKeys keys = ApiKeys::create().value();
  ASSERT_TRUE(keys.add_file("# a comment\n\nalice k1\nalice k2\r\nbob\tk3\n").ok());
  EXPECT_EQ(keys.authorize("Bearer k1"), keys.authorize("Bearer k2"));
  EXPECT_NE(keys.authorize("Bearer k1"), keys.authorize("Bearer k3"));
  // The secret is the process's: nobody can compute a salt from a name.
  ApiKeys others = ApiKeys::create().value();
  ASSERT_TRUE(others.add("alice", "k1").ok());
  EXPECT_NE(keys.authorize("Bearer k1"), others.authorize("Bearer k1"));
}

TEST(ApiKeys, NamesTheBadLineAndNeverTheKey) {
  const std::string long_key(ApiKeys::kKeyBytesMax + 1, 'k');
  const std::vector<std::string> texts = {"alice", "a secret extra", "a secret\nb secret",
                                          "a " + long_key};
  for (const std::string& text : texts) {
    ApiKeys keys = ApiKeys::create().value();
    const Status added = keys.add_file(text);
    ASSERT_FALSE(added.ok()) << text;
    EXPECT_NE(added.error().message.find("line "), std::string::npos);
    EXPECT_EQ(added.error().message.find("secret"), std::string::npos) << added.error().message;
  }
}

}  // namespace
}  // namespace quire
