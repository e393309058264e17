#include "weights/nvfp4.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "weights/dummy.h"
#include "weights/rank_bytes.h"

namespace quire {
namespace {

using testing::HasSubstr;

TEST(Nvfp4, EveryCodeMeansItsValue) {
  // Low nibble first: codes 0, 1, 2, ..., 15 are inputs 0 to 15, the upper half negative.
  std::vector<std::byte> packed;
  for (unsigned code = 0; code < 16; code += 2) {
    packed.push_back(static_cast<std::byte>(code | (code + 1) << 4));
  }
  const std::byte scale{0x40};  // e4m3 of 2
  std::vector<Bf16> out(16);
  decode_nvfp4_row({.packed = packed.data(), .scales = &scale, .tensor_scale = 0.25F}, out);
  const float expected[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(to_float(out[i]), expected[i] / 2);
    EXPECT_EQ(to_float(out[i + 8]), -expected[i] / 2);
  }
}

TEST(Nvfp4, EachGroupHasItsScale) {
  const std::vector<std::byte> packed(16, std::byte{0x22});                  // all ones
  const std::vector<std::byte> scales = {std::byte{0x38}, std::byte{0x01}};  // 1 and 2^-9
  std::vector<Bf16> out(32);
  decode_nvfp4_row({.packed = packed.data(), .scales = scales.data(), .tensor_scale = 8}, out);
  EXPECT_EQ(to_float(out[0]), 8);
  EXPECT_EQ(to_float(out[15]), 8);
  EXPECT_EQ(to_float(out[16]), 0x1p-6F);
  EXPECT_EQ(to_float(out[31]), 0x1p-6F);
}

class Nvfp4Checkpoint : public testing::Test {
 protected:
  ModelShape shape_ = {.vocab_size = 16,
                       .hidden_size = 64,
                       .n_layers = 2,
                       .n_dense_layers = 1,
                       .n_heads = 2,
                       .q_lora_rank = 32,
                       .kv_lora_rank = 32,
                       .nope_dim = 8,
                       .rope_dim = 4,
                       .v_dim = 16,
                       .dense_inner = 64,
                       .expert_inner = 32,
                       .n_experts = 2,
                       .top_k = 1};
  WeightSource source_ = {.scheme = WeightScheme::nvfp4,
                          .scheme_text = "NVFP4",
                          .ignored = {NamePattern::parse("re:.*self_attn.*").value()}};
};

TEST_F(Nvfp4Checkpoint, IsResolvedAndCut) {
  const Checkpoint checkpoint = dummy_checkpoint("dummy", shape_, source_);
  const auto tensors = resolve_checkpoint(checkpoint, shape_, source_).value();
  int64_t n_packed = 0;
  for (const ResolvedTensor& tensor : tensors) {
    if (tensor.format != StoredFormat::nvfp4) continue;
    ++n_packed;
    ASSERT_NE(tensor.tensor_scale, nullptr);
    const int64_t n = tensor.wanted.n_out * tensor.wanted.n_in;
    EXPECT_EQ(tensor.bytes(), n / 2 + n / 16 + 4);
    const TensorSlice half = slice_of(tensor, {.rank = 1, .n_ranks = 2}).value();
    EXPECT_EQ(half.bytes(), (n / 2 + n / 16) / 2);
  }
  // The dense layer's three and the experts' six; attention is left alone, lm_head never packed.
  EXPECT_EQ(n_packed, 9);
  // Held in BF16 by whoever loads it.
  WeightSource plain;
  const Checkpoint in_bf16 = dummy_checkpoint("dummy", shape_, plain);
  const auto wide = resolve_checkpoint(in_bf16, shape_, plain).value();
  EXPECT_EQ(rank_weight_bytes(tensors, shape_, {}).value(),
            rank_weight_bytes(wide, shape_, {}).value());
  const auto narrow = slice_of(tensors.back(), {.rank = 0, .n_ranks = 4});
  ASSERT_FALSE(narrow.ok());
  EXPECT_THAT(narrow.error().message, HasSubstr("share a scale (16"));
}

TEST_F(Nvfp4Checkpoint, IsRefusedUnderAnotherScheme) {
  const Checkpoint checkpoint = dummy_checkpoint("dummy", shape_, source_);
  const auto tensors = resolve_checkpoint(checkpoint, shape_, {});
  ASSERT_FALSE(tensors.ok());
  EXPECT_THAT(tensors.error().message, HasSubstr("is U8, and the config's weights are bf16"));
}

}  // namespace
}  // namespace quire
