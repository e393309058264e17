#include "base/log.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace quire {
namespace {

TEST(Log, OneEventIsOneLineWhateverItCarries) {
  testing::internal::CaptureStderr();
  {
    Log log(LogLevel::info, LogFormat::text);
    log.info("first\nforged [info] line\x1b[31m");
    log.debug("not shown");
  }
  const std::string out = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
  EXPECT_EQ(out.find("not shown"), std::string::npos);
}

TEST(Log, JsonLinesParse) {
  testing::internal::CaptureStderr();
  {
    Log log(LogLevel::info, LogFormat::json);
    log.warning("a \"quoted\"\nmessage");
  }
  const Result<Json> line = parse_json(testing::internal::GetCapturedStderr());
  ASSERT_TRUE(line.ok());
  EXPECT_EQ(line.value()["level"], "warning");
  EXPECT_EQ(line.value()["message"], "a \"quoted\"\nmessage");
}

}  // namespace
}  // namespace quire
