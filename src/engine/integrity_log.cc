#include "engine/integrity_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace quire {

std::string_view name(IntegrityEventKind kind) {
  switch (kind) {
    case IntegrityEventKind::found:
      return "found";
    case IntegrityEventKind::stopped:
      return "stopped";
    case IntegrityEventKind::retried:
      return "retried";
    case IntegrityEventKind::quarantined:
      return "quarantined";
    case IntegrityEventKind::released:
      return "released";
  }
  CHECK(false);
  return {};
}

namespace {

// Fields with names, so that a line can be searched for and taken apart.
std::string line_of(const IntegrityEvent& event) {
  std::string line = format("kv_integrity event=%s step=%llu", name(event.kind).data(),
                            static_cast<unsigned long long>(event.step));
  if (event.check) line += format(" check=%s", name(*event.check).data());
  if (event.page != kNoPage) line += format(" page=%d", event.page.value);
  if (event.request.value != 0) {
    line += format(" request=%llu", static_cast<unsigned long long>(event.request.value));
  }
  return line + " what=\"" + event.what + "\"";
}

}  // namespace

void IntegrityLog::add(IntegrityEvent event) {
  event.number = ++n_events_;
  event.at_us = clock_.now_us();
  event.step = step_;
  if (event.kind == IntegrityEventKind::found) {
    CHECK(event.check.has_value());
    found_.add(*event.check);
  }
  const bool is_an_operators = event.kind == IntegrityEventKind::released;
  log_.write(is_an_operators ? LogLevel::info : LogLevel::error, line_of(event));
  events_[event.number % kKept] = std::move(event);
}

void IntegrityLog::found(IntegrityCheck check, std::string what, PageId page, RequestId request) {
  add({.kind = IntegrityEventKind::found,
       .check = check,
       .page = page,
       .request = request,
       .what = std::move(what)});
}

std::vector<IntegrityEvent> IntegrityLog::last() const {
  std::vector<IntegrityEvent> out;
  const uint64_t kept = std::min<uint64_t>(n_events_, kKept);
  for (uint64_t n = n_events_ - kept + 1; n <= n_events_; ++n) out.push_back(events_[n % kKept]);
  return out;
}

}  // namespace quire
