// DecodeRecordings: the batch sizes that a backend knows decode steps of by heart.
//
// A step of n rows runs as one of the smallest recorded size that holds it; the rest is padding,
// which costs little where it is attention and some weights where it is experts: small sizes are
// all there, larger ones in steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ops/backend.h"

namespace quire {

// Ascending; the last is `rows_max`.
std::vector<int64_t> decode_batch_sizes(int64_t rows_max);

class DecodeRecordings {
 public:
  struct Recorded {
    int64_t n_rows = 0;
    RecordingId recording;
  };

  // Records `step(n)` for every size up to `rows_max`, largest first. `warm_up(n)` carries it out
  // once before. Errors: as Backend::record.
  Status record(Backend& backend, int64_t rows_max, const std::function<void(int64_t)>& warm_up,
                const std::function<void(int64_t)>& step);

  // The smallest recorded size of at least `n_rows`; nothing when nothing was recorded.
  std::optional<Recorded> find(int64_t n_rows) const;
  size_t size() const { return recorded_.size(); }

 private:
  std::vector<Recorded> recorded_;  // by size, ascending
};

}  // namespace quire
