#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr SchedulerLimits kLimits{.page_tokens = 4, .prefill_tokens_max = 10};

struct Picture {
  std::vector<RunningView> running;
  std::vector<WaitingView> waiting;
  int32_t free_slots = 4;
  int32_t available_pages = 100;

  Schedule schedule(const SchedulerLimits& limits = kLimits) const {
    return make_schedule({.running = running,
                          .waiting = waiting,
                          .free_slots = free_slots,
                          .available_pages = available_pages},
                         limits);
  }
};

auto is_row(uint64_t request, int32_t first, int32_t n_tokens, int32_t new_pages, bool samples) {
  return testing::AllOf(testing::Field(&ScheduledRow::request, RequestId{request}),
                        testing::Field(&ScheduledRow::first, first),
                        testing::Field(&ScheduledRow::n_tokens, n_tokens),
                        testing::Field(&ScheduledRow::new_pages, new_pages),
                        testing::Field(&ScheduledRow::samples, samples));
}

TEST(Scheduler, NothingToDoIsAnEmptySchedule) {
  const Schedule schedule = Picture{}.schedule();
  EXPECT_THAT(schedule.rows, IsEmpty());
  EXPECT_FALSE(schedule.preempt || schedule.refuse);
}

TEST(Scheduler, ARequestThatIsEndingIsNotRunAndNobodyGivesWayForIt) {
  Picture picture{.running = {{RequestId{1}, 9, 8, 2, true}, {RequestId{2}, 9, 8, 3}}};
  EXPECT_THAT(picture.schedule().rows, ElementsAre(is_row(2, 8, 1, 0, true)));
  // Alone, and the pool is full: its pages come back by themselves.
  picture.running = {{RequestId{1}, 9, 8, 2, true}};
  picture.waiting = {{RequestId{3}, 8}};
  picture.available_pages = 0;
  const Schedule schedule = picture.schedule();
  EXPECT_THAT(schedule.rows, IsEmpty());
  EXPECT_FALSE(schedule.preempt || schedule.refuse);
}

TEST(Scheduler, DecodesComeFirstAndAPromptIsCutIntoChunks) {
  const Picture picture{.running = {{RequestId{1}, 30, 8, 2}, {RequestId{2}, 5, 4, 1}}};
  EXPECT_THAT(picture.schedule().rows,
              ElementsAre(is_row(2, 4, 1, 1, true), is_row(1, 8, 10, 3, false)));
}

TEST(Scheduler, TheLastChunkSamples) {
  const Picture picture{.running = {{RequestId{1}, 18, 8, 2}}};
  EXPECT_THAT(picture.schedule().rows, ElementsAre(is_row(1, 8, 10, 3, true)));
}

TEST(Scheduler, TheBudgetGoesToTheOldestPromptFirst) {
  const Picture picture{.running = {{RequestId{1}, 7, 0, 0}, {RequestId{2}, 9, 0, 0}}};
  EXPECT_THAT(picture.schedule().rows,
              ElementsAre(is_row(1, 0, 7, 2, true), is_row(2, 0, 3, 1, false)));
}

TEST(Scheduler, AllDecodesRunWhateverTheBudget) {
  Picture picture;
  for (uint64_t i = 1; i <= 50; ++i) picture.running.push_back({RequestId{i}, 9, 8, 3});
  EXPECT_EQ(picture.schedule().rows.size(), 50U);
}

TEST(Scheduler, AdmitsInOrderWithinSlots) {
  const Picture picture{.waiting = {{RequestId{1}, 3}, {RequestId{2}, 4}, {RequestId{3}, 1}},
                        .free_slots = 2};
  const Schedule schedule = picture.schedule();
  EXPECT_THAT(schedule.admit, ElementsAre(RequestId{1}, RequestId{2}));
  EXPECT_THAT(schedule.rows, ElementsAre(is_row(1, 0, 3, 1, true), is_row(2, 0, 4, 1, true)));
}

TEST(Scheduler, CachedPagesAreNotComputed) {
  const Picture picture{.waiting = {{RequestId{1}, 11, 2, 2}}};
  EXPECT_THAT(picture.schedule().rows, ElementsAre(is_row(1, 8, 3, 1, true)));
}

TEST(Scheduler, NobodyIsPassedOverWhenTheHeadDoesNotFit) {
  const Picture picture{.running = {{RequestId{1}, 5, 4, 2}},
                        .waiting = {{RequestId{2}, 40}, {RequestId{3}, 1}},
                        .available_pages = 8};
  EXPECT_THAT(picture.schedule().admit, IsEmpty());
}

TEST(Scheduler, AnAdmissionLeavesAPageForEachRunner) {
  Picture picture{.running = {{RequestId{1}, 5, 4, 2}, {RequestId{2}, 5, 4, 2}},
                  .waiting = {{RequestId{3}, 7}}};
  picture.available_pages = 3;  // two for the newcomer, one of two reserves
  EXPECT_THAT(picture.schedule().admit, IsEmpty());
  picture.available_pages = 4;
  EXPECT_THAT(picture.schedule().admit, ElementsAre(RequestId{3}));
}

TEST(Scheduler, WhatARunningPromptStillNeedsIsNotGivenAway) {
  // The first needs 10 pages in all and gets 1 in this step (4 tokens of budget).
  const SchedulerLimits limits{.page_tokens = 4, .prefill_tokens_max = 5};
  Picture picture{.running = {{RequestId{1}, 40, 0, 0}}, .waiting = {{RequestId{2}, 3}}};
  const SchedulerLimits wide{.page_tokens = 4, .prefill_tokens_max = 45};
  picture.available_pages = 11;  // 10 + 1 + a reserve of 1 = 12
  EXPECT_THAT(picture.schedule(limits).admit, IsEmpty());
  EXPECT_THAT(picture.schedule(wide).admit, IsEmpty());
  picture.available_pages = 12;
  EXPECT_THAT(picture.schedule(wide).admit, ElementsAre(RequestId{2}));
}

TEST(Scheduler, CachedPagesThatOnlyTheIndexHoldsCountOnce) {
  // Four pages available, three of which are the ones that match: one is left, two are needed.
  Picture picture{.running = {{RequestId{9}, 2, 1, 1}},
                  .waiting = {{RequestId{1}, 17, 3, 3}},
                  .available_pages = 4};
  EXPECT_THAT(picture.schedule().admit, IsEmpty());
  picture.waiting = {{RequestId{1}, 17, 3, 0}};  // somebody else holds them too
  EXPECT_THAT(picture.schedule().admit, ElementsAre(RequestId{1}));
}

TEST(Scheduler, WithoutAPageTheLatestArrivalGivesWay) {
  const Picture picture{.running = {{RequestId{1}, 5, 4, 1}, {RequestId{2}, 5, 4, 2}},
                        .available_pages = 0};
  const Schedule schedule = picture.schedule();
  EXPECT_EQ(schedule.preempt, RequestId{2});
  EXPECT_THAT(schedule.rows, IsEmpty());
}

TEST(Scheduler, TheLatestArrivalGivesWayToItself) {
  const Picture picture{.running = {{RequestId{1}, 5, 4, 2}, {RequestId{2}, 5, 4, 1}},
                        .available_pages = 0};
  EXPECT_EQ(picture.schedule().preempt, RequestId{2});
}

TEST(Scheduler, AStalledPromptWaitsWhileOthersDecode) {
  const Picture picture{.running = {{RequestId{1}, 20, 4, 1}, {RequestId{2}, 6, 5, 2}},
                        .available_pages = 0};
  EXPECT_THAT(picture.schedule().rows, ElementsAre(is_row(2, 5, 1, 0, true)));
}

TEST(Scheduler, StalledPromptsDoNotWaitForEachOther) {
  const Picture picture{.running = {{RequestId{1}, 20, 4, 1}, {RequestId{2}, 20, 4, 1}},
                        .available_pages = 0};
  EXPECT_EQ(picture.schedule().preempt, RequestId{2});
}

TEST(Scheduler, WhatCannotRunAloneIsRefused) {
  const Picture running{.running = {{RequestId{1}, 5, 4, 1}}, .available_pages = 0};
  EXPECT_EQ(running.schedule().refuse, RequestId{1});
  const Picture waiting{.waiting = {{RequestId{2}, 9}}, .available_pages = 2};
  EXPECT_EQ(waiting.schedule().refuse, RequestId{2});
}

TEST(Scheduler, AloneARequestNeedsNoReserve) {
  const Picture picture{.waiting = {{RequestId{2}, 8}}, .available_pages = 2};
  EXPECT_THAT(picture.schedule().admit, ElementsAre(RequestId{2}));
}

}  // namespace
}  // namespace quire
