// open_step: what it lets through, what it refuses, and what is left of refused inputs.
#include "ops/open_step.h"

#include <cstring>
#include <numeric>
#include <optional>

#include "backends.h"
#include "cases.h"

namespace quire::ops_test {

namespace {

constexpr int64_t kRecentSteps = 4;
constexpr int64_t kRowsMax = 5;

// Inputs of a step of three rows, two of which want a token, with some extra words.
class OpenStepTest : public OpTest {
 protected:
  struct Opened {
    ops::StepOpening opening;
    std::vector<std::byte> bytes;  // the inputs afterwards
  };

  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    for (int64_t i = 0; i < recent_.view().size(); ++i) {
      recent_.values[static_cast<size_t>(i)] = static_cast<int32_t>(100 + i);
    }
    recent_.values[3] = -1;  // a row that failed
    state_.emplace(backend(), HostArray<uint64_t, 1>(int64_t{ops::kStepStateWords}));
    bytes_.resize(static_cast<size_t>(step_inputs_bytes(shape_)) + 40);
    std::memset(bytes_.data(), 0xff, bytes_.size());
    const StepInputs in = inputs();
    for (int64_t r = 0; r < 3; ++r) in.nonces(r) = mix64(static_cast<uint64_t>(r));
    for (int64_t i = 0; i < 2; ++i) in.samplers(i) = {.temperature = 1, .mask = {0, 7}};
    const std::vector<int32_t> ids = {7, recent_reference(2 * kRowsMax + 1), recent_reference(3),
                                      recent_reference(1 << 20)};
    for (int64_t t = 0; t < 4; ++t) {
      in.ids(t) = ids[static_cast<size_t>(t)];
      in.rows(t) = static_cast<int32_t>(std::max<int64_t>(0, t - 1));
      in.positions(t) = static_cast<int32_t>(1000 + t);
    }
    for (int64_t r = 0; r < 4; ++r) in.row_begin(r) = static_cast<int32_t>(r == 0 ? 0 : r + 1);
    for (int64_t i = 0; i < 2; ++i) in.logit_rows(i) = static_cast<int32_t>(2 + i);
    std::iota(in.table.data, in.table.data + in.table.size(), 50);
    std::iota(in.extra.data, in.extra.data + 9, 1);
  }

  StepInputs inputs() { return step_inputs_in(bytes_, shape_); }
  void close(uint64_t step) { close_step_inputs(inputs(), step, 3, 9); }

  Opened open() {
    HostArray<std::byte, 1> host(static_cast<int64_t>(bytes_.size()));
    host.values = bytes_;
    const DeviceArray<std::byte, 1> there(backend(), host);
    const DeviceArray<int32_t, 2> recent(backend(), recent_);
    const auto out = DeviceArray<ops::StepOpening, 1>::poisoned(backend(), {1});
    ops::open_step(backend(), {.out = out.view(),
                               .state = state_->view(),
                               .inputs = step_inputs_in({there.view().data, bytes_.size()}, shape_),
                               .recent = recent.constant()});
    return {out.download(backend()).values[0], there.download(backend()).values};
  }

  const StepShape shape_{
      .n_rows = 3, .n_tokens = 4, .n_logits = 2, .table_width = 6, .row_tokens_max = 2};
  std::vector<std::byte> bytes_;
  HostArray<int32_t, 2> recent_{kRecentSteps, kRowsMax};
  std::optional<DeviceArray<uint64_t, 1>> state_;
};

TEST_P(OpenStepTest, ReferencesBecomeTokensAndNothingElseChanges) {
  close(1);
  Opened opened = open();
  EXPECT_EQ(opened.opening.step, 1U);
  EXPECT_EQ(opened.opening.is_good, 1U);
  const StepInputs expected = inputs();
  expected.ids(1) = 100 + 2 * kRowsMax + 1;
  expected.ids(2) = 0;
  expected.ids(3) = 0;
  EXPECT_EQ(opened.bytes, bytes_);
}

TEST_P(OpenStepTest, TheCountComesByAWayOfItsOwn) {
  close(1);
  EXPECT_EQ(open().opening.is_good, 1U);
  EXPECT_EQ(open().opening.is_good, 0U) << "a slot that was sent twice";
  close(3);
  const Opened third = open();
  EXPECT_EQ(third.opening.step, 3U);
  EXPECT_EQ(third.opening.is_good, 1U);
}

TEST_P(OpenStepTest, AnyWordThatChangesIsFoundAndMadeHarmless) {
  close(1);
  const std::vector<std::byte> good = bytes_;
  const size_t n_words = static_cast<size_t>(inputs().fixed_words()) + 9;
  uint64_t step = 0;
  for (size_t word = 0; word < n_words; ++word) {
    bytes_ = good;
    close(++step);
    bytes_[4 * word + word % 4] ^= std::byte{0x10};
    Opened opened = open();
    ASSERT_EQ(opened.opening.is_good, 0U) << "word " << word;
    const StepInputs left = step_inputs_in(opened.bytes, shape_);
    for (int64_t t = 0; t < shape_.n_tokens; ++t) {
      ASSERT_EQ(left.ids(t), 0);
      ASSERT_EQ(left.positions(t), 0);
      ASSERT_LT(left.rows(t), shape_.n_rows);
    }
    for (int64_t i = 0; i < left.table.size(); ++i) ASSERT_EQ(left.table.data[i], 0);
    for (int64_t i = 0; i < 2; ++i) {
      ASSERT_EQ(left.logit_rows(i), 0);
      ASSERT_EQ(left.samplers(i).temperature, 0);
      ASSERT_EQ(left.samplers(i).mask.end, 0);
    }
    ASSERT_EQ(left.row_begin(0), 0);
    ASSERT_EQ(left.row_begin(3), 4);
  }
}

TEST_P(OpenStepTest, ASlotOfTwoStepsIsFound) {
  close(1);
  const std::vector<std::byte> first = bytes_;
  const StepInputs in = inputs();
  for (int64_t t = 0; t < 4; ++t) ++in.positions(t);
  close(2);
  // The first step's copy met a slot whose second half was the next step's by then.
  std::memcpy(bytes_.data(), first.data(), first.size() / 2);
  EXPECT_EQ(open().opening.is_good, 0U);
  EXPECT_EQ(open().opening.is_good, 0U);
}

QUIRE_ON_EVERY_BACKEND(OpenStepTest);

}  // namespace

}  // namespace quire::ops_test
