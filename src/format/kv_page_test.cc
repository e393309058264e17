#include "format/kv_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "format/page_seal.h"
#include "tensor/dtype.h"

namespace quire {
namespace {

// The sizes of docs/formats/kv_page.md.
TEST(KvPage, KimiPagesHaveTheDocumentedSizes) {
  const KvPageLayout bf16 = make_mla_layout(KvFormat::bf16, 61, 512, 64);
  EXPECT_EQ(bf16.blocks[1].offset, 73'728);
  EXPECT_EQ(bf16.page_bytes, 4'497'408);
  const KvPageLayout fp8 = make_mla_layout(KvFormat::fp8_e4m3_584, 61, 512, 64);
  EXPECT_EQ(fp8.blocks[60].bytes, 37'376);
  EXPECT_EQ(fp8.page_bytes, 2'279'936);
  EXPECT_EQ(fp8.scale_offset(0), 36'864);
  EXPECT_EQ(fp8.scale_offset(63) + 8, 37'376);
  EXPECT_EQ(bf16.row_offset(1), 1'152);
}

TEST(KvPage, BlocksAreAlignedAndDoNotMeet) {
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    const KvPageLayout layout = make_mla_layout(format, 5, 24, 6, 7);
    int64_t end = 0;
    for (const KvBlock& block : layout.blocks) {
      EXPECT_EQ(block.offset % kKvBlockAlignment, 0);
      EXPECT_GE(block.offset, end);
      end = block.offset + block.bytes;
    }
    EXPECT_LE(end, layout.page_bytes);
    EXPECT_EQ(layout.page_bytes % kKvBlockAlignment, 0);
  }
}

TEST(KvPage, KeyScalesByHand) {
  EXPECT_EQ(key_scale(127).of_integer, 1);
  EXPECT_EQ(key_scale(127).of_value, 1);
  EXPECT_EQ(key_scale(63.5F).of_integer, 0.5F);
  EXPECT_EQ(key_scale(63.5F).of_value, 2);
  for (const float nothing : {0.0F, 0x1p-133F, 0x1p-100F}) {
    EXPECT_EQ(key_scale(nothing).of_integer, 0x1p-100F / 127);
    EXPECT_EQ(key_scale(nothing).of_value, 127 / 0x1p-100F);
  }
  EXPECT_GT(key_scale(0x1.fep127F).of_value, 0);  // the largest bfloat16
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(key_scale(bad).of_integer), 0x7fc00000U);
    EXPECT_EQ(key_scale(bad).of_value, 0);
  }
}

// At worst half of what e4m3 may lose, whatever the key (docs/decisions/0009): 8 * largest / 254.
TEST(KvPage, AKeyOfIntegersIsNearInEveryCase) {
  Rng rng(7);
  for (int key = 0; key < 3000; ++key) {
    std::vector<float> x;
    for (int i = 0; i < 64; ++i) {
      const float value = std::ldexp(rng.next_float() - 0.5F, key % 3 == 0 ? 0 : i % 9);
      x.push_back(to_float(to_bf16(value)));
    }
    const auto size = [](float a, float b) { return std::abs(a) < std::abs(b); };
    const float largest = std::abs(*std::max_element(x.begin(), x.end(), size));
    const KeyScale scale = key_scale(largest);
    double lost = 0;
    for (const float value : x) {
      const float read = std::nearbyint(value * scale.of_value) * scale.of_integer;
      lost += std::pow(static_cast<double>(read) - static_cast<double>(value), 2);
    }
    ASSERT_LE(std::sqrt(lost), 8 * static_cast<double>(largest) / 254 * (1 + 1e-4));
  }
}

TEST(KvPage, NamesRoundTripAndOthersAreRefused) {
  EXPECT_EQ(parse_kv_format("fp8_e4m3").value(), KvFormat::fp8_e4m3_584);
  EXPECT_EQ(parse_kv_format("auto").value(), KvFormat::bf16);
  const Result<KvFormat> other = parse_kv_format("fp8_e5m2");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::unsupported);
  EXPECT_NE(other.error().message.find("fp8_e5m2"), std::string::npos);
}

TEST(PageSeal, DependsOnEveryByteAndThePlaceButNotOnPadding) {
  const KvPageLayout layout = make_mla_layout(KvFormat::fp8_e4m3_584, 2, 24, 6, 4);
  std::vector<std::byte> page(static_cast<size_t>(layout.page_bytes), std::byte{1});
  const PageSeal seal = seal_page(layout, 3, page);
  EXPECT_EQ(seal_page(layout, 3, page), seal);
  EXPECT_NE(seal_page(layout, 4, page), seal);
  for (const KvBlock& block : layout.blocks) {
    for (int64_t at = block.offset; at < block.offset + block.bytes; ++at) {
      page[static_cast<size_t>(at)] ^= std::byte{4};
      EXPECT_NE(seal_page(layout, 3, page), seal);
      page[static_cast<size_t>(at)] ^= std::byte{4};
    }
  }
  const KvBlock& first = layout.blocks[0];
  ASSERT_LT(first.offset + first.bytes, layout.blocks[1].offset);
  page[static_cast<size_t>(first.offset + first.bytes)] ^= std::byte{4};
  EXPECT_EQ(seal_page(layout, 3, page), seal);
}

}  // namespace
}  // namespace quire
