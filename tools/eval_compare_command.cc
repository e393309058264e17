// quire eval compare: two runs beside each other, with intervals (docs/eval.md, "Comparing").
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "tools/commands.h"
#include "tools/eval_compare.h"
#include "tools/option_value.h"

namespace quire {

namespace {

struct CompareOptions {
  std::string first, second;
  std::optional<double> margin;  // of accuracy, 0 to 1
  bool json = false;
};

const char* name(Finding finding) {
  switch (finding) {
    case Finding::none:
      return "none";
    case Finding::gain:
      return "gain";
    case Finding::loss:
      return "loss";
  }
  return "none";
}

Json to_json(const TaskComparison& task, const CompareOptions& options) {
  const auto run = [](const Counted& counted, const Interval& ci) {
    return Json{{"n", counted.n},
                {"accuracy", static_cast<double>(counted.right) / static_cast<double>(counted.n)},
                {"ci95", {ci.low, ci.high}}};
  };
  Json out = {{"task", task.task},
              {"a", run(task.first, task.first_ci)},
              {"b", run(task.second, task.second_ci)},
              {"difference", task.difference},
              {"ci95", {task.difference_ci.low, task.difference_ci.high}},
              {"method", task.pairs ? "paired: Bonett and Price 2012" : "unpaired: Newcombe 1998"},
              {"finding", name(task.finding)}};
  if (task.pairs) {
    out["lost"] = task.pairs->lost;
    out["won"] = task.pairs->won;
    out["mcnemar_p"] = task.p;
    out["unpaired"] = task.unpaired;
  }
  if (options.margin) out["within_margin"] = task.is_within(*options.margin);
  return out;
}

// In percent of items.
void print_row(const TaskComparison& task, const CompareOptions& options) {
  const auto percent = [](const Counted& counted) {
    return 100 * static_cast<double>(counted.right) / static_cast<double>(counted.n);
  };
  std::string pairs = "unpaired";
  if (task.pairs) {
    pairs = format("-%lld +%lld  p %.3f", static_cast<long long>(task.pairs->lost),
                   static_cast<long long>(task.pairs->won), task.p);
  }
  std::string words;
  if (task.finding != Finding::none) words += std::string("  ") + name(task.finding);
  if (options.margin) words += task.is_within(*options.margin) ? "  within" : "  not shown within";
  if (task.unpaired > 0) {
    words += format("  (%lld items left out: only one run has them)",
                    static_cast<long long>(task.unpaired));
  }
  std::printf("%-12s %6lld  %6.2f  %6.2f  %+6.2f  (%+.2f to %+.2f)  %s%s\n", task.task.c_str(),
              static_cast<long long>(task.first.n), percent(task.first), percent(task.second),
              100 * task.difference, 100 * task.difference_ci.low, 100 * task.difference_ci.high,
              pairs.c_str(), words.c_str());
}

void print(const std::vector<TaskComparison>& tasks, const CompareOptions& options) {
  if (options.json) {
    Json out = {{"a", options.first}, {"b", options.second}, {"tasks", Json::array()}};
    if (options.margin) out["margin"] = *options.margin;
    for (const TaskComparison& task : tasks) out["tasks"].push_back(to_json(task, options));
    std::printf("%s\n", dump_json(out).c_str());
    return;
  }
  std::printf("a: %s\nb: %s\n", options.first.c_str(), options.second.c_str());
  std::printf("%-12s %6s  %6s  %6s  %6s  %s\n", "task", "items", "a %", "b %", "b - a",
              "(95 %)  items lost and won");
  for (const TaskComparison& task : tasks) print_row(task, options);
}

Result<ExitCode> run_compare(const CompareOptions& options) {
  const auto first = TRY(read_outcomes(options.first));
  const auto second = TRY(read_outcomes(options.second));
  const std::vector<TaskComparison> tasks = TRY(compare_outcomes(first, second));
  print(tasks, options);
  bool is_good = true;
  for (const TaskComparison& task : tasks) {
    const bool passes =
        options.margin ? task.is_within(*options.margin) : task.finding != Finding::loss;
    is_good = is_good && passes;
  }
  return is_good ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace

void add_eval_compare_command(CLI::App& eval, ExitCode* exit_code) {
  CLI::App* command = eval.add_subcommand("compare", "Two runs, and where they differ for certain");
  command->add_option("A", "A report of quire eval or evals/, or its file of items")->required();
  command->add_option("B", "The same of the run that is compared with it")->required();
  command
      ->add_option("--margin",
                   "Exit code 3 unless every task is shown to lose less than this; "
                   "a share of items, 0.008 for 0.8 points. Default: 3 when a task is a loss")
      ->check(CLI::Range(0.0, 1.0));
  command->add_flag("--json")->description("One JSON object on standard output");
  command->callback([command, exit_code] {
    CompareOptions options;
    options.first = option_value(*command, "A", options.first);
    options.second = option_value(*command, "B", options.second);
    if (command->count("--margin") > 0) options.margin = option_value(*command, "--margin", 0.0);
    options.json = command->count("--json") > 0;
    const Result<ExitCode> code = run_compare(options);
    *exit_code = code.ok() ? code.value() : fail(code.error());
  });
}

}  // namespace quire
