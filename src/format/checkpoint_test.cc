#include "format/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/temp_folder.h"

namespace quire {
namespace {

using testing::HasSubstr;

// A folder of this test, empty at its start and gone at its end.
class CheckpointFolder : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << bytes;
  }

  // A file of U8 [1] tensors, the n-th holding 'a' + n.
  static std::string shard(const std::vector<std::string>& names) {
    std::string header = "{";
    std::string data;
    for (const std::string& name : names) {
      const std::string at = std::to_string(data.size());
      const std::string end = std::to_string(data.size() + 1);
      header += (data.empty() ? "\"" : ",\"") + name +
                R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + at + "," + end + "]}";
      data += static_cast<char>('a' + data.size());
    }
    header += "}";
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size() & 0xff);
    length[1] = static_cast<char>(header.size() >> 8);
    return length + header + data;
  }

  void write_index(const std::string& weight_map) {
    write("model.safetensors.index.json", R"({"metadata":{},"weight_map":)" + weight_map + "}");
  }

  void expect_refused(const std::string& reason, ErrorCode code = ErrorCode::invalid_argument) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(dir_);
    ASSERT_FALSE(checkpoint.ok()) << reason;
    EXPECT_EQ(checkpoint.error().code, code);
    EXPECT_THAT(checkpoint.error().message, HasSubstr(reason));
  }

  TempFolder folder_;
  const std::string& dir_ = folder_.path();
};

TEST_F(CheckpointFolder, OneFile) {
  write("model.safetensors", shard({"y", "x"}));
  const Result<Checkpoint> opened = Checkpoint::open(dir_);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Checkpoint& checkpoint = opened.value();
  ASSERT_NE(checkpoint.find("x"), nullptr);
  EXPECT_EQ(checkpoint.find("x")->data[0], std::byte{'b'});
  EXPECT_EQ(checkpoint.find("y")->data[0], std::byte{'a'});
  EXPECT_EQ(checkpoint.find("z"), nullptr);
  EXPECT_EQ(checkpoint.data_bytes(), 2);
  EXPECT_EQ(checkpoint.n_shards(), 1);
  EXPECT_EQ(checkpoint.shard_path(*checkpoint.find("x")), dir_ + "/model.safetensors");
}

TEST_F(CheckpointFolder, ShardsByTheirIndex) {
  write("a-1.safetensors", shard({"x", "y"}));
  write("a-2.safetensors", shard({"z"}));
  write_index(R"({"x":"a-1.safetensors","z":"a-2.safetensors","y":"a-1.safetensors"})");
  const Result<Checkpoint> opened = Checkpoint::open(dir_);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(opened.value().n_shards(), 2);
  EXPECT_EQ(opened.value().tensors().size(), 3U);
  EXPECT_EQ(opened.value().find("z")->data[0], std::byte{'a'});
}

TEST_F(CheckpointFolder, AFolderWithoutWeights) {
  expect_refused("model.safetensors", ErrorCode::not_found);
}

TEST_F(CheckpointFolder, AMissingShardIsNamed) {
  write("a-1.safetensors", shard({"x"}));
  write_index(R"({"x":"a-1.safetensors","z":"a-2.safetensors"})");
  expect_refused("a-2.safetensors", ErrorCode::not_found);
}

TEST_F(CheckpointFolder, ATensorMustBeWhereTheIndexSays) {
  write("a-1.safetensors", shard({"x"}));
  write("a-2.safetensors", shard({"z"}));
  write_index(R"({"x":"a-2.safetensors","z":"a-1.safetensors"})");
  expect_refused("tensor \"x\" is not in " + dir_ + "/a-2.safetensors");
  write_index(R"({"x":"a-1.safetensors","w":"a-2.safetensors"})");
  expect_refused("tensor \"w\" is not in " + dir_ + "/a-2.safetensors");
}

TEST_F(CheckpointFolder, ATensorOutsideTheIndexIsNamed) {
  write("a-1.safetensors", shard({"x", "extra"}));
  write_index(R"({"x":"a-1.safetensors"})");
  expect_refused("tensor \"extra\" is not in the index");
}

TEST_F(CheckpointFolder, ATensorInTwoShardsIsNamed) {
  write("a-1.safetensors", shard({"x", "y"}));
  write("a-2.safetensors", shard({"y"}));
  write_index(R"({"x":"a-1.safetensors","y":"a-2.safetensors"})");
  expect_refused("tensor \"y\" is also in");
}

TEST_F(CheckpointFolder, ShardNamesAreNeverPaths) {
  write("secret.safetensors", shard({"x"}));
  std::filesystem::create_directories(dir_ + "/sub");
  const std::string absolute = dir_ + "/secret.safetensors";
  for (const std::string& name :
       {std::string("../a.safetensors"), std::string("sub/a.safetensors"), absolute,
        std::string(".safetensors"), std::string("..safetensors"), std::string("secret.bin"),
        std::string("a\\\\b.safetensors"), std::string("a\\u0000b.safetensors"), std::string(),
        std::string(300, 'a') + ".safetensors"}) {
    SCOPED_TRACE(name);
    write_index(R"({"x":")" + name + "\"}");
    expect_refused("is not a file name");
  }
  write_index(R"({"x":7})");
  expect_refused("is not a file name");
}

TEST_F(CheckpointFolder, TheIndexIsStrict) {
  write("model.safetensors", shard({"x"}));
  write("model.safetensors.index.json", "{");
  expect_refused("not valid JSON");
  write("model.safetensors.index.json", "[]");
  expect_refused("weight_map");
  write_index("{}");
  expect_refused("weight_map");
  write_index(R"({"x":"model.safetensors","x":"model.safetensors"})");
  expect_refused("twice");
}

TEST_F(CheckpointFolder, ADamagedShardIsNamed) {
  std::string bytes = shard({"x"});
  bytes.pop_back();
  write("model.safetensors", bytes);
  expect_refused(dir_ + "/model.safetensors: tensor \"x\"");
}

}  // namespace
}  // namespace quire
