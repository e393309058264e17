#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <vector>

namespace quire {
namespace {

TEST(ThreadPool, EveryIndexIsVisitedOnce) {
  for (const int workers : {1, 2, 5}) {
    ThreadPool pool(workers);
    for (const int64_t n : {0, 1, 2, 3, 7, 1000}) {
      std::vector<int> visits(static_cast<size_t>(n), 0);
      pool.parallel_for(n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[static_cast<size_t>(i)];
      });
      for (const int count : visits) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, ManySmallJobsInARow) {
  ThreadPool pool(3);
  std::vector<int64_t> sums(3, 0);
  for (int job = 0; job < 20'000; ++job) {
    pool.parallel_for(3, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) sums[static_cast<size_t>(i)] += i;
    });
  }
  EXPECT_EQ(sums[2], 40'000);
}

}  // namespace
}  // namespace quire
