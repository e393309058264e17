#include "sim/case.h"

#include <array>
#include <optional>

#include "base/json.h"
#include "base/text.h"

namespace quire::sim {

namespace {

constexpr std::array<std::string_view, kFeatures> kNames = {
    "overlap",        "late_device",       "prefix_cache", "tenants",    "shared_documents",
    "second_turns",   "stop_tokens",       "bursts",       "aborts",     "deadlines",
    "flushes",        "clock_jumps",       "tiny_pages",   "small_pool", "early_evictions",
    "shuffled_reuse", "quarantines",       "full_checks",  "odd_checks", "sockets",
    "retries",        "narrow_identities", "rare_points",
};

std::optional<Feature> feature_of(std::string_view wanted) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == wanted) return static_cast<Feature>(i);
  }
  return std::nullopt;
}

Status read_features(const Json& list, FeatureSet* features) {
  for (const Json& item : list) {
    if (!item.is_string()) return invalid_argument("without: expected names of features");
    const auto& text = item.get_ref<const std::string&>();
    const std::optional<Feature> feature = feature_of(text);
    if (!feature) return invalid_argument("without: unknown feature " + excerpt(text));
    features->add(*feature);
  }
  return {};
}

Status read_requests(const Json& list, std::vector<int32_t>* requests) {
  for (const Json& item : list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT32_MAX) {
      return invalid_argument("left_out: expected numbers of requests");
    }
    requests->push_back(item.get<int32_t>());
  }
  return {};
}

}  // namespace

std::string_view name(Feature feature) { return kNames[static_cast<size_t>(feature)]; }

std::string write_case(const Case& kept, std::string_view reason) {
  Json out;
  out["reason"] = reason;
  out["seed"] = kept.seed;
  out["without"] = Json::array();
  for (int i = 0; i < kFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (kept.without.has(feature)) out["without"].push_back(name(feature));
  }
  out["left_out"] = kept.left_out;
  return dump_json(out) + "\n";
}

Result<Case> read_case(std::string_view text) {
  const Json parsed = TRY(parse_json(text));
  const bool is_case = parsed.is_object() && parsed.contains("seed") &&
                       parsed["seed"].is_number_unsigned() && parsed.contains("without") &&
                       parsed["without"].is_array() && parsed.contains("left_out") &&
                       parsed["left_out"].is_array();
  if (!is_case) return invalid_argument("a case has a seed, and lists `without` and `left_out`");
  Case out{.seed = parsed["seed"].get<uint64_t>()};
  TRY_OK(read_features(parsed["without"], &out.without));
  TRY_OK(read_requests(parsed["left_out"], &out.left_out));
  return out;
}

}  // namespace quire::sim
