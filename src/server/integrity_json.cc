#include "server/integrity_json.h"

#include <cstdint>
#include <string>

#include "base/json.h"

namespace quire {

namespace {

Json to_json(const IntegrityEvent& event, int64_t now_us) {
  Json out = {
      {"number", event.number}, {"seconds_ago", static_cast<double>(now_us - event.at_us) * 1e-6},
      {"step", event.step},     {"event", name(event.kind)},
      {"check", nullptr},       {"page", nullptr},
      {"request", nullptr},     {"what", event.what}};
  if (event.check) out["check"] = name(*event.check);
  if (event.page != kNoPage) out["page"] = event.page.value;
  if (event.request.value != 0) out["request"] = event.request.value;
  return out;
}

}  // namespace

double integrity_coverage(const EngineStats& stats) {
  if (stats.integrity_expected == 0) return 1;
  return static_cast<double>(stats.integrity_checked) /
         static_cast<double>(stats.integrity_expected);
}

Json to_json(const IntegrityReport& report, const EngineStats& stats) {
  Json out = {{"pages", Json::object()},  {"quarantined", Json::array()},
              {"checks", Json::object()}, {"coverage", integrity_coverage(stats)},
              {"events", Json::array()},  {"retries", stats.integrity_retries}};
  for (size_t s = 0; s < kPageStates; ++s) {
    out["pages"][std::string(name(static_cast<PageState>(s)))] = report.pages[s];
  }
  for (const QuarantinedPage& page : report.quarantined) {
    out["quarantined"].push_back({{"page", page.page.value}, {"held", page.is_held}});
  }
  for (size_t c = 0; c < kIntegrityChecks; ++c) {
    const auto check = static_cast<IntegrityCheck>(c);
    out["checks"][std::string(name(check))] = {{"looked", stats.integrity_looked[check]},
                                               {"found", stats.integrity_found[check]}};
  }
  for (const IntegrityEvent& event : report.events) {
    out["events"].push_back(to_json(event, report.now_us));
  }
  return out;
}

std::optional<PageId> read_page(std::string_view body) {
  const Result<Json> parsed = parse_json(body);
  if (!parsed.ok() || !parsed.value().is_object()) return std::nullopt;
  const auto page = parsed.value().find("page");
  const bool is_one = parsed.value().size() == 1 && page != parsed.value().end() &&
                      page->is_number_unsigned() && page->get<uint64_t>() <= INT32_MAX;
  if (!is_one) return std::nullopt;
  return PageId{static_cast<int32_t>(page->get<uint64_t>())};
}

}  // namespace quire
