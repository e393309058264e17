#include "tools/model_source.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "base/text.h"
#include "cpu/cpu_backend.h"
#ifdef QUIRE_CUDA
#include "cuda/cuda_backend.h"
#endif
#include "format/checkpoint.h"
#include "tools/option_value.h"
#include "tools/progress_bar.h"
#include "weights/dummy.h"
#include "weights/loader.h"
#include "weights/shard_writer.h"

namespace quire {

namespace {

// More threads than this do not read faster: the link to the device is full.
constexpr int kReadersMax = 16;

int threads_of(const ModelSource& source) {
  const int usable = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return source.n_threads > 0 ? source.n_threads : usable;
}

// Whose part the model is, given what the folder holds and what was asked for.
Result<Partition> agree_on_partition(const ModelSource& source,
                                     const std::optional<Partition>& in_folder) {
  if (!in_folder) return source.share.value_or(Partition{});
  if (!source.share) {
    return invalid_argument(format(
        "%s holds the part of rank %lld of %lld: it runs with --tp-size %lld --rank-share",
        source.dir.c_str(), static_cast<long long>(in_folder->rank),
        static_cast<long long>(in_folder->n_ranks), static_cast<long long>(in_folder->n_ranks)));
  }
  if (source.share->n_ranks != in_folder->n_ranks || source.share->rank != in_folder->rank) {
    return invalid_argument(format(
        "%s holds the part of rank %lld of %lld, not of rank %lld of %lld", source.dir.c_str(),
        static_cast<long long>(in_folder->rank), static_cast<long long>(in_folder->n_ranks),
        static_cast<long long>(source.share->rank), static_cast<long long>(source.share->n_ranks)));
  }
  return *in_folder;
}

Result<LoadFormat> parse_load_format(const std::string& text) {
  if (text == "auto" || text == "safetensors") return LoadFormat::automatic;
  if (text == "dummy") return LoadFormat::dummy;
  return invalid_argument("--load-format: expected auto, safetensors or dummy");
}

}  // namespace

Result<std::unique_ptr<Backend>> make_backend(const ModelSource& source) {
  if (source.device == "cpu") return make_cpu_backend(threads_of(source));
  if (source.device == "cuda") {
#ifdef QUIRE_CUDA
    return make_cuda_backend(
        {.deterministic = source.deterministic ? Deterministic::yes : Deterministic::no});
#else
    return unsupported("--device cuda: this build has no CUDA backend");
#endif
  }
  return invalid_argument(
      format("--device: expected cpu or cuda, found '%s'", excerpt(source.device).c_str()));
}

void add_backend_flags(CLI::App& command) {
  command.add_option("--device", "cpu (default) or cuda");
  command.add_flag("--deterministic")
      ->description(
          "On a GPU: a request's bytes do not depend on the others'; slower (a CPU is always so)");
  command.add_option("--threads", "Of the CPU backend, and that read files (default: all cores)")
      ->check(CLI::Range(1, 1024));
}

ModelSource read_backend_flags(const CLI::App& command) {
  ModelSource out;
  out.n_threads = option_value(command, "--threads", out.n_threads);
  out.device = option_value(command, "--device", out.device);
  out.deterministic = command.count("--deterministic") > 0;
  return out;
}

void add_model_source_flags(CLI::App& command) {
  command.add_option("--model-path,--model", "Folder with config.json and safetensors")->required();
  command.add_option("--load-format", "auto, safetensors, or dummy: random weights of that config");
  add_backend_flags(command);
  command.add_option("--tp-size,--tp,--tensor-parallel-size", "Ranks that the weights are cut for")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--rank-share")
      ->description("Run one rank of --tp-size alone, its sums with the others left out");
  command.add_option("--rank", "Which rank --rank-share runs (0)")->check(CLI::Range(0, 1023));
}

Result<ModelSource> read_model_source(const CLI::App& command) {
  ModelSource out = read_backend_flags(command);
  out.dir = option_value(command, "--model-path", out.dir);
  out.load_format =
      TRY(parse_load_format(option_value<std::string>(command, "--load-format", "auto")));
  const int64_t n_ranks = option_value<int64_t>(command, "--tp-size", 1);
  const int64_t rank = option_value<int64_t>(command, "--rank", 0);
  const bool is_share = command.count("--rank-share") > 0;
  if (n_ranks > 1 && !is_share) {
    return unsupported(
        format("--tp-size %lld: this build serves on one device; with --rank-share it runs one "
               "rank alone, to be measured",
               static_cast<long long>(n_ranks)));
  }
  if (!is_share && command.count("--rank") > 0) {
    return invalid_argument("--rank is for --rank-share");
  }
  if (rank >= n_ranks) {
    return invalid_argument(format("--rank %lld: expected below --tp-size %lld",
                                   static_cast<long long>(rank), static_cast<long long>(n_ranks)));
  }
  if (is_share) out.share = Partition{.rank = rank, .n_ranks = n_ranks};
  return out;
}

std::string LoadedModel::caveat() const {
  std::string out;
  if (partition.n_ranks > 1) {
    out = format("rank share, no collectives: rank %lld of %lld",
                 static_cast<long long>(partition.rank), static_cast<long long>(partition.n_ranks));
  }
  if (load_format == LoadFormat::dummy) out += out.empty() ? "dummy weights" : ", dummy weights";
  return out;
}

Result<LoadedModel> load_model(const ModelSource& source) {
  LoadedModel model{.dir = source.dir,
                    .config = TRY(read_model_config(source.dir)),
                    .load_format = source.load_format};
  TRY_OK(check_supported(model.config));
  const bool is_dummy = source.load_format == LoadFormat::dummy;
  const std::optional<Partition> in_folder =
      is_dummy ? std::nullopt : TRY(read_partition(source.dir));
  model.partition = TRY(agree_on_partition(source, in_folder));
  const ModelShape whole = model.config.shape;
  model.config.shape = TRY(shape_of_rank(whole, model.partition));
  LoadRequest request{.checkpoint = is_dummy
                                        ? dummy_checkpoint(source.dir, whole, model.config.weights)
                                        : TRY(Checkpoint::open(source.dir)),
                      .shape = in_folder ? model.config.shape : whole,
                      .source = model.config.weights,
                      .partition = in_folder ? Partition{} : model.partition,
                      .n_threads = std::min(threads_of(source), kReadersMax)};
  if (const std::string caveat = model.caveat(); !caveat.empty()) {
    std::fprintf(stderr, "quire: %s\n", caveat.c_str());
  }
  model.startup.end_step("config and index", nullptr);
  model.backend = TRY(make_backend(source));
  model.startup.end_step("device", model.backend.get());
  ProgressBar bar("loading " + source.dir);
  int64_t bytes = 0;
  const auto show = [&](int64_t done, int64_t total) {
    bytes = total;
    bar.update(done, total);
  };
  model.weights = TRY(advise(load_weights(std::move(request), *model.backend, show),
                             "The weights need more ranks, or a smaller format"));
  bar.finish();
  model.startup.end_step("weights", model.backend.get(), bytes);
  return model;
}

}  // namespace quire
