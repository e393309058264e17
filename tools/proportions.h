// How sure a share is that was counted: 95 % intervals of one share and of the difference of two.
//
// Pure arithmetic. Which shares, and what follows from an interval, is the caller's.
#pragma once

#include <cstdint>

namespace quire {

struct Interval {
  double low = 0;
  double high = 1;
};

// The interval of Wilson for `right` of `n`, n > 0. E. B. Wilson 1927, "Probable inference, the law
// of succession, and statistical inference".
Interval wilson_interval(int64_t right, int64_t n);

// Two runs over the same n items: those that only the first has right, and only the second.
struct PairedCounts {
  int64_t n = 0;
  int64_t lost = 0;
  int64_t won = 0;
};

// Of (won - lost) / n. D. G. Bonett and R. M. Price 2012, "Adjusted Wald confidence interval for a
// difference of binomial proportions based on paired data": one item is added to each kind that
// differs, so that n items without a difference still leave room for one. n > 0.
Interval paired_difference_interval(const PairedCounts& counts);

// How likely a split of the items that differ at least as uneven as this one is if neither run is
// better: McNemar's test, exact and two-sided. 1 when none differs.
double mcnemar_p(const PairedCounts& counts);

// Of second - first, for two runs whose items do not pair. R. G. Newcombe 1998, "Interval
// estimation for the difference between independent proportions", method 10. Both n > 0.
struct Counted {
  int64_t right = 0;
  int64_t n = 0;
};
Interval difference_interval(const Counted& first, const Counted& second);

}  // namespace quire
