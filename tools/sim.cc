// quire sim: the engine on symbolic cells, seed after seed (docs/simulation.md).
//
// Prints what the seeds came to, in words or as one JSON object; the case files of those that
// failed go to a folder when one is named. Ends with 3 when anything was wrong.
#include <algorithm>
#include <ctime>
#include <iostream>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/text.h"
#include "sim/campaign.h"
#include "sim/simulation.h"
#include "tools/option_value.h"
#include "tools/sim_command.h"

namespace quire {

namespace {

// More would say the same.
constexpr size_t kFailuresMax = 5;
constexpr size_t kCaseBytesMax = size_t{1} << 20;

Json to_json(const sim::CampaignResult& result) {
  Json out;
  out["seeds"] = result.seeds;
  out["events"] = result.total.events;
  out["engine_steps"] = result.total.engine_steps;
  out["requests"] = result.total.requests;
  out["violations"] = result.failed.size();
  out["false_alarms"] = result.total.false_alarms;
  for (size_t i = 0; i < sim::kReached; ++i) {
    const auto state = static_cast<sim::Reached>(i);
    out["states"][std::string(name(state))] = result.total[state];
  }
  for (size_t i = 0; i < sim::kPoints; ++i) {
    out["states"][std::string(name(static_cast<sim::Point>(i)))] = result.total.points[i];
  }
  return out;
}

Status save_cases(const sim::CampaignResult& result, const std::string& folder) {
  for (const sim::FailedCase& failed : result.failed) {
    const std::string path =
        folder + format("/seed_%llu.json", static_cast<unsigned long long>(failed.smallest.seed));
    TRY_OK(write_text_file(path, write_case(failed.smallest, failed.violation)));
  }
  return {};
}

// `seconds` are the processor's, which is what one core can do; each seed is run twice.
void print(const Json& out, double seconds) {
  const double per_second = 2 * out["events"].get<double>() / seconds;
  std::cout << out["seeds"] << " seeds, " << out["requests"] << " requests, " << out["engine_steps"]
            << " steps, " << out["events"] << " events (" << format("%.2g", per_second)
            << " a second): " << out["violations"] << " violations, " << out["false_alarms"]
            << " false alarms\n";
  for (const auto& [state, count] : out["states"].items()) {
    std::cout << "  " << state << " " << count << "\n";
  }
}

Result<ExitCode> run_campaign(const SimOptions& options) {
  const std::clock_t begin = std::clock();
  const sim::CampaignResult result =
      sim::run_seeds(options.first_seed, options.seeds, kFailuresMax);
  const auto ticks = static_cast<double>(std::max<std::clock_t>(1, std::clock() - begin));
  const Json out = to_json(result);
  if (options.json) {
    std::cout << dump_json(out) << "\n";
  } else {
    print(out, ticks / CLOCKS_PER_SEC);
  }
  for (const sim::FailedCase& failed : result.failed) {
    std::cerr << "seed " << failed.smallest.seed << ": " << failed.violation << "\n";
  }
  if (!options.save_folder.empty()) TRY_OK(save_cases(result, options.save_folder));
  return result.failed.empty() ? ExitCode::ok : ExitCode::wrong;
}

Result<ExitCode> replay(const std::string& path) {
  const std::string text = TRY(read_text_file(path, kCaseBytesMax));
  const sim::Report report = sim::run_twice(TRY(sim::read_case(text)), sim::ServedText());
  std::cout << (report.violation.empty() ? "right" : report.violation) << "\n";
  return report.violation.empty() ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace

void add_sim_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand("sim", "Simulate the engine, seed after seed");
  command->add_option("--seeds", "How many, each run twice (default 1000)");
  command->add_option("--first-seed", "The first (default 1)");
  command->add_option("--replay", "Run this case file instead");
  command->add_option("--faults", "Plant these (all, or F01,F02,...), each --seeds times");
  command->add_option("--without", "With --faults: checks that are off (tags,writes,seals,...)");
  command->add_option("--retry", "With --faults: --integrity-retry of the engine (default 0)");
  command->add_option("--save", "Folder for the cases that failed, as small as they could be made");
  command->add_flag("--json")->description("One JSON object");
  command->callback([command, exit_code] {
    SimOptions options;
    options.seeds = option_value<uint64_t>(*command, "--seeds", 1000);
    options.first_seed = option_value<uint64_t>(*command, "--first-seed", 1);
    options.replay = option_value<std::string>(*command, "--replay", {});
    options.save_folder = option_value<std::string>(*command, "--save", {});
    options.faults = option_value<std::string>(*command, "--faults", {});
    options.without = option_value<std::string>(*command, "--without", {});
    options.retries = option_value<int32_t>(*command, "--retry", 0);
    options.json = command->count("--json") > 0;
    const Result<ExitCode> end = !options.replay.empty()   ? replay(options.replay)
                                 : !options.faults.empty() ? run_fault_campaign(options)
                                                           : run_campaign(options);
    *exit_code = end.ok() ? end.value() : fail(end.error());
  });
}

}  // namespace quire
