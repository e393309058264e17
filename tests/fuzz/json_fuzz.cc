// Fuzzes the one door for JSON: what is taken can be printed, and reads back as the same value.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace quire {
namespace {

// The depth of what was taken, without recursion.
int depth_of(const Json& root) {
  std::vector<std::pair<const Json*, int>> open = {{&root, root.is_structured() ? 1 : 0}};
  int deepest = 0;
  while (!open.empty()) {
    const auto [value, depth] = open.back();
    open.pop_back();
    deepest = std::max(deepest, depth);
    if (!value->is_structured()) continue;
    for (const Json& child : *value) open.push_back({&child, depth + child.is_structured()});
  }
  return deepest;
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const JsonLimits limits{.bytes_max = 1 << 20,
                          .depth_max = 16,
                          .nodes_max = 10'000,
                          .key_bytes_max = 64,
                          .string_bytes_max = 4096};
  const Result<Json> value = parse_json(text, limits);
  if (!value.ok()) {
    CHECK(value.error().code == ErrorCode::invalid_argument);
    CHECK(!value.error().message.empty());
    return 0;
  }
  CHECK(!first_invalid_utf8(text).has_value());
  CHECK(depth_of(value.value()) <= limits.depth_max);
  const std::string printed = dump_json(value.value());
  CHECK(!first_invalid_utf8(printed).has_value());
  const Result<Json> again = parse_json(printed);
  CHECK(again.ok());
  CHECK(dump_json(again.value()) == printed);
  return 0;
}
