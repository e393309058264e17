// quire eval: how often a model's answers are right, through the engine that serves.
//
// Greedy, many items at once, every item's turns one after the other. docs/eval.md has the report's
// form and what the controls are for.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/queue.h"
#include "base/text.h"
#include "engine/service.h"
#include "text/tokenizer.h"
#include "tools/commands.h"
#include "tools/engine_source.h"
#include "tools/eval_items.h"
#include "tools/option_value.h"
#include "tools/proportions.h"

namespace quire {

namespace {

constexpr const char* kKvControl = "kv-coarse";

struct EvalOptions {
  ModelSource source;
  std::string data_dir;  // default: the model's eval/
  std::vector<std::string> tasks;
  size_t limit = SIZE_MAX;  // items a task
  std::string kv_format = "auto";
  std::string control;
  std::string items_path;
  int32_t concurrency = 16;
  double bar = 0;
  bool json = false;
  bool with_items = false;  // in the report
};

// An item on its way.
struct Progress {
  const EvalItem* item = nullptr;
  size_t turn = 0;
  std::vector<Token> conversation;  // all that came before the present turn's answer
  bool right = true;
  bool ended = false;
};

// The end of one turn, as the engine's thread reports it.
struct TurnEnd {
  size_t item = 0;
  std::vector<Token> generated;
  bool failed = false;
};

class TurnSink final : public OutputSink {
 public:
  TurnSink(BoundedQueue<TurnEnd>& ends, size_t item) : ends_(ends) { end_.item = item; }
  void on_output(RequestOutput output) override {
    for (const GeneratedToken& token : output.tokens) end_.generated.push_back(token.token);
    if (!output.finish) return;
    end_.failed = *output.finish == FinishReason::failed;
    // The queue has room for every item in flight.
    CHECK(ends_.try_push(std::move(end_)));
  }

 private:
  BoundedQueue<TurnEnd>& ends_;
  TurnEnd end_;
};

// Runs items through an engine, `concurrency` at once.
class Evaluation {
 public:
  Evaluation(ModelEngine& engine, const EvalTokens& tokens, int32_t concurrency)
      : tokens_(tokens),
        stop_tokens_(engine.loaded.config.eos_ids),
        concurrency_(static_cast<size_t>(concurrency)),
        log_(LogLevel::warning, LogFormat::text),
        ends_(concurrency_),
        service_(engine.config, *engine.executor, clock_, log_) {
    stop_tokens_.push_back(tokens.turn_end);
  }

  // Whether each item was right.
  Result<std::vector<bool>> run(const std::vector<EvalItem>& items) {
    std::vector<Progress> all(items.size());
    size_t started = 0;
    size_t ended = 0;
    size_t right = 0;
    while (ended < items.size()) {
      while (started < items.size() && started - ended < concurrency_) {
        all[started].item = &items[started];
        TRY_OK(submit(all[started], started));
        ++started;
      }
      std::optional<TurnEnd> end = ends_.pop_for(std::chrono::seconds(1));
      if (!end) continue;
      if (end->failed) return corruption("a request failed; the log says why");
      Progress& progress = all[end->item];
      take(progress, *end);
      if (!progress.ended) {
        TRY_OK(submit(progress, end->item));
        continue;
      }
      ++ended;
      right += progress.right ? 1 : 0;
      show(items, ended, right);
    }
    std::vector<bool> out;
    for (const Progress& progress : all) out.push_back(progress.right);
    return out;
  }

 private:
  Status submit(Progress& progress, size_t index) {
    const EvalTurn& turn = progress.item->turns[progress.turn];
    progress.conversation.insert(progress.conversation.end(), turn.prompt.begin(),
                                 turn.prompt.end());
    GenerateRequest request{.prompt = progress.conversation,
                            .max_new_tokens = turn.max_new_tokens,
                            .stop_tokens = stop_tokens_};
    request.sampling.temperature = 0;
    const Result<RequestId> id =
        service_.submit(std::move(request), std::make_unique<TurnSink>(ends_, index));
    if (id.ok()) return {};
    return invalid_argument(
        format("item %s: %s", progress.item->id.c_str(), id.error().message.c_str()));
  }

  void take(Progress& progress, const TurnEnd& end) const {
    const EvalTurn& turn = progress.item->turns[progress.turn];
    progress.right = progress.right && is_right(turn, end.generated, tokens_);
    ++progress.turn;
    // A wrong turn decides the item: what follows would be asked about something else.
    progress.ended = !progress.right || progress.turn == progress.item->turns.size();
    progress.conversation.insert(progress.conversation.end(), end.generated.begin(),
                                 end.generated.end());
  }

  void show(const std::vector<EvalItem>& items, size_t ended, size_t right) {
    const int64_t now_us = clock_.now_us();
    if (ended != items.size() && now_us - shown_us_ < 1'000'000) return;
    shown_us_ = now_us;
    std::fprintf(stderr, "%s: %zu of %zu items, %zu right\n", items.front().task.c_str(), ended,
                 items.size(), right);
  }

  const EvalTokens tokens_;
  std::vector<Token> stop_tokens_;
  const size_t concurrency_;
  SteadyClock clock_;
  int64_t shown_us_ = 0;
  Log log_;
  BoundedQueue<TurnEnd> ends_;
  EngineService service_;  // last: its end reports to the queue above
};

// The tasks of a folder: one a file, in the order of their names.
Result<std::vector<std::string>> find_tasks(const std::string& dir) {
  std::vector<std::string> tasks;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::filesystem::path& path = entry.path();
    const std::string stem = path.stem().string();
    // Golden logits lie in the same folder and are no items.
    if (path.extension() == ".jsonl" && !stem.starts_with("golden")) tasks.push_back(stem);
  }
  if (tasks.empty()) return not_found(dir + ": expected <task>.jsonl files, found none");
  std::sort(tasks.begin(), tasks.end());
  return tasks;
}

Result<EvalTokens> find_tokens(const std::string& model_dir) {
  const Tokenizer tokenizer = TRY(Tokenizer::load(model_dir));
  const std::optional<Token> thoughts_end = tokenizer.special("</think>");
  const std::optional<Token> turn_end = tokenizer.special("<|im_end|>");
  if (!thoughts_end || !turn_end) {
    return unsupported("the tokenizer has no </think> or no <|im_end|>");
  }
  return EvalTokens{.thoughts_end = *thoughts_end, .turn_end = *turn_end};
}

Result<EngineSettings> engine_settings(const EvalOptions& options) {
  EngineSettings settings{.kv_format = TRY(parse_kv_format(options.kv_format)),
                          .running_requests_max = options.concurrency,
                          .queued_requests_max = options.concurrency};
  if (options.control.empty()) return settings;
  if (options.control != kKvControl) {
    return invalid_argument(
        format("control: expected %s, found '%s'", kKvControl, excerpt(options.control).c_str()));
  }
  settings.kv_format = KvFormat::fp8_e4m3_584;
  settings.fp8_bits_dropped = 2;
  return settings;
}

Status write_items(const std::vector<EvalItem>& items, const std::vector<bool>& right,
                   std::ostream& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    const Json line = {{"id", items[i].id}, {"task", items[i].task}, {"right", bool{right[i]}}};
    out << dump_json(line) << '\n';
  }
  if (!out.flush()) return unavailable("the file of items could not be written");
  return {};
}

// The items of a report, by which two runs are paired (tools/eval_compare.h).
Json item_list(const std::vector<EvalItem>& items, const std::vector<bool>& right) {
  Json out = Json::array();
  for (size_t i = 0; i < items.size(); ++i) {
    out.push_back({{"id", items[i].id}, {"right", bool{right[i]}}});
  }
  return out;
}

Json task_report(const std::string& task, const std::vector<bool>& right) {
  const auto n = static_cast<int64_t>(right.size());
  const auto n_right = std::count(right.begin(), right.end(), true);
  const Interval interval = wilson_interval(n_right, n);
  return {{"task", task},
          {"n", n},
          {"accuracy", static_cast<double>(n_right) / static_cast<double>(n)},
          {"ci95", {interval.low, interval.high}}};
}

Result<Json> run_eval(const EvalOptions& options) {
  const std::string dir =
      options.data_dir.empty() ? options.source.dir + "/eval" : options.data_dir;
  std::vector<std::string> tasks = options.tasks;
  if (tasks.empty()) tasks = TRY(find_tasks(dir));
  const EvalTokens tokens = TRY(find_tokens(options.source.dir));
  const EngineSettings settings = TRY(engine_settings(options));
  std::ofstream items_file;
  if (!options.items_path.empty()) {
    items_file.open(options.items_path);
    if (!items_file) return not_found(options.items_path + ": cannot be written");
  }
  LoadedModel loaded = TRY(load_model(options.source));
  ModelEngine engine = TRY(make_model_engine(std::move(loaded), settings));
  std::string kv(name(settings.kv_format));
  if (settings.fp8_bits_dropped > 0) kv += ", " + options.control;
  Json report = {{"model", options.source.dir},
                 {"kv", kv},
                 {"weights", std::string(name(engine.loaded.config.weights.scheme))},
                 {"tasks", Json::array()}};
  Evaluation evaluation(engine, tokens, options.concurrency);
  for (const std::string& task : tasks) {
    const std::vector<EvalItem> items =
        TRY(read_eval_items(dir + "/" + task + ".jsonl", options.limit));
    if (items.empty()) return invalid_argument(task + ": no items");
    const std::vector<bool> right = TRY(evaluation.run(items));
    report["tasks"].push_back(task_report(task, right));
    if (options.with_items) report["tasks"].back()["items"] = item_list(items, right);
    if (items_file.is_open()) TRY_OK(write_items(items, right, items_file));
  }
  return report;
}

ExitCode print_report(const Json& report, const EvalOptions& options) {
  bool passes = true;
  for (const Json& task : report["tasks"]) {
    passes = passes && task["accuracy"].get<double>() >= options.bar;
    if (options.json) continue;
    std::printf("%-12s %6d items  %6.2f %%  (95 %%: %.2f to %.2f)\n",
                task["task"].get<std::string>().c_str(), task["n"].get<int>(),
                100 * task["accuracy"].get<double>(), 100 * task["ci95"][0].get<double>(),
                100 * task["ci95"][1].get<double>());
  }
  if (options.json) std::printf("%s\n", dump_json(report).c_str());
  return passes ? ExitCode::ok : ExitCode::wrong;
}

EvalOptions read_options(const CLI::App& command) {
  EvalOptions options;
  options.source = read_backend_flags(command);
  options.source.dir = option_value(command, "--model-path", options.source.dir);
  options.data_dir = option_value(command, "--data", options.data_dir);
  options.tasks = option_value(command, "--task", options.tasks);
  options.limit = option_value(command, "--limit", options.limit);
  options.kv_format = option_value(command, "--kv-cache-dtype", options.kv_format);
  options.control = option_value(command, "--control", options.control);
  options.items_path = option_value(command, "--items", options.items_path);
  options.concurrency = option_value(command, "--concurrency", options.concurrency);
  options.bar = option_value(command, "--bar", options.bar);
  options.json = command.count("--json") > 0;
  options.with_items = command.count("--with-items") > 0;
  return options;
}

}  // namespace

void add_eval_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand("eval", "How often a model's answers are right");
  // Not `required`: `eval compare` has no model.
  command->add_option("--model-path", "Folder with config.json and safetensors; needed");
  command->add_option("--data", "Folder of <task>.jsonl files; default: eval in the model's");
  command->add_option("--task", "Only these tasks")->delimiter(',')->expected(1, 64);
  command->add_option("--limit", "Items a task, at most")->check(CLI::PositiveNumber);
  command->add_option("--kv-cache-dtype", "auto, bf16 or fp8_e4m3");
  command->add_option("--control", "A loss of precision that must show: kv-coarse");
  command->add_option("--items", "Write {\"id\",\"task\",\"right\"} of every item to this file");
  command->add_option("--concurrency", "Items at once; default 16")->check(CLI::Range(1, 1024));
  command->add_option("--bar", "Exit code 3 when a task is less accurate; 0 to 1")
      ->check(CLI::Range(0.0, 1.0));
  add_backend_flags(*command);
  command->add_flag("--json")->description("One JSON object on standard output");
  command->add_flag("--with-items")->description("Every item in it, so that two reports pair");
  add_eval_compare_command(*command, exit_code);
  command->callback([command, exit_code] {
    if (!command->get_subcommands().empty()) return;
    if (command->count("--model-path") == 0) {
      std::fprintf(stderr, "--model-path is required\n");
      *exit_code = ExitCode::usage;
      return;
    }
    const EvalOptions options = read_options(*command);
    const Result<Json> report = run_eval(options);
    *exit_code = report.ok() ? print_report(report.value(), options) : fail(report.error());
  });
}

}  // namespace quire
