#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/mapped_file.h"
#include "base/temp_folder.h"

namespace quire {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(OutputFile, HasItsNameOnlyWhenItIsFinished) {
  const TempFolder folder;
  const std::string path = folder / "file";
  {
    const OutputFile dropped = OutputFile::create(path, 4).value();
    ASSERT_TRUE(dropped.write_at(0, bytes_of("gone")).ok());
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  OutputFile file = OutputFile::create(path, 8).value();
  ASSERT_TRUE(file.write_at(5, bytes_of("abc")).ok());
  ASSERT_TRUE(file.write_at(0, bytes_of("12345")).ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE(file.finish().ok());
  EXPECT_EQ(read_text_file(path, 100).value(), "12345abc");
  ASSERT_TRUE(write_text_file(path, "short").ok());
  EXPECT_EQ(read_text_file(path, 100).value(), "short");
}

TEST(OutputFile, NamesWhatCannotBeWritten) {
  const auto made = OutputFile::create("/no/such/folder/file", 1);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::unavailable);
  EXPECT_THAT(made.error().message, testing::HasSubstr("/no/such/folder/file"));
}

}  // namespace
}  // namespace quire
