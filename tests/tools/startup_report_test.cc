#include "tools/startup_report.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace quire {
namespace {

TEST(StartupReport, NamesItsStepsInOrder) {
  StartupReport report;
  report.end_step("weights", nullptr, 1000);
  report.end_step("pool", nullptr);
  const Json json = report.json();
  ASSERT_EQ(json["steps"].size(), 2U);
  EXPECT_EQ(json["steps"][0]["name"], "weights");
  EXPECT_EQ(json["steps"][0]["bytes_read"], 1000);
  EXPECT_EQ(json["steps"][1]["name"], "pool");
  // No backend, no line of its memory.
  ASSERT_EQ(report.lines().size(), 1U);
  EXPECT_LT(report.lines()[0].find("weights"), report.lines()[0].find("pool"));
  EXPECT_FALSE(json.contains("device_bytes_total"));
}

TEST(StartupReport, KeepsWhatAnOperatorShouldKnow) {
  StartupReport report;
  EXPECT_TRUE(report.warnings().empty());
  report.warn("steps are slower");
  ASSERT_EQ(report.warnings().size(), 1U);
  EXPECT_EQ(report.json()["warnings"][0], "steps are slower");
}

}  // namespace
}  // namespace quire
