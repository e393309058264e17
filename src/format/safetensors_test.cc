#include "format/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace quire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A file with this header and that many data bytes.
std::vector<std::byte> file_of(const std::string& header, size_t data_bytes) {
  std::vector<std::byte> file(8 + header.size() + data_bytes);
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof(length));
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

void expect_refused(const std::vector<std::byte>& file, const std::string& reason) {
  const Result<SafetensorsIndex> index = parse_safetensors(file, "x.safetensors");
  ASSERT_FALSE(index.ok()) << reason;
  EXPECT_EQ(index.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(index.error().message, StartsWith("x.safetensors: "));
  EXPECT_THAT(index.error().message, HasSubstr(reason));
}

void expect_header_refused(const std::string& header, size_t data_bytes,
                           const std::string& reason) {
  SCOPED_TRACE(header.substr(0, 200));
  expect_refused(file_of(header, data_bytes), reason);
}

TEST(Safetensors, ReadsTensorsInOrderOfOffset) {
  const std::string header = "{" + tensor("b", "BF16", "[2,3]", "[4,16]") + "," +
                             tensor("a", "F32", "[]", "[0,4]") +
                             R"(,"__metadata__":{"format":"pt"})" + "," +
                             tensor("none", "U8", "[0,5]", "[16,16]") + "}   ";
  const std::vector<std::byte> file = file_of(header, 16);
  const Result<SafetensorsIndex> index = parse_safetensors(file, "x");
  ASSERT_TRUE(index.ok()) << index.error().message;
  const std::vector<TensorEntry>& tensors = index.value().tensors;
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].bytes, 4);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].dtype, Dtype::bf16);
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(tensors[1].offset, static_cast<int64_t>(8 + header.size() + 4));
  EXPECT_EQ(tensors[1].bytes, 12);
  EXPECT_EQ(tensors[2].bytes, 0);
  EXPECT_EQ(describe(tensors[1]), "BF16 [2, 3]");
}

TEST(Safetensors, AnEmptyHeaderIsAFileWithoutTensors) {
  const Result<SafetensorsIndex> index = parse_safetensors(file_of("{}", 0), "x");
  ASSERT_TRUE(index.ok());
  EXPECT_TRUE(index.value().tensors.empty());
}

TEST(Safetensors, TheLengthOfTheHeaderMustFit) {
  expect_refused({}, "cannot hold a safetensors header");
  expect_refused(std::vector<std::byte>(7), "cannot hold a safetensors header");
  std::vector<std::byte> file = file_of("{}", 0);
  for (const uint64_t length : {uint64_t{3}, uint64_t{1000}, uint64_t{99'999'999}}) {
    std::memcpy(file.data(), &length, sizeof(length));
    expect_refused(file, "truncated?");
  }
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 63, UINT64_MAX}) {
    std::memcpy(file.data(), &length, sizeof(length));
    expect_refused(file, "expected at most 100000000");
  }
}

TEST(Safetensors, TheHeaderIsStrictJson) {
  expect_header_refused("", 0, "header");
  expect_header_refused("[]", 0, "not a JSON object");
  expect_header_refused(" {}", 0, "not a JSON object");
  expect_header_refused("{", 0, "not valid JSON");
  expect_header_refused("{} {}", 0, "not valid JSON");
  expect_header_refused("{\"a\xff\":1}", 0, "invalid UTF-8");
  const std::string one = tensor("a", "U8", "[1]", "[0,1]");
  expect_header_refused("{" + one + "," + one + "}", 1, "twice");
  expect_header_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1,
                        "twice");
  expect_header_refused(tensor("a", "U8", "[[1]]", "[0,1]").insert(0, "{") + "}", 1, "deeply");
}

TEST(Safetensors, AnEntryHasItsThreeFields) {
  expect_header_refused(R"({"a":1})", 0, "\"a\": its entry is not an object");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1]}})", 1, "lacks");
  expect_header_refused(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "lacks");
  expect_header_refused(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, "lacks");
  expect_header_refused(R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,1]}})", 1, "dtype");
  expect_header_refused("{" + tensor("", "U8", "[1]", "[0,1]") + "}", 1, "no name");
  expect_header_refused(R"({"__metadata__":{"a":1}})", 0, "an object of strings");
  expect_header_refused(R"({"__metadata__":[]})", 0, "an object of strings");
}

TEST(Safetensors, AnUnknownDtypeIsRefusedBeforeItsSizes) {
  for (const char* dtype : {"F4", "BOOL", "bf16", "F8_E5M2", "", "U64"}) {
    expect_header_refused("{" + tensor("a", dtype, "[1]", "[0,1]") + "}", 1, "unknown dtype");
  }
}

TEST(Safetensors, ShapesAreSizesWhoseProductFits) {
  for (const char* shape : {"[-1]", "[1.0]", "[\"1\"]", "[null]", "[-0]", "[1e0]",
                            "[18446744073709551615]", "[9223372036854775808]"}) {
    expect_header_refused("{" + tensor("a", "U8", shape, "[0,1]") + "}", 1, "not a size");
  }
  for (const char* shape : {"[9223372036854775807,2]", "[4294967296,4294967296]",
                            "[4294967296,4294967296,0]", "[0,4294967296,4294967296]"}) {
    expect_header_refused("{" + tensor("a", "U8", shape, "[0,1]") + "}", 1, "overflows");
  }
  // 2^62 elements fit, their 2^63 bytes do not.
  expect_header_refused("{" + tensor("a", "BF16", "[4611686018427387904]", "[0,1]") + "}", 1,
                        "overflows");
  expect_header_refused("{" + tensor("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", 1,
                        "at most 8 sizes");
  expect_header_refused("{" + tensor("a", "U8", "1", "[0,1]") + "}", 1, "not an array");
}

TEST(Safetensors, OffsetsAreARangeOfTheDataAndSpanTheShape) {
  for (const char* offsets : {"[0]", "[0,1,2]", "{}", "1"}) {
    expect_header_refused("{" + tensor("a", "U8", "[1]", offsets) + "}", 1, "two offsets");
  }
  for (const char* offsets : {"[-1,1]", "[0.0,1]", "[0,\"1\"]", "[0,18446744073709551615]"}) {
    expect_header_refused("{" + tensor("a", "U8", "[1]", offsets) + "}", 1, "not an offset");
  }
  expect_header_refused("{" + tensor("a", "U8", "[1]", "[1,0]") + "}", 1, "not a range");
  expect_header_refused("{" + tensor("a", "U8", "[2]", "[0,2]") + "}", 1, "not a range");
  expect_header_refused(
      "{" + tensor("a", "U8", "[1]", "[9223372036854775806,9223372036854775807]") + "}", 1,
      "not a range");
  expect_header_refused("{" + tensor("a", "BF16", "[1]", "[0,1]") + "}", 1, "span 1");
  expect_header_refused("{" + tensor("a", "U8", "[3]", "[0,4]") + "}", 4, "span 4");
}

TEST(Safetensors, TensorsCoverTheDataExactly) {
  const std::string first = tensor("a", "U8", "[4]", "[0,4]");
  expect_header_refused("{" + first + "}", 5, "cover 4 bytes of data, the file holds 5");
  expect_header_refused("{}", 1, "cover 0 bytes");
  expect_header_refused("{" + first + "," + tensor("b", "U8", "[2]", "[5,7]") + "}", 7,
                        "\"b\": its data begins at 5, expected 4: the data has a gap");
  expect_header_refused("{" + first + "," + tensor("b", "U8", "[4]", "[3,7]") + "}", 7,
                        "an overlap");
  expect_header_refused("{" + first + "," + tensor("b", "U8", "[4]", "[0,4]") + "}", 4,
                        "an overlap");
  expect_header_refused("{" + tensor("b", "U8", "[3]", "[1,4]") + "}", 4, "a gap");
  expect_header_refused("{" + first + "," + tensor("b", "U8", "[0]", "[2,2]") + "}", 4,
                        "an overlap");
}

TEST(Safetensors, EveryCutOfAFileIsRefused) {
  const std::vector<std::byte> file = file_of(
      "{" + tensor("a", "F32", "[2]", "[0,8]") + "," + tensor("b", "U8", "[3]", "[8,11]") + "}",
      11);
  ASSERT_TRUE(parse_safetensors(file, "x").ok());
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse_safetensors(std::span(file).first(size), "x").ok()) << size;
  }
}

TEST(Safetensors, ForeignNamesAreSafeInMessages) {
  expect_header_refused("{" + tensor("a\\u001b[31m\\u00e9", "U8", "[1]", "[1,0]") + "}", 1,
                        "a\\x1b[31m\\xc3\\xa9");
}

}  // namespace
}  // namespace quire
