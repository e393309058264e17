// quire shard: one rank's part of a checkpoint, or of dummy weights, as a model folder of its own.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>

#include "base/mapped_file.h"
#include "base/text.h"
#include "model/config.h"
#include "tools/commands.h"
#include "tools/model_source.h"
#include "tools/option_value.h"
#include "tools/progress_bar.h"
#include "weights/dummy.h"
#include "weights/shard_writer.h"

namespace quire {

namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;

Status run(const ModelSource& source, const std::string& out_dir) {
  const auto begin = std::chrono::steady_clock::now();
  const ModelConfig config = TRY(read_model_config(source.dir));
  // Cutting needs no forward pass: only the formats have to be known.
  if (config.weights.scheme == WeightScheme::other) {
    return unsupported(source.dir + ": weight format " + config.weights.scheme_text +
                       " is not supported");
  }
  const bool is_dummy = source.load_format == LoadFormat::dummy;
  if (!is_dummy && TRY(read_partition(source.dir))) {
    return invalid_argument(source.dir + " is a rank's part already");
  }
  std::error_code failed;
  std::filesystem::create_directories(out_dir, failed);
  if (failed) return unavailable(out_dir + ": " + failed.message());
  const int usable = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const LoadRequest request{
      .checkpoint = is_dummy ? dummy_checkpoint(source.dir, config.shape, config.weights)
                             : TRY(Checkpoint::open(source.dir)),
      .shape = config.shape,
      .source = config.weights,
      .partition = source.share.value_or(Partition{}),
      .n_threads = source.n_threads > 0 ? source.n_threads : usable};
  const std::string config_json = TRY(read_text_file(source.dir + "/config.json", kConfigBytesMax));
  ProgressBar bar("writing " + out_dir);
  const WrittenShard written =
      TRY(write_shard(request, out_dir, config_json,
                      [&bar](int64_t done, int64_t total) { bar.update(done, total); }));
  bar.finish();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%s: rank %lld of %lld%s: %lld arrays, %s in %lld files, %.1f s\n", out_dir.c_str(),
              static_cast<long long>(request.partition.rank),
              static_cast<long long>(request.partition.n_ranks), is_dummy ? ", dummy weights" : "",
              static_cast<long long>(written.n_arrays), human_bytes(written.bytes).c_str(),
              static_cast<long long>(written.n_files), took.count());
  return {};
}

}  // namespace

void add_shard_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command =
      app.add_subcommand("shard", "Write one rank's part of a model as a folder of its own");
  add_model_source_flags(*command);
  command->add_option("--out", "Folder to write; made when it is not there")->required();
  command->callback([command, exit_code] {
    const Result<ModelSource> source = read_model_source(*command);
    const Status status = source.ok()
                              ? run(source.value(), option_value(*command, "--out", std::string()))
                              : Status(source.error());
    *exit_code = status.ok() ? ExitCode::ok : fail(status.error());
  });
}

}  // namespace quire
