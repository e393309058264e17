#include "compress/progress_record.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "base/text.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kRecordFolder = "/.compress";
// The record on its way out: under this name nobody reads it.
constexpr const char* kRemovedFolder = "/.compress-removed";
constexpr const char* kPlanFile = "/plan.json";
constexpr size_t kPlanBytesMax = size_t{16} << 20;
constexpr size_t kRecordBytesMax = size_t{256} << 20;
constexpr size_t kWeightFields = 6;
constexpr size_t kOutputFields = 7;

// Numbers in order: of the weights, and where it was calibrated of the outputs.
Json to_json(const TensorLoss& loss) {
  const QuantisationError& w = loss.weights;
  Json out = {w.error, w.weight, w.value, w.worst, w.worst_row, w.worst_group};
  if (!loss.outputs) return out;
  const OutputLoss& o = *loss.outputs;
  for (const double x : {o.output, o.rtn, o.kept, o.rtn_weights, o.damping}) out.push_back(x);
  out.push_back(o.n_tokens);
  out.push_back(o.n_held_out);
  return out;
}

std::optional<TensorLoss> read_loss(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  if (json.size() != kWeightFields && json.size() != kWeightFields + kOutputFields) {
    return std::nullopt;
  }
  for (const Json& field : json) {
    if (!field.is_number()) return std::nullopt;
  }
  TensorLoss out{.weights = {.error = json[0].get<double>(),
                             .weight = json[1].get<double>(),
                             .value = json[2].get<double>(),
                             .worst = json[3].get<double>(),
                             .worst_row = json[4].get<int64_t>(),
                             .worst_group = json[5].get<int64_t>()},
                 .outputs = std::nullopt};
  if (json.size() == kWeightFields) return out;
  out.outputs = OutputLoss{.n_tokens = json[11].get<int64_t>(),
                           .n_held_out = json[12].get<int64_t>(),
                           .damping = json[10].get<double>(),
                           .output = json[6].get<double>(),
                           .rtn = json[7].get<double>(),
                           .kept = json[8].get<double>(),
                           .rtn_weights = json[9].get<double>()};
  return out;
}

// [[name, bytes, time written], ...] of a folder's files.
Result<Json> list_files(const std::string& dir) {
  Json files = Json::array();
  std::error_code failed;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, failed)) {
    if (!entry.is_regular_file()) continue;
    const auto written = fs::last_write_time(entry.path(), failed).time_since_epoch().count();
    files.push_back(
        Json{entry.path().filename().string(), fs::file_size(entry.path(), failed), written});
    if (failed) return unavailable(entry.path().string() + ": " + failed.message());
  }
  if (failed) return unavailable(dir + ": " + failed.message());
  std::sort(files.begin(), files.end());
  return files;
}

Result<bool> is_empty_folder(const std::string& dir) {
  std::error_code failed;
  const bool is_empty = fs::is_empty(dir, failed);
  if (failed) return unavailable(dir + ": " + failed.message());
  return is_empty;
}

Status make_folder(const std::string& dir) {
  std::error_code failed;
  fs::create_directories(dir, failed);
  if (failed) return unavailable(dir + ": cannot be made: " + failed.message());
  return {};
}

}  // namespace

std::string fingerprint(const CalibrationTexts& texts) {
  std::vector<int64_t> numbers;
  for (const std::vector<Token>& text : texts) {
    numbers.push_back(static_cast<int64_t>(text.size()));
    numbers.insert(numbers.end(), text.begin(), text.end());
  }
  const XXH128_hash_t hash = XXH3_128bits(numbers.data(), numbers.size() * sizeof(int64_t));
  return format("%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
}

Result<std::string> describe_calibration(const std::string& input_dir,
                                         const CalibrationTexts& texts) {
  const Json text = {{"version", 1},
                     {"input", input_dir},
                     {"texts", fingerprint(texts)},
                     {"files", TRY(list_files(input_dir))}};
  return dump_json(text) + "\n";
}

Result<std::string> describe_plan(const CompressPlan& plan, const std::string& input_dir) {
  const CompressOptions& options = plan.options;
  const Json text = {{"version", 2},
                     {"input", input_dir},
                     {"format", std::string(name(options.format))},
                     {"group_size", options.group},
                     {"method", options.method == Method::gptq ? "gptq" : "rtn"},
                     {"calibration", options.calibration},
                     {"shard_bytes", options.shard_bytes},
                     {"patterns", options.pattern_texts},
                     {"shards", plan.shards.size()},
                     {"bytes_out", plan.bytes_out},
                     {"files", TRY(list_files(input_dir))}};
  return dump_json(text) + "\n";
}

Result<ProgressRecord> ProgressRecord::open(const std::string& dir, const std::string& plan_text) {
  TRY_OK(make_folder(dir));
  const std::string folder = dir + kRecordFolder;
  std::error_code failed;
  fs::remove_all(dir + kRemovedFolder, failed);  // of a run that was killed at its very end
  const bool is_new = !fs::exists(folder);
  if (is_new && !TRY(is_empty_folder(dir))) {
    return invalid_argument(dir +
                            ": is not empty, and what is there was not begun by this command: "
                            "nothing is overwritten");
  }
  TRY_OK(make_folder(folder));
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0) return unavailable(folder + ": " + std::strerror(errno));
  ProgressRecord record(dir, lock);
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return unavailable(dir + ": another process is writing there");
  }
  const std::string path = folder + kPlanFile;
  const Result<std::string> before = read_text_file(path, kPlanBytesMax);
  if (!before.ok() && before.error().code != ErrorCode::not_found) return before.error();
  if (!before.ok()) {
    TRY_OK(write_text_file(path, plan_text));
  } else if (before.value() != plan_text) {
    return invalid_argument(dir + ": was begun with other options or another input (" + path +
                            "): go on with those, or remove the folder");
  }
  return record;
}

ProgressRecord::ProgressRecord(ProgressRecord&& other) noexcept
    : dir_(std::move(other.dir_)), lock_(std::exchange(other.lock_, -1)) {}

ProgressRecord::~ProgressRecord() {
  if (lock_ >= 0) ::close(lock_);
}

std::string ProgressRecord::folder() const { return dir_ + kRecordFolder; }

std::string ProgressRecord::record_path(const OutputShard& shard) const {
  return dir_ + kRecordFolder + "/" + shard.file_name + ".json";
}

Result<std::optional<std::vector<TensorLoss>>> ProgressRecord::read_shard(
    const OutputShard& shard) const {
  using Found = std::optional<std::vector<TensorLoss>>;
  const std::string file = dir_ + "/" + shard.file_name;
  std::error_code failed;
  if (!fs::exists(file, failed)) return Found();
  if (static_cast<int64_t>(fs::file_size(file, failed)) != shard.bytes || failed) {
    return corruption(format("%s: is not of the %lld bytes that it was written with", file.c_str(),
                             static_cast<long long>(shard.bytes)));
  }
  const std::string path = record_path(shard);
  const std::string text = TRY(read_text_file(path, kRecordBytesMax));
  const Json record =
      TRY(parse_json(text, {.bytes_max = kRecordBytesMax, .nodes_max = 10'000'000}));
  if (!record.is_array() || record.size() != shard.jobs.size()) {
    return corruption(path + ": does not fit the plan");
  }
  std::vector<TensorLoss> losses;
  for (const Json& entry : record) {
    const std::optional<TensorLoss> loss = read_loss(entry);
    if (!loss) return corruption(path + ": an entry is not of six or thirteen numbers");
    losses.push_back(*loss);
  }
  return Found(std::move(losses));
}

Status ProgressRecord::write_shard(const OutputShard& shard,
                                   const std::vector<TensorLoss>& losses) const {
  Json record = Json::array();
  for (const TensorLoss& loss : losses) record.push_back(to_json(loss));
  const std::string path = record_path(shard);
  std::error_code failed;
  fs::remove(path, failed);  // of a run that was killed just before its shard got its name
  return write_new_file(path, dump_json(record) + "\n");
}

Status ProgressRecord::remove() {
  // In one step: half a record would be one that says nothing.
  std::error_code failed;
  fs::rename(dir_ + kRecordFolder, dir_ + kRemovedFolder, failed);
  if (failed) return unavailable(dir_ + kRecordFolder + ": " + failed.message());
  fs::remove_all(dir_ + kRemovedFolder, failed);
  if (failed) return unavailable(dir_ + kRemovedFolder + ": " + failed.message());
  return sync_folder(dir_);
}

}  // namespace quire
