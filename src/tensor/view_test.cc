#include "tensor/view.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <type_traits>

#include "tensor/buffer.h"

namespace quire {
namespace {

static_assert(std::is_convertible_v<View<float, 2>, View<const float, 2>>);
static_assert(!std::is_convertible_v<View<const float, 2>, View<float, 2>>);
static_assert(!std::is_invocable_v<View<float, 2>, int>, "a wrong count of indices");

TEST(View, IndexesRowMajor) {
  std::array<int, 24> data{};
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<int>(i);
  const auto v = view_of(data.data(), 2, 3, 4);
  EXPECT_EQ(v(1, 2, 3), 23);
  EXPECT_EQ(v.row(1)(0, 1), 13);
  EXPECT_EQ(v.size(), 24);
  EXPECT_TRUE(is_contiguous(v));
  EXPECT_EQ(v.row(0).rows(1, 2)(0, 0), 4);
}

TEST(View, StridedRowsAreNotContiguous) {
  std::array<int, 12> data{};
  View<int, 2> v = view_of(data.data(), 3, 4);
  v.shape[1] = 2;
  EXPECT_FALSE(is_contiguous(v));
  v(2, 1) = 7;
  EXPECT_EQ(data[9], 7);
}

class CountingMemory final : public Memory {
 public:
  std::byte* allocate(int64_t bytes) override {
    ++live;
    return static_cast<std::byte*>(::operator new(static_cast<size_t>(bytes)));
  }
  void release(std::byte* data, int64_t) override {
    --live;
    ::operator delete(data);
  }
  int live = 0;
};

TEST(Buffer, IsFreedOnceWhereItWasMade) {
  CountingMemory memory;
  {
    Buffer a(&memory, memory.allocate(64), 64);
    Buffer b = std::move(a);
    Buffer c;
    c = std::move(b);
    EXPECT_EQ(c.view<float>(4, 4).size(), 16);
    EXPECT_EQ(memory.live, 1);
  }
  EXPECT_EQ(memory.live, 0);
}

}  // namespace
}  // namespace quire
