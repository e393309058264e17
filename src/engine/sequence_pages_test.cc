#include "engine/sequence_pages.h"

#include <gtest/gtest.h>

#include "engine/sim_executor.h"
#include "engine/test_requests.h"

namespace quire {
namespace {

constexpr EngineConfig kConfig{.n_pages = 9,
                               .page_tokens = 4,
                               .vocab_size = 100,
                               .context_tokens = 32,
                               .running_requests_max = 2};

class SequencePagesTest : public testing::Test {
 protected:
  SequencePagesTest() {
    sequence_.request = seeded_request({}, 4);
    sequence_.tokens = counting_prompt(1, 9, kConfig.vocab_size);
    sequence_.n_prompt = sequence_.n_tokens();
    sequence_.root = pages_.root(sequence_.request.tenant);
  }

  void seal() {
    Sequence* const sealed = &sequence_;
    pages_.seal_full({&sealed, 1}, executor_);
  }
  // What another request with the same tokens would find.
  int32_t n_found() {
    Sequence other;
    other.id = RequestId{2};
    other.tokens = sequence_.tokens;
    other.root = sequence_.root;
    return pages_.peek(other).pages;
  }

  ManualClock clock_;
  Log log_{LogLevel::silent, LogFormat::text};
  IntegrityLog findings_{clock_, log_};
  SimExecutor executor_{{.vocab_size = kConfig.vocab_size},
                        executor_limits(kConfig),
                        [](RequestId) { return uint64_t{0}; }};
  SequencePages pages_{kConfig, findings_};
  Sequence sequence_{.id = RequestId{1}};
};

TEST_F(SequencePagesTest, FullPagesAreSealedAndFound) {
  EXPECT_EQ(pages_.attach(sequence_, SlotId{0}, executor_), kNoPage);
  ASSERT_TRUE(pages_.grow(sequence_, 3).ok());
  sequence_.computed = 9;
  ASSERT_TRUE(pages_.commit(sequence_).ok());
  seal();
  EXPECT_EQ(sequence_.sealed_pages, 2);
  EXPECT_EQ(n_found(), 2);
  EXPECT_TRUE(pages_.check_places(sequence_).ok());
  EXPECT_EQ(findings_.found().total(), 0U);
}

// The pool refuses to seal a page that it does not know to be full: it stays its request's alone,
// and the request goes on.
TEST_F(SequencePagesTest, WhatThePoolDoesNotSealIsNotCountedAsSealed) {
  EXPECT_EQ(pages_.attach(sequence_, SlotId{0}, executor_), kNoPage);
  ASSERT_TRUE(pages_.grow(sequence_, 3).ok());
  sequence_.computed = 4;
  ASSERT_TRUE(pages_.commit(sequence_).ok());
  sequence_.computed = 9;  // and the rest is not committed
  seal();
  EXPECT_EQ(sequence_.sealed_pages, 1);
  EXPECT_EQ(n_found(), 1);
  EXPECT_EQ(findings_.found()[IntegrityCheck::ownership], 1U);
  EXPECT_TRUE(pages_.check_places(sequence_).ok());
}

}  // namespace
}  // namespace quire
