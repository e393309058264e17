#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "cpu/host_memory.h"
#include "cpu/workers.h"

namespace quire::cpu {

namespace {

int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total_pages = 0;
  int64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * 4096;
}

TEST(HostMemory, SmallAndLargeAreAlignedAndWritable) {
  HostMemory memory;
  for (const int64_t bytes :
       {int64_t{1}, int64_t{4096}, kMapFrom - 1, kMapFrom, 3 * kMapFrom + 1}) {
    std::byte* data = memory.allocate(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % kBufferAlignment, 0U);
    std::memset(data, 0xab, static_cast<size_t>(bytes));
    memory.release(data, bytes);
  }
}

TEST(HostMemory, WhatIsNotTouchedIsNotResident) {
  HostMemory memory;
  const int64_t bytes = int64_t{1} << 30;
  const int64_t before = resident_bytes();
  std::byte* data = memory.allocate(bytes);
  ASSERT_NE(data, nullptr);
  data[bytes / 2] = std::byte{1};
  EXPECT_LT(resident_bytes() - before, bytes / 16);
  EXPECT_EQ(data[bytes - 1], std::byte{0});
  memory.release(data, bytes);
}

TEST(HostMemory, RefusesWhatTheMachineCannotHave) {
  HostMemory memory;
  EXPECT_EQ(memory.allocate(int64_t{1} << 60), nullptr);
}

TEST(Scratch, PiecesDoNotOverlapAndOneChunkIsLeftAfterAnOp) {
  HostMemory memory;
  Scratch scratch(&memory);
  for (int op = 0; op < 3; ++op) {
    scratch.reset();
    auto* first = scratch.take<uint8_t>(100'000);
    auto* second = scratch.take<uint8_t>(1);
    auto* third = scratch.take<uint8_t>(300'000);
    std::memset(first, 1, 100'000);
    std::memset(third, 3, 300'000);
    *second = 2;
    EXPECT_EQ(first[99'999], 1);
    EXPECT_EQ(*second, 2);
    EXPECT_EQ(third[0], 3);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(third) % kBufferAlignment, 0U);
    if (op > 0) {  // in one chunk by now
      EXPECT_EQ(second, first + 100'096);
    }
  }
}

TEST(Workers, SharesCoverEverythingOnce) {
  for (const int workers : {1, 2, 3, 7}) {
    for (const int64_t n : {0, 1, 6, 100}) {
      for (const int64_t unit : {1, 4, 64}) {
        int64_t next = 0;
        for (int worker = 0; worker < workers; ++worker) {
          const Share share = share_of(worker, workers, n, unit);
          if (share.begin >= share.end) continue;
          EXPECT_EQ(share.begin, next);
          EXPECT_EQ(share.begin % unit, 0);
          next = share.end;
        }
        EXPECT_EQ(next, n);
      }
    }
  }
}

}  // namespace

}  // namespace quire::cpu
