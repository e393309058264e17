#include "compress/calibrated_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/dummy.h"

namespace quire {
namespace {

using testing::HasSubstr;

// A plan for one mixture of two experts.
struct Planned {
  Planned(int64_t hidden, int64_t inner, const CompressOptions& options)
      : shape{.vocab_size = 16,
              .hidden_size = hidden,
              .n_layers = 2,
              .n_dense_layers = 1,
              .n_heads = 2,
              .q_lora_rank = 32,
              .kv_lora_rank = 32,
              .nope_dim = 8,
              .rope_dim = 4,
              .v_dim = 16,
              .dense_inner = 128,
              .expert_inner = inner,
              .n_experts = 2,
              .top_k = 1,
              .n_shared_experts = 1},
        checkpoint(dummy_checkpoint("dummy", shape, {})),
        plan(plan_compression(checkpoint, shape, {}, options).value()) {}

  int64_t thread_bytes() const { return CalibrationSizes::of(plan).thread_bytes(); }

  ModelShape shape;
  Checkpoint checkpoint;
  CompressPlan plan;
};

CompressOptions gptq(int group = 32) {
  CompressOptions out;
  out.method = Method::gptq;
  out.group = group;
  return out;
}

// The sum of docs/compress.md, term by term.
TEST(CalibratedJob, AThreadNeedsWhatTheSumSays) {
  const int64_t kibi = 1024;
  const Planned nano(256, 128, gptq());
  EXPECT_EQ(nano.thread_bytes(),
            32 * kibi * kibi                         // the rest
                + 8 * 256 * 256                      // moments and factor
                + 256 * 128 * 37 / 2                 // 18.5 bytes a weight
                + 6 * 256 * 128 / 32                 // 6 a group
                + 4 * kibi * 256                     // held out
                + 8 * 256 * 128                      // gate and up
                + 2 * kibi * 256 + 2 * kibi * 128);  // tokens on their way
  EXPECT_EQ(Planned(7168, 2048, gptq()).thread_bytes(), 884'604'928);
  EXPECT_EQ(Planned(7168, 2048, gptq(128)).thread_bytes(), 882'540'544);
  // An expert that widens: its down projection has the most inputs. 2,048 of them.
  EXPECT_EQ(Planned(256, 2048, gptq(128)).thread_bytes(),
            33'554'432 + 33'554'432 + 9'699'328 + 24'576 + 8'388'608 + 4'194'304 + 4'718'592);
}

TEST(CalibratedJob, NothingIsNeededWhereNothingIsCalibrated) {
  const Planned rtn(256, 128, {});
  EXPECT_EQ(rtn.thread_bytes(), 0);
  EXPECT_EQ(threads_that_fit(rtn.plan, 7, 0).value(), 7);
}

TEST(CalibratedJob, AsManyThreadsRunAsFit) {
  const Planned nano(256, 128, gptq());
  const int64_t needed = nano.thread_bytes();
  EXPECT_EQ(threads_that_fit(nano.plan, 4, needed).value(), 1);
  EXPECT_EQ(threads_that_fit(nano.plan, 4, 2 * needed - 1).value(), 1);
  EXPECT_EQ(threads_that_fit(nano.plan, 4, 2 * needed).value(), 2);
  EXPECT_EQ(threads_that_fit(nano.plan, 4, 100 * needed).value(), 4);
  const Error refused = threads_that_fit(nano.plan, 4, needed - 1).error();
  EXPECT_EQ(refused.code, ErrorCode::resource_exhausted);
  for (const char* part :
       {"36.8 MB", "(36788224 bytes)", "(36788223 bytes)", "raise the limit", "--method rtn"}) {
    EXPECT_THAT(refused.message, HasSubstr(part));
  }
}

TEST(CalibratedJob, ReservedBuffersDoNotGrow) {
  const CalibrationSizes sizes = CalibrationSizes::of(Planned(256, 128, gptq()).plan);
  CalibrationBuffers buffers;
  buffers.reserve(sizes);
  const float* held_out = buffers.held_out.data();
  const float* weights = buffers.weights.values.data();
  buffers.held_out.resize(256 * 10);
  buffers.held_out.resize(256 * 1024);
  buffers.weights.reset(128, 256);
  buffers.weights.reset(256, 128);
  EXPECT_EQ(buffers.held_out.data(), held_out);
  EXPECT_EQ(buffers.weights.values.data(), weights);
}

}  // namespace
}  // namespace quire
