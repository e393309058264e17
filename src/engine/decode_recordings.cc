#include "engine/decode_recordings.h"

#include <algorithm>

namespace quire {

std::vector<int64_t> decode_batch_sizes(int64_t rows_max) {
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n < rows_max;) {
    sizes.push_back(n);
    n += n < 16 ? 1 : n < 64 ? 4 : n < 128 ? 8 : 32;
  }
  sizes.push_back(rows_max);
  return sizes;
}

Status DecodeRecordings::record(Backend& backend, int64_t rows_max,
                                const std::function<void(int64_t)>& warm_up,
                                const std::function<void(int64_t)>& step) {
  CHECK(recorded_.empty());
  const std::vector<int64_t> sizes = decode_batch_sizes(rows_max);
  for (auto n = sizes.rbegin(); n != sizes.rend(); ++n) {
    warm_up(*n);
    Result<RecordingId> made = backend.record([step, n_rows = *n] { step(n_rows); });
    if (!made.ok()) {
      recorded_.clear();
      return std::move(made).error();
    }
    recorded_.push_back({*n, made.value()});
  }
  std::ranges::reverse(recorded_);
  return {};
}

std::optional<DecodeRecordings::Recorded> DecodeRecordings::find(int64_t n_rows) const {
  const auto found = std::ranges::lower_bound(recorded_, n_rows, {}, &Recorded::n_rows);
  return found == recorded_.end() ? std::nullopt : std::optional(*found);
}

}  // namespace quire
