// Two runs of the same tasks, compared: what differs by more than noise, and what does not.
//
// Reads what `quire eval` and evals/ write, and judges. Printing is
// tools/eval_compare_command.cc's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tools/proportions.h"

namespace quire {

// What a run says of a task. `right` holds every item where the run names them; else only counts
// are known, and two runs cannot be paired.
struct TaskOutcome {
  Counted counted;
  std::optional<std::map<std::string, bool>> right;  // by item id
};

// Tasks by name. A file is either a report, {"tasks": [{"task", "n", "accuracy", "items"?}]} with
// `items` a list of {"id","right"}, or one item a line, {"id","task","right"}.
// Errors: as read_text_file; invalid_argument, which names the file.
Result<std::map<std::string, TaskOutcome>> read_outcomes(const std::string& path);

enum class Finding : uint8_t {
  none,  // the interval holds zero, or the exact test of pairs is not sure: nothing is said
  gain,
  loss,
};

struct TaskComparison {
  std::string task;
  Counted first, second;         // of the items that are compared
  Interval first_ci, second_ci;  // Wilson
  double difference = 0;         // second - first
  Interval difference_ci;
  std::optional<PairedCounts> pairs;  // when items pair
  double p = 1;                       // McNemar's; 1 when unpaired
  int64_t unpaired = 0;               // items that only one run has: left out
  Finding finding = Finding::none;

  // Whether a loss of more than `margin` is ruled out.
  bool is_within(double margin) const { return difference_ci.low >= -margin; }
};

// Tasks that both have, in order of name, and "all" for their paired items together when there are
// several. Errors: invalid_argument when they have none in common.
Result<std::vector<TaskComparison>> compare_outcomes(
    const std::map<std::string, TaskOutcome>& first,
    const std::map<std::string, TaskOutcome>& second);

}  // namespace quire
