#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/temp_folder.h"
#include "cpu/host_memory.h"
#include "cpu/workers.h"

namespace quire::cpu {

namespace {

// By its place in /proc/self/statm: 0 all that is mapped, 1 resident, 5 data.
int64_t process_bytes(int place) {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  for (int i = 0; i <= place; ++i) statm >> pages;
  return pages * 4096;
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
  const int64_t before = process_bytes(1);
  std::byte* data = memory.allocate(bytes);
  ASSERT_NE(data, nullptr);
  data[bytes / 2] = std::byte{1};
  EXPECT_LT(process_bytes(1) - before, bytes / 16);
  EXPECT_EQ(data[bytes - 1], std::byte{0});
  memory.release(data, bytes);
}

TEST(HostMemory, RefusesWhatTheMachineCannotHave) {
  HostMemory memory;
  EXPECT_EQ(memory.allocate(int64_t{1} << 60), nullptr);
}

TEST(HostMemory, FreeIsWhatALimitOfTheProcessLeaves) {
  const int64_t left = int64_t{100} << 20;
  const auto check = [&](auto resource, int64_t used) {
    rlimit old{};
    ASSERT_EQ(getrlimit(resource, &old), 0);
    rlimit low = old;
    low.rlim_cur = static_cast<rlim_t>(used + left);
    ASSERT_EQ(setrlimit(resource, &low), 0);
    EXPECT_NEAR(static_cast<double>(host_memory_info().free), left, left / 10);
    ASSERT_EQ(setrlimit(resource, &old), 0);
  };
  EXPECT_GT(host_memory_info().free, 2 * left);
  check(RLIMIT_AS, process_bytes(0));
  check(RLIMIT_DATA, process_bytes(5));
}

TEST(HostMemory, TheTightestControlGroupOfAllAroundCounts) {
  const TempFolder root;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  const auto none = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(control_group_room(root.path(), "/"), none);
  write("a/b/memory.max", "max\n");
  write("a/b/memory.current", "900\n");
  EXPECT_EQ(control_group_room(root.path(), "/a/b"), none);
  write("a/memory.max", "1000\n");
  write("a/memory.current", "990\n");
  EXPECT_EQ(control_group_room(root.path(), "/a/b"), 10);
  write("a/memory.stat", "anon 700\ninactive_file 200\nactive_file 90\n");
  EXPECT_EQ(control_group_room(root.path(), "/a/b"), 210);
  write("memory.max", "5000\n");
  write("memory.current", "4900\n");
  EXPECT_EQ(control_group_room(root.path(), "/a/b"), 100);
  EXPECT_EQ(control_group_room(root.path(), "/elsewhere"), 100);
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
