#include "tools/step_table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/check.h"
#include "base/json.h"

namespace quire {

std::vector<OpRow> add_up(std::span<const OpNote> notes, std::span<const double> times_us) {
  CHECK(notes.size() == times_us.size());
  std::vector<OpRow> rows;
  for (size_t i = 0; i < notes.size(); ++i) {
    auto row = std::ranges::find(rows, notes[i].name, &OpRow::name);
    if (row == rows.end()) row = rows.insert(rows.end(), OpRow{.name = notes[i].name});
    ++row->calls;
    row->us += times_us[i];
    row->bytes += notes[i].bytes;
  }
  return rows;
}

Json describe_ops(std::span<const OpRow> rows, std::optional<double> bytes_per_second) {
  Json out = Json::array();
  for (const OpRow& row : rows) {
    Json op = {{"op", row.name}, {"calls", row.calls}, {"us", row.us}, {"mb", 1e-6 * row.bytes}};
    if (bytes_per_second) {
      const double floor_us = 1e6 * row.bytes / *bytes_per_second;
      op["floor_us"] = floor_us;
      op["share"] = floor_us / row.us;
    }
    out.push_back(std::move(op));
  }
  return out;
}

void print_ops(const Json& ops) {
  std::printf("  %-36s %6s %10s %10s %10s %10s %7s\n", "op", "calls", "us a call", "us in all",
              "MB", "floor us", "share");
  for (const Json& op : ops) {
    const double us = op["us"].get<double>();
    std::printf("  %-36s %6d %10.2f %10.1f %10.2f", op["op"].get<std::string>().c_str(),
                op["calls"].get<int>(), us / op["calls"].get<double>(), us, op["mb"].get<double>());
    if (op.contains("floor_us")) {
      std::printf(" %10.1f %5.1f %%", op["floor_us"].get<double>(),
                  100 * op["share"].get<double>());
    }
    std::printf("\n");
  }
}

double expected_experts(const ModelShape& shape, int64_t n_tokens) {
  const auto n = static_cast<double>(shape.n_experts);
  const double missed = 1 - static_cast<double>(shape.top_k) / n;
  return n * (1 - std::pow(missed, static_cast<double>(n_tokens)));
}

Json describe_routing(const ModelShape& shape, int64_t n_tokens, std::span<const int32_t> chosen) {
  if (chosen.empty()) return nullptr;
  constexpr double kTolerance = 0.05;
  const double expected = expected_experts(shape, n_tokens);
  const auto [least, most] = std::ranges::minmax(chosen);
  const double mean =
      std::accumulate(chosen.begin(), chosen.end(), 0.0) / static_cast<double>(chosen.size());
  return {{"expected", expected},
          {"mean", mean},
          {"min", least},
          {"max", most},
          {"spread", std::abs(mean / expected - 1) <= kTolerance}};
}

}  // namespace quire
