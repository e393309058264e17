#include "engine/failure.h"

#include <utility>

#include "base/check.h"
#include "base/text.h"

namespace quire {

Failure integrity_failure(std::string what) {
  return {FailureKind::integrity,
          corruption(std::move(what) +
                     "; the request was stopped before any unverified token was sent")};
}

std::optional<IntegrityCheck> check_of(RowVerdict verdict) {
  switch (verdict) {
    case RowVerdict::bad_logits:
      return IntegrityCheck::numbers;
    case RowVerdict::stale_page:
      return IntegrityCheck::tags;
    case RowVerdict::stale_write:
      return IntegrityCheck::writes;
    case RowVerdict::bad_header:
      return IntegrityCheck::header;
    case RowVerdict::ok:
    case RowVerdict::dead_end:
    case RowVerdict::no_token:
      return std::nullopt;
  }
  CHECK(false);
  return std::nullopt;
}

Failure to_failure(const StepRowResult& result) {
  switch (result.verdict) {
    case RowVerdict::ok:
      break;
    case RowVerdict::bad_logits:
      return {FailureKind::numerical, corruption("the model's output is not a number")};
    case RowVerdict::dead_end:
      return {FailureKind::dead_end, corruption("the grammar admits no token here")};
    case RowVerdict::stale_page:
    case RowVerdict::stale_write:
      return integrity_failure(format("page %d of the request carries tag %llx", result.page.value,
                                      static_cast<unsigned long long>(result.found_tag)));
    case RowVerdict::bad_header:
      return integrity_failure("the step's inputs were not those that were planned");
    case RowVerdict::no_token:
      return integrity_failure("an earlier step of the request gave no token");
  }
  CHECK(false);
  return {};
}

}  // namespace quire
