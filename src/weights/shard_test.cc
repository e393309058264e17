#include "weights/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "weights/dummy.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Sizes that 8 ranks can share, in every format.
ModelShape shape_for_8() {
  return {.vocab_size = 96,
          .hidden_size = 128,
          .n_layers = 2,
          .n_dense_layers = 1,
          .n_heads = 8,
          .q_lora_rank = 128,
          .kv_lora_rank = 64,
          .nope_dim = 128,
          .rope_dim = 128,
          .v_dim = 128,
          .dense_inner = 1024,
          .expert_inner = 1024,
          .n_experts = 4,
          .top_k = 2,
          .n_shared_experts = 1};
}

// Every element of every stored array is some rank's exactly once, or everybody's.
void expect_exact_cover(const WeightSource& source, int64_t n_ranks) {
  const ModelShape shape = shape_for_8();
  const Checkpoint checkpoint = dummy_checkpoint("dummy", shape, source);
  const auto tensors = resolve_checkpoint(checkpoint, shape, source).value();
  for (const ResolvedTensor& tensor : tensors) {
    SCOPED_TRACE(tensor.wanted.source);
    for (const bool is_scale : {false, true}) {
      const CheckpointTensor* array = is_scale ? tensor.scales : tensor.values;
      if (array == nullptr) continue;
      std::vector<int> owners(
          static_cast<size_t>(array->entry.bytes / size_of(array->entry.dtype)));
      for (int64_t rank = 0; rank < n_ranks; ++rank) {
        const TensorSlice part = slice_of(tensor, {rank, n_ranks}).value();
        const ArraySlice& slice = is_scale ? part.scales : part.values;
        for (int64_t row = 0; row < slice.n_rows; ++row) {
          for (int64_t column = 0; column < slice.n_columns; ++column) {
            ++owners[static_cast<size_t>(slice.first + row * slice.stride + column)];
          }
        }
      }
      const int expected =
          cut_of(tensor.wanted.weight) == Cut::none ? static_cast<int>(n_ranks) : 1;
      EXPECT_TRUE(std::all_of(owners.begin(), owners.end(), [&](int n) { return n == expected; }));
    }
  }
}

TEST(Shard, EveryElementHasOneOwnerOrAll) {
  const std::vector<WeightSource> sources = {
      {},
      {.scheme = WeightScheme::fp8_block128, .scheme_text = "fp8"},
      {.scheme = WeightScheme::int4_group, .scheme_text = "int4", .group = 32}};
  for (const WeightSource& source : sources) {
    for (const int64_t n_ranks : {1, 2, 4, 8}) {
      SCOPED_TRACE(source.scheme_text + " " + std::to_string(n_ranks));
      expect_exact_cover(source, n_ranks);
    }
  }
}

// A rank's tensors are those that a model of its shape wants.
TEST(Shard, PartsHaveTheSizesOfTheRanksShape) {
  const ModelShape shape = shape_for_8();
  const Checkpoint checkpoint = dummy_checkpoint("dummy", shape, {});
  const auto tensors = resolve_checkpoint(checkpoint, shape, {}).value();
  const ModelShape of_rank = shape_of_rank(shape, {3, 4}).value();
  const auto wanted = wanted_tensors(of_rank, CheckpointNaming::plain);
  ASSERT_EQ(wanted.size(), tensors.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const TensorSlice part = slice_of(tensors[i], {3, 4}).value();
    EXPECT_EQ(part.wanted.source, wanted[i].source);
    EXPECT_EQ(part.wanted.n_out, wanted[i].n_out) << wanted[i].source;
    EXPECT_EQ(part.wanted.n_in, wanted[i].n_in) << wanted[i].source;
  }
}

TEST(Shard, RefusesWhatDoesNotDivide) {
  ModelShape shape = shape_for_8();
  const auto refusal = [&](const Partition& partition) {
    const auto out = shape_of_rank(shape, partition);
    return out.ok() ? std::string() : out.error().message;
  };
  EXPECT_EQ(refusal({7, 8}), "");
  EXPECT_THAT(refusal({0, 3}), HasSubstr("8 heads cannot be shared by 3 ranks"));
  EXPECT_THAT(refusal({8, 8}), HasSubstr("rank 8 of 8"));
  EXPECT_THAT(refusal({-1, 8}), HasSubstr("rank -1 of 8"));
  EXPECT_THAT(refusal({0, 0}), HasSubstr("rank 0 of 0"));
  shape.vocab_size = 97;
  EXPECT_THAT(refusal({0, 2}), HasSubstr("97 tokens of the vocabulary"));
}

TEST(Shard, RefusesCutsThroughASharedScale) {
  ModelShape shape = shape_for_8();
  shape.expert_inner = 512;
  const auto error_of = [&](const WeightSource& source) {
    const Checkpoint checkpoint = dummy_checkpoint("dummy", shape, source);
    const auto tensors = resolve_checkpoint(checkpoint, shape, source).value();
    for (const ResolvedTensor& tensor : tensors) {
      const auto part = slice_of(tensor, {0, 8});
      if (!part.ok()) return part.error();
    }
    return Error{};
  };
  const Error fp8 = error_of({.scheme = WeightScheme::fp8_block128});
  EXPECT_EQ(fp8.code, ErrorCode::unsupported);
  EXPECT_THAT(fp8.message, HasSubstr("gate_proj"));
  EXPECT_EQ(error_of({.scheme = WeightScheme::int4_group, .group = 32}).message, "");
  const Error int4 = error_of({.scheme = WeightScheme::int4_group, .group = 128});
  EXPECT_THAT(int4.message, HasSubstr("down_proj"));
}

}  // namespace
}  // namespace quire
