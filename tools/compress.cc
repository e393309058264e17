// quire compress: a BF16 or FP8 checkpoint becomes an INT4, FP8 or NVFP4 one (docs/compress.md).
#include "compress/compress.h"

#include <csignal>
#include <cstdio>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/text.h"
#include "compress/quantization_config.h"
#include "compress/report.h"
#include "model/config.h"
#include "tools/commands.h"
#include "tools/gpu_budget_flags.h"
#include "tools/option_value.h"
#include "tools/progress_bar.h"
#include "weights/shard_writer.h"

namespace quire {

namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;
constexpr int kThreadsMax = 256;
constexpr int kPatternsMax = 1000;
constexpr int64_t kShardMegabytes = 4295;  // 4 GiB
constexpr int64_t kShardMegabytesMax = 1'000'000;

struct CompressCommand {
  CompressFolders folders;
  CompressOptions options;
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

void print_summary(const CompressPlan& plan, const Compression& compression,
                   const Estimates& ranks) {
  std::printf("%-10s %9s %11s %11s %10s %10s\n", "to", "tensors", "before", "after", "error",
              "cosine");
  for (const ConversionTotal& total : total_by_conversion(plan, compression.errors())) {
    std::printf("%-10s %9lld %11s %11s", std::string(name_after(total.conversion)).c_str(),
                static_cast<long long>(total.n_tensors), human_bytes(total.bytes_before).c_str(),
                human_bytes(total.bytes_after).c_str());
    if (total.conversion == Conversion::copy) {
      std::printf("\n");
    } else {
      std::printf(" %9.4f%% %10.6f\n", total.error.relative() * 100, total.error.cosine());
    }
  }
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

Status run(const CompressCommand& command) {
  const std::string& input_dir = command.folders.input;
  const ModelConfig config = TRY(read_model_config(input_dir));
  const std::string config_text = TRY(read_text_file(input_dir + "/config.json", kConfigBytesMax));
  if (TRY(read_partition(input_dir))) {
    return unsupported(input_dir + " is a rank's part: compress the whole, then cut it");
  }
  const Checkpoint input = TRY(Checkpoint::open(input_dir));
  const CompressPlan plan =
      TRY(plan_compression(input, config.shape, config.weights, command.options));
  const std::string new_config = TRY(compressed_config(config_text, plan));
  const ModelConfig after = TRY(parse_model_config(new_config));
  const Estimates ranks{
      .before = TRY(estimate(input, config, command.gpu)),
      .after = TRY(estimate(planned_checkpoint(plan, command.folders.output), after, command.gpu))};
  Compression compression = TRY(Compression::begin(command.folders, plan, input));
  if (compression.n_resumed() > 0) {
    std::fprintf(stderr, "%lld of %zu files are whole already\n",
                 static_cast<long long>(compression.n_resumed()), plan.shards.size());
  }
  ProgressBar bar("compressing " + input_dir);
  TRY_OK(compression.write_shards(
      command.n_threads, [&bar](int64_t done, int64_t total) { bar.update(done, total); }));
  bar.finish();
  Json report = report_json(plan, compression.errors());
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
  command->add_option("--method", "rtn: to the nearest value, at the scale of the least error")
      ->check(CLI::IsMember({"rtn"}));
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
