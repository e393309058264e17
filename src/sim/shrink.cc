#include "sim/shrink.h"

#include <algorithm>
#include <optional>

#include "sim/workload.h"

namespace quire::sim {

namespace {

constexpr int kRunsMax = 600;

class Shrinker {
 public:
  Shrinker(const Case& failing, const std::function<bool(const Case&)>& fails)
      : smallest_(failing),
        fails_(fails),
        n_requests_(static_cast<int32_t>(draw_workload(failing).requests.size())) {}

  Case shrink() {
    bool got_smaller = true;
    while (got_smaller) {
      got_smaller = leave_out_requests();
      for (int i = 0; i < kFeatures; ++i) {
        const auto feature = static_cast<Feature>(i);
        if (smallest_.without.has(feature) || !draw_workload(smallest_).features.has(feature))
          continue;
        Case tried = smallest_;
        tried.without.add(feature);
        got_smaller = keep_if_failing(std::move(tried)) || got_smaller;
      }
    }
    return smallest_;
  }

 private:
  bool keep_if_failing(Case tried) {
    if (n_runs_ >= kRunsMax) return false;
    ++n_runs_;
    if (!fails_(tried)) return false;
    smallest_ = std::move(tried);
    return true;
  }

  // Ranges of the requests that are left: halves first, then ever smaller ones, last single ones.
  bool leave_out_requests() {
    bool got_smaller = false;
    for (int32_t length = std::max(1, n_requests_ / 2);; length /= 2) {
      for (int32_t begin = 0; begin < n_requests_; begin += length) {
        Case tried = smallest_;
        for (int32_t i = begin; i < std::min(begin + length, n_requests_); ++i) {
          if (!std::ranges::binary_search(smallest_.left_out, i)) tried.left_out.push_back(i);
        }
        if (tried.left_out.size() == smallest_.left_out.size()) continue;
        std::ranges::sort(tried.left_out);
        got_smaller = keep_if_failing(std::move(tried)) || got_smaller;
      }
      if (length == 1) return got_smaller;
    }
  }

  Case smallest_;
  const std::function<bool(const Case&)>& fails_;
  const int32_t n_requests_;
  int n_runs_ = 0;
};

}  // namespace

Case shrink(const Case& failing, const std::function<bool(const Case&)>& fails) {
  return Shrinker(failing, fails).shrink();
}

}  // namespace quire::sim
