#include "tools/op_bench.h"

#include <algorithm>
#include <cstdio>

#include "base/bytes.h"
#include "base/json.h"
#include "base/rng.h"

namespace quire {

namespace {

constexpr int64_t kBlockBytes = int64_t{16} << 20;
constexpr int32_t kRounds = 5;
constexpr double kRoundUs = 20'000;
constexpr int32_t kCallsMin = 16;  // of a recording; short calls, which have many copies, more
constexpr int32_t kCallsMax = 512;

std::vector<std::byte> random_block(OpBench::Fill fill, Rng& rng) {
  std::vector<std::byte> block(static_cast<size_t>(kBlockBytes));
  for (size_t i = 0; i < block.size(); i += 2) {
    const float x = rng.next_float() - 0.5F;
    switch (fill) {
      case OpBench::Fill::bf16:
        store_le(block, i, to_bf16(x * 0.1F).bits);
        break;
      case OpBench::Fill::fp8:
        block[i] = static_cast<std::byte>(to_fp8_e4m3(x).bits);
        block[i + 1] = static_cast<std::byte>(to_fp8_e4m3(-x).bits);
        break;
      case OpBench::Fill::int4:
        store_le(block, i, static_cast<uint16_t>(rng.next_u64()));
        break;
      case OpBench::Fill::zero:
        break;
    }
  }
  return block;
}

}  // namespace

OpBench::OpBench(Backend& backend, Options options)
    : backend_(backend), options_(std::move(options)), stopwatch_(backend.make_stopwatch(2)) {
  Rng rng(1);
  for (const Fill fill : {Fill::bf16, Fill::fp8, Fill::int4}) {
    blocks_[static_cast<size_t>(fill)] = random_block(fill, rng);
  }
}

std::byte* OpBench::make(int64_t bytes, Fill fill) {
  buffers_.push_back(allocate(backend_, bytes, "a timed op").value());
  std::byte* data = buffers_.back().data();
  if (fill == Fill::zero) {
    backend_.fill(data, bytes, std::byte{0});
    return data;
  }
  const std::vector<std::byte>& block = blocks_[static_cast<size_t>(fill)];
  for (int64_t at = 0; at < bytes; at += kBlockBytes) {
    const auto n = static_cast<size_t>(std::min(bytes - at, kBlockBytes));
    backend_.copy_in(data + at, std::span(block).first(n));
  }
  return data;
}

WeightMatrix OpBench::weight(WeightFormat format, int64_t n_out, int64_t n_in) {
  WeightMatrix w{.format = format, .n_out = n_out, .n_in = n_in};
  switch (format) {
    case WeightFormat::bf16:
      w.bf16 = array<Bf16>(Fill::bf16, n_out, n_in);
      break;
    case WeightFormat::fp8_block128: {
      w.fp8 = array<Fp8E4m3>(Fill::fp8, n_out, n_in);
      const int64_t n_scales = div_up(n_out, kFp8Block) * div_up(n_in, kFp8Block);
      w.fp8_scale = upload(std::vector<float>(static_cast<size_t>(n_scales), 0.1F),
                           div_up(n_out, kFp8Block), div_up(n_in, kFp8Block));
      break;
    }
    case WeightFormat::int4_group:
      w.group = 32;
      w.int4 = array<uint8_t>(Fill::int4, n_out, n_in / 2);
      w.int4_scale = array<Bf16>(Fill::bf16, n_out, n_in / 32);
      break;
  }
  return w;
}

bool OpBench::wants(const std::string& name) const {
  return name.find(options_.filter) != std::string::npos;
}

bool OpBench::wants_any(const std::string& prefix) const {
  const std::string& filter = options_.filter;
  return filter.find(prefix) != std::string::npos || wants(prefix);
}

// Microseconds a call, one figure a round, ascending.
std::vector<double> OpBench::measure(const std::function<void(int)>& call) {
  int next = 0;
  const auto call_many = [&](int32_t n) {
    for (int32_t i = 0; i < n; ++i) call(next++);
  };
  const auto timed = [&](const std::function<void()>& work) {
    stopwatch_->mark(0);
    work();
    stopwatch_->mark(1);
    return stopwatch_->us_between(0, 1);
  };
  call_many(4);
  const double guess_us = timed([&] { call_many(4); }) / 4;
  const int32_t n_calls =
      std::clamp(static_cast<int32_t>(kRoundUs / 4 / guess_us), kCallsMin, kCallsMax);
  const RecordingId recording = backend_.record([&] { call_many(n_calls); }).value();
  const auto work = [&] { backend_.replay(recording); };
  const double once_us = timed(work);
  const auto n_repeats = std::clamp(static_cast<int32_t>(kRoundUs / once_us), 1, 64);
  std::vector<double> us;
  for (int32_t round = 0; round < kRounds; ++round) {
    const double all_us = timed([&] {
      for (int32_t i = 0; i < n_repeats; ++i) work();
    });
    us.push_back(all_us / n_repeats / n_calls);
  }
  std::ranges::sort(us);
  return us;
}

void OpBench::time(const std::string& name, double bytes, const std::function<void(int)>& call) {
  if (!wants(name)) return;
  const std::vector<double> us = measure(call);
  const double median_us = us[us.size() / 2];
  Json row = {{"op", name},
              {"mb", 1e-6 * bytes},
              {"us", median_us},
              {"us_min", us.front()},
              {"us_max", us.back()}};
  if (options_.bytes_per_second) {
    const double floor_us = 1e6 * bytes / *options_.bytes_per_second;
    row["floor_us"] = floor_us;
    row["share"] = floor_us / median_us;
  }
  if (options_.prints) {
    std::printf("%-58s %10.2f %10.2f", name.c_str(), 1e-6 * bytes, median_us);
    if (options_.bytes_per_second) {
      std::printf(" %10.2f %5.1f %%", row["floor_us"].get<double>(),
                  100 * row["share"].get<double>());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
  rows_.push_back(std::move(row));
}

}  // namespace quire
