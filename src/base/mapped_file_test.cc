#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/temp_folder.h"

namespace quire {
namespace {

class MappedFileTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    const std::string path = folder_ / name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  TempFolder folder_;
};

TEST_F(MappedFileTest, MapsTheWholeFile) {
  const Result<MappedFile> file = MappedFile::open(write("mapped", "quire"));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file.value().bytes().size(), 5U);
  EXPECT_EQ(file.value().bytes()[0], std::byte{'q'});
}

TEST_F(MappedFileTest, AnEmptyFileHasNoBytes) {
  const Result<MappedFile> file = MappedFile::open(write("empty", ""));
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file.value().bytes().empty());
}

TEST_F(MappedFileTest, SaysWhatIsNotThereOrNotAFile) {
  const Result<MappedFile> absent = MappedFile::open("/nowhere/at/all");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::not_found);
  EXPECT_NE(absent.error().message.find("/nowhere/at/all"), std::string::npos);
  const Result<MappedFile> folder = MappedFile::open(folder_.path());
  ASSERT_FALSE(folder.ok());
  EXPECT_EQ(folder.error().code, ErrorCode::invalid_argument);
}

TEST_F(MappedFileTest, ReadsSmallTextAndRefusesMore) {
  const std::string path = write("text", "12345");
  EXPECT_EQ(read_text_file(path, 5).value(), "12345");
  EXPECT_FALSE(read_text_file(path, 4).ok());
}

}  // namespace
}  // namespace quire
