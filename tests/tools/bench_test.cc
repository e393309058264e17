// The figures that benches report, from records made by hand.
#include <gtest/gtest.h>

#include "base/json.h"
#include "tools/public_figures.h"
#include "tools/serve_load.h"
#include "tools/step_table.h"

namespace quire {
namespace {

RequestRecord finished(double start, std::vector<double> events, double finish) {
  RequestRecord r{.end = RequestEnd::finished, .prompt_tokens = 10, .start = start};
  r.output_tokens = static_cast<int32_t>(events.size());
  r.events = std::move(events);
  r.finish = finish;
  return r;
}

TEST(ServeLoad, CountsWhatFinishedAndNamesWhatWasLost) {
  LoadRecord record{.seconds = 4};
  record.requests.push_back(finished(0, {1, 1.5, 2}, 2));
  record.requests.push_back(finished(1, {1.25, 3}, 3));
  record.requests.push_back({.end = RequestEnd::abandoned, .start = 0.5, .finish = 1});
  record.requests.push_back({.end = RequestEnd::refused, .start = 3, .finish = 3});
  record.requests.push_back(
      {.end = RequestEnd::lost, .start = 3, .finish = 4, .message = "the answer broke off"});
  const Json report = describe_load(record);
  EXPECT_EQ(report["completed"], 2);
  EXPECT_EQ(report["abandoned"], 1);
  EXPECT_EQ(report["refused"], 1);
  EXPECT_EQ(report["lost"], 1);
  EXPECT_EQ(report["lost_messages"], Json({"the answer broke off"}));
  EXPECT_EQ(report["total_input_tokens"], 20);
  EXPECT_EQ(report["total_output_tokens"], 5);
  EXPECT_DOUBLE_EQ(report["output_throughput"].get<double>(), 1.25);
  EXPECT_DOUBLE_EQ(report["concurrency"].get<double>(), 1.0);
  EXPECT_EQ(report["max_concurrent_requests"], 2);
  EXPECT_DOUBLE_EQ(report["mean_ttft_ms"].get<double>(), 625);
  EXPECT_DOUBLE_EQ(report["max_itl_ms"].get<double>(), 1750);
  // (2 - 1) / 2 and (3 - 1.25) / 1 seconds a token after the first.
  EXPECT_DOUBLE_EQ(report["mean_tpot_ms"].get<double>(), 1125);
}

TEST(ServeLoad, NothingFinishedIsAllZeros) {
  const Json report = describe_load({.seconds = 1});
  EXPECT_EQ(report["completed"], 0);
  EXPECT_DOUBLE_EQ(report["p99_ttft_ms"].get<double>(), 0);
}

TEST(StepTable, AddsUpOpsOfOneName) {
  const std::vector<OpNote> notes{{"a", 10}, {"b", 5}, {"a", 20}};
  const std::vector<double> times{1, 2, 3};
  const std::vector<OpRow> rows = add_up(notes, times);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].calls, 2);
  EXPECT_DOUBLE_EQ(rows[0].us, 4);
  EXPECT_DOUBLE_EQ(rows[0].bytes, 30);
  const Json ops = describe_ops(rows, 1e6);
  EXPECT_DOUBLE_EQ(ops[0]["floor_us"].get<double>(), 30);
  EXPECT_DOUBLE_EQ(ops[0]["share"].get<double>(), 7.5);
}

TEST(StepTable, IndependentRoutingSpreads) {
  const ModelShape shape{.n_experts = 384, .top_k = 8};
  EXPECT_NEAR(expected_experts(shape, 1), 8, 1e-9);
  // 384 (1 - (1 - 8/384)^64) = 284.2
  EXPECT_NEAR(expected_experts(shape, 64), 284.2, 0.1);
  const std::vector<int32_t> near{280, 290, 284};
  const std::vector<int32_t> clumped{284, 200, 210};
  EXPECT_TRUE(describe_routing(shape, 64, near)["spread"].get<bool>());
  EXPECT_FALSE(describe_routing(shape, 64, clumped)["spread"].get<bool>());
  EXPECT_TRUE(describe_routing(shape, 64, {}).is_null());
}

TEST(PublicFigures, StandOnlyBesideWhatTheyAreOf) {
  ModelConfig config;
  config.shape = {.hidden_size = 7168,
                  .n_layers = 61,
                  .n_heads = 8,
                  .kv_lora_rank = 512,
                  .expert_inner = 256,
                  .n_experts = 384};
  config.weights.scheme = WeightScheme::int4_group;
  const auto fp8 = public_decode_figures(config, KvFormat::fp8_e4m3_584, 64, 8192);
  ASSERT_TRUE(fp8.has_value());
  // 28.7 ms a step: the sum that design rules compare with.
  EXPECT_NEAR(fp8->layer_us * 61, 28'700, 100);
  EXPECT_FALSE(public_decode_figures(config, KvFormat::bf16, 64, 1024).has_value());
  EXPECT_FALSE(public_decode_figures(config, KvFormat::bf16, 2, 8192).has_value());
  config.shape.n_heads = 64;
  EXPECT_FALSE(public_decode_figures(config, KvFormat::bf16, 64, 8192).has_value());
}

}  // namespace
}  // namespace quire
