// quire compress: a BF16 or FP8 checkpoint becomes an INT4, FP8 or NVFP4 one (docs/compress.md).
#include "compress/compress.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/text.h"
#include "compress/calibrated_job.h"
#include "compress/quantization_config.h"
#include "compress/report.h"
#include "model/config.h"
#include "tools/calibration_texts.h"
#include "tools/commands.h"
#include "tools/gpu_budget_flags.h"
#include "tools/model_source.h"
#include "tools/option_value.h"
#include "tools/progress_bar.h"
#include "weights/shard_writer.h"

namespace quire {

namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;
constexpr int kThreadsMax = 256;
constexpr int kPatternsMax = 1000;
constexpr int kCalibrationFilesMax = 1000;
constexpr int64_t kShardMegabytes = 4295;  // 4 GiB
constexpr int64_t kShardMegabytesMax = 1'000'000;

struct CompressCommand {
  CompressFolders folders;
  CompressOptions options;
  std::vector<std::string> calibration;  // files; of gptq
  int64_t calibration_tokens = std::numeric_limits<int64_t>::max();
  std::string activations;  // a folder; empty: a hidden one of the output
  GpuBudget gpu;
  int n_threads = 1;
};

// The weights before and after, on one machine.
struct Estimates {
  std::vector<RankEstimate> before;
  std::vector<RankEstimate> after;
};

Result<std::vector<RankEstimate>> estimate(const Checkpoint& checkpoint, const ModelConfig& config,
                                           const GpuBudget& gpu) {
  const std::vector<ResolvedTensor> tensors =
      TRY(resolve_checkpoint(checkpoint, config.shape, config.weights,
                             scope_of(checkpoint, config.shape, config.weights.naming)));
  return estimate_ranks(tensors, config, gpu);
}

void print_calibration(const Compression& compression) {
  const std::optional<CalibrationTotal> total = total_calibration(compression.losses());
  if (!total) return;
  std::printf(
      "calibrated: %lld tensors by GPTQ, outputs off by %.4f%% (to nearest: %.4f%%); to nearest: "
      "%lld that saw fewer than %lld tokens, %lld that GPTQ made no better\n",
      static_cast<long long>(total->n_calibrated), total->outputs.kept_relative() * 100,
      total->outputs.rtn_relative() * 100, static_cast<long long>(total->n_too_few),
      static_cast<long long>(kCalibrationTokensMin), static_cast<long long>(total->n_not_better));
}

void print_summary(const CompressPlan& plan, const Compression& compression,
                   const Estimates& ranks) {
  std::printf("%-10s %9s %11s %11s %10s %10s\n", "to", "tensors", "before", "after", "error",
              "cosine");
  for (const ConversionTotal& total : total_by_conversion(plan, compression.losses())) {
    std::printf("%-10s %9lld %11s %11s", std::string(name_after(total.conversion)).c_str(),
                static_cast<long long>(total.n_tensors), human_bytes(total.bytes_before).c_str(),
                human_bytes(total.bytes_after).c_str());
    if (total.conversion == Conversion::copy) {
      std::printf("\n");
    } else {
      std::printf(" %9.4f%% %10.6f\n", total.error.relative() * 100, total.error.cosine());
    }
  }
  print_calibration(compression);
  std::printf("%-10s %9s %11s %11s\n", "all", "", human_bytes(plan.bytes_in).c_str(),
              human_bytes(plan.bytes_out).c_str());
  for (size_t i = 0; i < ranks.after.size(); ++i) {
    const RankEstimate& rank = ranks.after[i];
    if (!rank.refused.empty()) continue;
    std::printf("tp %2lld: %s of weights a GPU and %lld KV tokens (before: %s and %lld)\n",
                static_cast<long long>(rank.n_ranks), human_bytes(rank.weight_bytes).c_str(),
                static_cast<long long>(rank.kv_tokens),
                human_bytes(ranks.before[i].weight_bytes).c_str(),
                static_cast<long long>(ranks.before[i].kv_tokens));
  }
}

// What the experts are given by the texts, on the disk: run through the engine, unless an earlier
// run did.
Result<ActivationRecord> calibrate(const CompressCommand& command, const ModelConfig& config,
                                   const CalibrationTexts& texts, const std::string& dir) {
  const std::string& input_dir = command.folders.input;
  const std::string identity = TRY(describe_calibration(input_dir, texts));
  if (!TRY(ActivationRecord::is_there(dir, identity))) {
    const LoadedModel loaded = TRY(load_model({.dir = input_dir, .n_threads = command.n_threads}));
    ProgressBar bar("calibrating", ProgressUnit::tokens);
    TRY_OK(ActivationRecord::make(
        dir, identity,
        {.config = loaded.config, .weights = *loaded.weights, .backend = *loaded.backend}, texts,
        [&bar](int64_t done, int64_t total) { bar.update(done, total); }));
    bar.finish();
  }
  return ActivationRecord::open(dir, config.shape);
}

Status run(CompressCommand command) {
  const std::string& input_dir = command.folders.input;
  const ModelConfig config = TRY(read_model_config(input_dir));
  const std::string config_text = TRY(read_text_file(input_dir + "/config.json", kConfigBytesMax));
  if (TRY(read_partition(input_dir))) {
    return unsupported(input_dir + " is a rank's part: compress the whole, then cut it");
  }
  const bool is_calibrated = command.options.method == Method::gptq;
  CalibrationTexts texts;
  if (is_calibrated) {
    texts = TRY(read_calibration_texts(command.calibration, input_dir, command.calibration_tokens));
    command.options.calibration = fingerprint(texts);
  }
  const Checkpoint input = TRY(Checkpoint::open(input_dir));
  const CompressPlan plan =
      TRY(plan_compression(input, config.shape, config.weights, command.options));
  const std::string new_config = TRY(compressed_config(config_text, plan));
  const ModelConfig after = TRY(parse_model_config(new_config));
  const Estimates ranks{
      .before = TRY(estimate(input, config, command.gpu)),
      .after = TRY(estimate(planned_checkpoint(plan, command.folders.output), after, command.gpu))};
  int n_threads = command.n_threads;
  if (is_calibrated) {
    const std::unique_ptr<Backend> backend = TRY(make_backend({.n_threads = 1}));
    n_threads = TRY(threads_that_fit(plan, n_threads, backend->memory_info().free));
    if (n_threads < command.n_threads) {
      std::fprintf(stderr, "memory is there for %d of %d threads\n", n_threads, command.n_threads);
    }
  }
  Compression compression = TRY(Compression::begin(command.folders, plan, input));
  if (compression.n_resumed() > 0) {
    std::fprintf(stderr, "%lld of %zu files are whole already\n",
                 static_cast<long long>(compression.n_resumed()), plan.shards.size());
  }
  std::optional<ActivationRecord> activations;
  if (is_calibrated) {
    const std::string dir =
        command.activations.empty() ? compression.own_activations() : command.activations;
    activations.emplace(TRY(calibrate(command, config, texts, dir)));
  }
  ProgressBar bar("compressing " + input_dir);
  TRY_OK(
      compression.write_shards(n_threads, activations ? &*activations : nullptr,
                               [&bar](int64_t done, int64_t total) { bar.update(done, total); }));
  bar.finish();
  Json report = report_json(plan, compression.losses());
  report["ranks_before"] = to_json(std::span<const RankEstimate>(ranks.before));
  report["ranks_after"] = to_json(std::span<const RankEstimate>(ranks.after));
  TRY_OK(compression.finish(new_config, dump_json(report) + "\n"));
  print_summary(plan, compression, ranks);
  return {};
}

Status read_patterns(const CLI::App& command, const char* flag, CompressOptions* options,
                     std::vector<NamePattern>* out) {
  for (const std::string& text : option_value(command, flag, std::vector<std::string>())) {
    out->push_back(TRY(NamePattern::parse(text)));
    options->pattern_texts.push_back(std::string(flag) + " " + text);
  }
  return {};
}

Status read_method(const CLI::App& command, CompressCommand* out) {
  const bool is_gptq = option_value(command, "--method", std::string("rtn")) == "gptq";
  for (const char* flag : {"--calibration", "--calibration-tokens", "--activations"}) {
    if (!is_gptq && command.count(flag) > 0) {
      return invalid_argument(std::string(flag) + " is of --method gptq");
    }
  }
  if (!is_gptq) return {};
  if (out->options.format != TargetFormat::int4) {
    return invalid_argument("--method gptq is of --format int4");
  }
  if (command.count("--calibration") == 0) {
    return invalid_argument("--method gptq needs --calibration FILE: text like the model's use");
  }
  out->options.method = Method::gptq;
  out->calibration = option_value(command, "--calibration", out->calibration);
  out->calibration_tokens = option_value(command, "--calibration-tokens", out->calibration_tokens);
  out->activations = option_value(command, "--activations", out->activations);
  return {};
}

Result<CompressCommand> read_command(const CLI::App& command) {
  CompressCommand out;
  out.folders.input = option_value(command, "--input", std::string());
  out.folders.output = option_value(command, "--output", std::string());
  CompressOptions& options = out.options;
  options.format = TRY(parse_target_format(option_value(command, "--format", std::string())));
  if (options.format != TargetFormat::int4 && command.count("--group-size") > 0) {
    return invalid_argument("--group-size is of int4; " + std::string(name(options.format)) +
                            " has groups of its own");
  }
  options.group = option_value(command, "--group-size", options.group);
  TRY_OK(read_method(command, &out));
  options.shard_bytes = option_value(command, "--max-shard-size", kShardMegabytes) * 1'000'000;
  TRY_OK(read_patterns(command, "--include", &options, &options.include));
  TRY_OK(read_patterns(command, "--exclude", &options, &options.exclude));
  out.gpu = TRY(read_gpu_budget(command));
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  out.n_threads = option_value(command, "--threads", cores);
  return out;
}

}  // namespace

void add_compress_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command =
      app.add_subcommand("compress", "Write a BF16 or FP8 checkpoint in a smaller format");
  command->add_option("--input", "Model folder, BF16 or FP8 in 128 x 128 blocks")->required();
  command->add_option("--output", "Folder to write: new, empty, or begun by the same command")
      ->required();
  command->add_option("--format", "int4, fp8 or nvfp4")->required();
  command->add_option("--group-size", "Of int4: 32 or 128; default 32")
      ->check(CLI::IsMember({32, 128}));
  command
      ->add_option("--method",
                   "rtn: to the nearest value, at the scale of the least error; gptq, of int4: "
                   "experts for the outputs that --calibration gives them")
      ->check(CLI::IsMember({"rtn", "gptq"}));
  command->add_option("--calibration", "JSON lines of text, ids, or items of quire eval")
      ->expected(1, kCalibrationFilesMax)
      ->allow_extra_args(false);
  command->add_option("--calibration-tokens", "Only the first of them; default: all")
      ->check(CLI::PositiveNumber);
  command->add_option("--activations",
                      "Folder for what calibration gives the experts, kept for another run; "
                      "default: in --output, until it is whole");
  command->add_option("--include", "Modules to quantise beside the default; a name or re:PATTERN")
      ->expected(1, kPatternsMax)
      ->allow_extra_args(false);
  command->add_option("--exclude", "Modules to leave as they are; a name or re:PATTERN")
      ->expected(1, kPatternsMax)
      ->allow_extra_args(false);
  command->add_option("--max-shard-size", "Weights in a file, in MB (10^6 bytes); default 4295")
      ->check(CLI::Range(int64_t{1}, kShardMegabytesMax));
  command->add_option("--threads", "Default: as many as there are cores")
      ->check(CLI::Range(1, kThreadsMax));
  add_gpu_budget_flags(*command);
  command->callback([command, exit_code] {
    // A file past the limit of the process is an error of the write, not the end of the process.
    std::signal(SIGXFSZ, SIG_IGN);
    const Result<CompressCommand> read = read_command(*command);
    const Status status = read.ok() ? run(read.value()) : Status(read.error());
    *exit_code = status.ok() ? ExitCode::ok : fail(status.error());
  });
}

}  // namespace quire
