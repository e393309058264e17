#include "tools/eval_compare.h"

#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr int64_t kFileBytesMax = int64_t{256} << 20;
constexpr double kChance = 0.05;  // as the intervals of 95 % have it

using Outcomes = std::map<std::string, TaskOutcome>;

Error malformed(const std::string& path, const std::string& what) {
  return invalid_argument(path + ": " + what);
}

Result<std::string> string_in(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) {
    return invalid_argument(format("expected \"%s\" to be a string", name));
  }
  return found->get<std::string>();
}

// Takes {"id", "right"} into `outcome`.
Status take_item(const Json& item, TaskOutcome* outcome) {
  if (!item.is_object()) return invalid_argument("expected an item to be an object");
  const std::string id = TRY(string_in(item, "id"));
  const auto right = item.find("right");
  if (right == item.end() || !right->is_boolean()) {
    return invalid_argument("expected \"right\" to be true or false");
  }
  if (!outcome->right) outcome->right.emplace();
  if (!outcome->right->emplace(id, right->get<bool>()).second) {
    return invalid_argument("item '" + excerpt(id) + "' is there twice");
  }
  ++outcome->counted.n;
  outcome->counted.right += right->get<bool>() ? 1 : 0;
  return {};
}

// Without items: n and accuracy, which give a whole number of right answers.
Result<Counted> counted_of(const Json& task) {
  const auto n = task.find("n");
  const auto accuracy = task.find("accuracy");
  if (n == task.end() || !n->is_number_integer() || n->get<int64_t>() <= 0 ||
      accuracy == task.end() || !accuracy->is_number()) {
    return invalid_argument("expected a task to have \"n\" above 0 and \"accuracy\"");
  }
  const double share = accuracy->get<double>();
  if (!(share >= 0 && share <= 1)) return invalid_argument("expected \"accuracy\" in 0 to 1");
  const auto count = n->get<int64_t>();
  return Counted{.right = std::llround(share * static_cast<double>(count)), .n = count};
}

Result<TaskOutcome> read_task(const Json& task) {
  TaskOutcome outcome;
  const auto items = task.find("items");
  if (items == task.end()) {
    outcome.counted = TRY(counted_of(task));
    return outcome;
  }
  if (!items->is_array() || items->empty()) {
    return invalid_argument("expected \"items\" to be a list with items");
  }
  for (const Json& item : *items) TRY_OK(take_item(item, &outcome));
  return outcome;
}

Result<Outcomes> read_report(const Json& report) {
  Outcomes out;
  const auto tasks = report.find("tasks");
  if (tasks == report.end() || !tasks->is_array()) {
    return invalid_argument("expected a report with \"tasks\"");
  }
  for (const Json& task : *tasks) {
    if (!task.is_object()) return invalid_argument("expected a task to be an object");
    const std::string name = TRY(string_in(task, "task"));
    TaskOutcome outcome = TRY(read_task(task));
    if (!out.emplace(name, std::move(outcome)).second) {
      return invalid_argument("task '" + excerpt(name) + "' is there twice");
    }
  }
  return out;
}

Status take_line(std::string_view line, Outcomes* out) {
  const Json item = TRY(parse_json(line));
  if (!item.is_object()) return invalid_argument("expected an object");
  const std::string task = TRY(string_in(item, "task"));
  return take_item(item, &(*out)[task]);
}

Result<Outcomes> read_lines(std::string_view text) {
  Outcomes out;
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.empty()) continue;
    if (Status status = take_line(line, &out); !status.ok()) {
      return invalid_argument(
          format("line %lld: %s", static_cast<long long>(number), status.error().message.c_str()));
    }
  }
  return out;
}

// Where the exact test and the interval do not agree, nothing is said.
Finding finding_of(const TaskComparison& task) {
  if (task.pairs && task.p >= kChance) return Finding::none;
  if (task.difference_ci.low > 0) return Finding::gain;
  return task.difference_ci.high < 0 ? Finding::loss : Finding::none;
}

void conclude(TaskComparison* out) {
  const auto share = [](const Counted& counted) {
    return static_cast<double>(counted.right) / static_cast<double>(counted.n);
  };
  out->first_ci = wilson_interval(out->first.right, out->first.n);
  out->second_ci = wilson_interval(out->second.right, out->second.n);
  out->difference = share(out->second) - share(out->first);
  if (out->pairs) {
    out->difference_ci = paired_difference_interval(*out->pairs);
    out->p = mcnemar_p(*out->pairs);
  } else {
    out->difference_ci = difference_interval(out->first, out->second);
  }
  out->finding = finding_of(*out);
}

// Pairs what both runs have; the counts are of those items alone.
void pair_items(const TaskOutcome& first, const TaskOutcome& second, TaskComparison* out) {
  PairedCounts pairs;
  for (const auto& [id, was_right] : *first.right) {
    const auto found = second.right->find(id);
    if (found == second.right->end()) continue;
    const bool is_right = found->second;
    ++pairs.n;
    out->first.right += was_right ? 1 : 0;
    out->second.right += is_right ? 1 : 0;
    pairs.lost += was_right && !is_right ? 1 : 0;
    pairs.won += !was_right && is_right ? 1 : 0;
  }
  out->first.n = out->second.n = pairs.n;
  out->unpaired = first.counted.n + second.counted.n - 2 * pairs.n;
  out->pairs = pairs;
}

TaskComparison compare_task(const std::string& task, const TaskOutcome& first,
                            const TaskOutcome& second) {
  TaskComparison out{.task = task};
  if (first.right && second.right) pair_items(first, second, &out);
  if (!out.pairs || out.pairs->n == 0) {
    // Nothing to pair: two samples.
    out.pairs.reset();
    out.unpaired = 0;
    out.first = first.counted;
    out.second = second.counted;
  }
  conclude(&out);
  return out;
}

TaskComparison add_up(const std::vector<TaskComparison>& tasks) {
  TaskComparison all{.task = "all", .pairs = PairedCounts{}};
  for (const TaskComparison& task : tasks) {
    if (!task.pairs) continue;
    all.first.right += task.first.right;
    all.second.right += task.second.right;
    all.pairs->n += task.pairs->n;
    all.pairs->lost += task.pairs->lost;
    all.pairs->won += task.pairs->won;
  }
  all.first.n = all.second.n = all.pairs->n;
  return all;
}

}  // namespace

Result<std::map<std::string, TaskOutcome>> read_outcomes(const std::string& path) {
  const std::string text = TRY(read_text_file(path, kFileBytesMax));
  // A report is one object; of several lines, the first alone is one, too, and has no tasks.
  const std::string_view first_line = std::string_view(text).substr(0, text.find('\n'));
  const Result<Json> first = parse_json(first_line);
  const bool are_lines = first.ok() && first.value().is_object() && first.value().contains("right");
  Result<Outcomes> out = Outcomes{};
  if (are_lines) {
    out = read_lines(text);
  } else {
    const Result<Json> report = parse_json(text);
    if (!report.ok()) return malformed(path, report.error().message);
    if (!report.value().is_object()) return malformed(path, "expected a report or lines of items");
    out = read_report(report.value());
  }
  if (!out.ok()) return malformed(path, out.error().message);
  if (out.value().empty()) return malformed(path, "no task is in it");
  return out;
}

Result<std::vector<TaskComparison>> compare_outcomes(
    const std::map<std::string, TaskOutcome>& first,
    const std::map<std::string, TaskOutcome>& second) {
  std::vector<TaskComparison> out;
  for (const auto& [task, outcome] : first) {
    const auto found = second.find(task);
    if (found != second.end()) out.push_back(compare_task(task, outcome, found->second));
  }
  if (out.empty()) return invalid_argument("the two runs have no task in common");
  TaskComparison all = add_up(out);
  if (out.size() > 1 && all.pairs->n > 0) {
    conclude(&all);
    out.push_back(std::move(all));
  }
  return out;
}

}  // namespace quire
