#include "compress/compress.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "compress/shard_queue.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kConfigFile = "config.json";
constexpr const char* kReportFile = "report.json";
constexpr int64_t kCopyBytes = int64_t{1} << 20;

// Files that speak of the weights as they were, or hold them in other forms.
bool is_replaced(std::string_view name) {
  constexpr std::string_view kNames[] = {kIndexFile, kConfigFile, kReportFile,
                                         "hf_quant_config.json"};
  constexpr std::string_view kEndings[] = {".safetensors", ".bin", ".pt", ".pth", ".gguf"};
  return std::any_of(std::begin(kNames), std::end(kNames), [&](auto n) { return n == name; }) ||
         std::any_of(std::begin(kEndings), std::end(kEndings),
                     [&](auto ending) { return name.ends_with(ending); });
}

// What an earlier run of the same plan wrote is as good.
Status write_once(const std::string& path, const std::string& text) {
  std::error_code failed;
  return fs::exists(path, failed) ? Status() : write_new_file(path, text);
}

Status copy_once(const std::string& from, const std::string& to) {
  std::error_code failed;
  if (fs::exists(to, failed)) return {};
  const auto bytes = static_cast<int64_t>(fs::file_size(from, failed));
  if (failed) return unavailable(from + ": " + failed.message());
  const InputFile in = TRY(InputFile::open(from));
  OutputFile out = TRY(OutputFile::create(to, bytes));
  std::vector<std::byte> piece;
  for (int64_t begin = 0; begin < bytes; begin += kCopyBytes) {
    piece.resize(static_cast<size_t>(std::min(kCopyBytes, bytes - begin)));
    TRY_OK(in.read_at(begin, piece));
    TRY_OK(out.write_at(begin, piece));
  }
  return out.finish_durably();
}

Status check_folders(const CompressFolders& folders) {
  std::error_code failed;
  const auto canonical = [&](const std::string& dir) {
    const fs::path path = fs::weakly_canonical(dir, failed);
    return path.has_filename() ? path : path.parent_path();  // without a slash at the end
  };
  const fs::path input = canonical(folders.input);
  const fs::path output = canonical(folders.output);
  if (failed) return unavailable(folders.output + ": " + failed.message());
  const auto [end_of_input, rest] =
      std::mismatch(input.begin(), input.end(), output.begin(), output.end());
  if (end_of_input != input.end()) return {};
  return invalid_argument(folders.output + ": is the input or inside it: nothing is written there");
}

std::string index_json(const CompressPlan& plan) {
  // As text: a Json object that keeps its order looks through all keys for each new one.
  std::string json = format("{\"metadata\":{\"total_size\":%lld},\"weight_map\":{",
                            static_cast<long long>(plan.bytes_out));
  for (const OutputShard& shard : plan.shards) {
    for (const TensorEntry& array : shard.arrays) {
      if (json.back() != '{') json += ',';
      json += dump_json(array.name) + ":\"" + shard.file_name + "\"";
    }
  }
  return json + "}}\n";
}

}  // namespace

Result<Compression> Compression::begin(const CompressFolders& folders, const CompressPlan& plan,
                                       const Checkpoint& input) {
  TRY_OK(check_folders(folders));
  const std::string text = TRY(describe_plan(plan, folders.input));
  ProgressRecord record = TRY(ProgressRecord::open(folders.output, text));
  Compression out(folders, plan, input, std::move(record));
  for (const OutputShard& shard : plan.shards) {
    auto losses = TRY(out.record_.read_shard(shard));
    out.n_resumed_ += losses ? 1 : 0;
    out.losses_.push_back(std::move(losses).value_or(std::vector<TensorLoss>()));
  }
  return out;
}

Status Compression::write_shards(int n_threads, const ActivationRecord* activations,
                                 const CompressProgress& progress) {
  std::vector<InputFile> inputs;
  for (const std::string& path : input_.shard_paths()) {
    inputs.push_back(TRY(InputFile::open(path)));
  }
  ShardQueue queue({.plan = plan_,
                    .folders = folders_,
                    .record = record_,
                    .inputs = inputs,
                    .progress = progress,
                    .activations = activations},
                   &losses_);
  ThreadPool threads(n_threads);
  threads.parallel_for(n_threads, [&](int64_t, int64_t) { queue.run(); });
  return queue.status();
}

Status Compression::copy_others() const {
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(folders_.input, failed)) {
    const std::string name = entry.path().filename().string();
    if (!entry.is_regular_file() || is_replaced(name)) continue;
    TRY_OK(copy_once(entry.path().string(), folders_.output + "/" + name));
  }
  return failed ? Status(unavailable(folders_.input + ": " + failed.message())) : Status();
}

Status Compression::finish(const std::string& config_json, const std::string& report_json) {
  TRY_OK(write_once(folders_.output + "/" + kIndexFile, index_json(plan_)));
  TRY_OK(copy_others());
  TRY_OK(write_once(folders_.output + "/" + kReportFile, report_json));
  TRY_OK(sync_folder(folders_.output));
  TRY_OK(write_once(folders_.output + "/" + kConfigFile, config_json));
  return record_.remove();
}

}  // namespace quire
