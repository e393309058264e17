#include "cpu/host_memory.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "base/bytes.h"

namespace quire::cpu {

namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr const char* kControlGroups = "/sys/fs/cgroup";

// The number that follows a word in a file of the system; of none the number that it begins with.
std::optional<int64_t> read_number(const std::string& path, const std::string& after = "") {
  std::ifstream file(path);
  std::string word;
  while (word != after && file >> word) {
  }
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// Of this process; "/" where it is not in a group.
std::string control_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "/";
}

// What a limit of the process leaves; `used` is its name in the process's status.
template <class Resource>
int64_t limit_room(Resource resource, const std::string& used) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return static_cast<int64_t>(limit.rlim_cur) -
         read_number("/proc/self/status", used).value_or(0) * 1024;
}

}  // namespace

std::byte* HostMemory::allocate(int64_t bytes) {
  CHECK(bytes > 0);
  const auto size = static_cast<size_t>(round_up(bytes, kBufferAlignment));
  if (bytes < kMapFrom) {
    return static_cast<std::byte*>(std::aligned_alloc(size_t{kBufferAlignment}, size));
  }
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

void HostMemory::release(std::byte* data, int64_t bytes) {
  if (bytes < kMapFrom) {
    std::free(data);
  } else {
    CHECK(munmap(data, static_cast<size_t>(round_up(bytes, kBufferAlignment))) == 0);
  }
}

MemoryInfo host_memory_info() {
  const int64_t total = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  const std::optional<int64_t> available = read_number("/proc/meminfo", "MemAvailable:");
  const int64_t free = std::min(
      {available ? *available * 1024 : total, limit_room(RLIMIT_DATA, "VmData:"),
       limit_room(RLIMIT_AS, "VmSize:"), control_group_room(kControlGroups, control_group())});
  return {.free = std::max<int64_t>(free, 0), .total = total};
}

int64_t control_group_room(const std::string& root, const std::string& path) {
  int64_t least = kNoLimit;
  for (std::filesystem::path group = path;; group = group.parent_path()) {
    const std::string dir = root + group.string();
    const std::optional<int64_t> limit = read_number(dir + "/memory.max");  // a number, or "max"
    const std::optional<int64_t> used = read_number(dir + "/memory.current");
    if (limit && used) {
      // Pages of files that nobody used of late go when others are asked for.
      const int64_t droppable = read_number(dir + "/memory.stat", "inactive_file").value_or(0);
      least = std::min(least, *limit - *used + droppable);
    }
    if (!group.has_relative_path()) return least;
  }
}

}  // namespace quire::cpu
