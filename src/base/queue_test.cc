#include "base/queue.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace quire {
namespace {

TEST(BoundedQueue, FullIsAnAnswerAndLeavesTheValue) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(queue.try_push(second));
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(**queue.try_pop(), 1);
  EXPECT_TRUE(queue.try_push(second));
}

TEST(BoundedQueue, CloseRefusesPushesAndDrains) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.try_push(1));
  queue.close();
  EXPECT_FALSE(queue.try_push(2));
  EXPECT_EQ(queue.try_pop(), 1);
  EXPECT_EQ(queue.pop_for(std::chrono::seconds(60)), std::nullopt);
}

TEST(BoundedQueue, EveryItemArrivesOnce) {
  constexpr int kProducers = 3;
  constexpr int kItems = 2000;
  BoundedQueue<int> queue(16);
  std::vector<std::jthread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kItems; ++i) {
        while (!queue.try_push(p * kItems + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> seen(kProducers * kItems, 0);
  for (int i = 0; i < kProducers * kItems; ++i) {
    const auto item = queue.pop_for(std::chrono::seconds(60));
    ASSERT_TRUE(item.has_value());
    ++seen[static_cast<size_t>(*item)];
  }
  for (const int count : seen) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace quire
