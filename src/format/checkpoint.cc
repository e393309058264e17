#include "format/checkpoint.h"

#include <algorithm>
#include <set>

#include "base/json.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr size_t kIndexBytesMax = size_t{100} << 20;  // GLM-5.2 in FP8 has one of 12 MB
constexpr size_t kShardsMax = 4096;

// A shard is a file of the folder itself: its name is never a path (server-hardening F5).
bool is_shard_name(std::string_view name) {
  return name.size() <= 255 && name.ends_with(".safetensors") && !name.starts_with('.') &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

struct IndexedTensor {
  std::string name;
  std::string shard;
};

Result<std::vector<IndexedTensor>> parse_index(std::string_view text, const std::string& path) {
  const JsonLimits limits{.bytes_max = kIndexBytesMax, .depth_max = 8, .nodes_max = 10'000'000};
  const Result<Json> parsed = parse_json(text, limits);
  if (!parsed.ok()) return invalid_argument(path + ": " + parsed.error().message);
  const Json& index = parsed.value();
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object() || map->empty()) {
    return invalid_argument(path + ": weight_map is not an object of shard names");
  }
  std::vector<IndexedTensor> tensors;
  tensors.reserve(map->size());
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string() || !is_shard_name(shard.get_ref<const std::string&>())) {
      return invalid_argument(format("%s: tensor \"%s\": its shard %s is not a file name",
                                     path.c_str(), excerpt(name).c_str(),
                                     excerpt(dump_json(shard)).c_str()));
    }
    tensors.push_back({name, shard.get<std::string>()});
  }
  return tensors;
}

}  // namespace

Status Checkpoint::add_shard(const std::string& file_name) {
  const std::string path = dir_ + "/" + file_name;
  MappedFile file = TRY(MappedFile::open(path));
  SafetensorsIndex index = TRY(parse_safetensors(file.bytes(), path));
  const auto shard = static_cast<int32_t>(shards_.size());
  for (TensorEntry& entry : index.tensors) {
    data_bytes_ += entry.bytes;
    const std::span<const std::byte> data =
        file.bytes().subspan(static_cast<size_t>(entry.offset), static_cast<size_t>(entry.bytes));
    tensors_.push_back({.entry = std::move(entry), .shard = shard, .data = data});
  }
  shards_.push_back(std::move(file));
  return {};
}

Status Checkpoint::sort_by_name() {
  const auto by_name = [](const CheckpointTensor& a, const CheckpointTensor& b) {
    return a.entry.name < b.entry.name;
  };
  std::sort(tensors_.begin(), tensors_.end(), by_name);
  const auto same_name = [](const CheckpointTensor& a, const CheckpointTensor& b) {
    return a.entry.name == b.entry.name;
  };
  const auto twice = std::adjacent_find(tensors_.begin(), tensors_.end(), same_name);
  if (twice == tensors_.end()) return {};
  return invalid_argument(format("%s: tensor \"%s\" is also in %s", shard_path(*twice).c_str(),
                                 excerpt(twice->entry.name).c_str(),
                                 shard_path(*(twice + 1)).c_str()));
}

Result<Checkpoint> Checkpoint::open(const std::string& dir) {
  Checkpoint checkpoint(dir);
  const std::string index_path = dir + "/" + kIndexFile;
  const Result<std::string> index_text = read_text_file(index_path, kIndexBytesMax);
  if (!index_text.ok() && index_text.error().code != ErrorCode::not_found) {
    return index_text.error();
  }
  if (!index_text.ok()) {
    TRY_OK(checkpoint.add_shard(kSingleFile));
    TRY_OK(checkpoint.sort_by_name());
    return checkpoint;
  }
  const std::vector<IndexedTensor> indexed = TRY(parse_index(index_text.value(), index_path));
  std::set<std::string> shards;
  for (const IndexedTensor& tensor : indexed) shards.insert(tensor.shard);
  if (shards.size() > kShardsMax) {
    return invalid_argument(format("%s: %zu shards, expected at most %zu", index_path.c_str(),
                                   shards.size(), kShardsMax));
  }
  for (const std::string& shard : shards) TRY_OK(checkpoint.add_shard(shard));
  TRY_OK(checkpoint.sort_by_name());
  for (const IndexedTensor& tensor : indexed) {
    const CheckpointTensor* found = checkpoint.find(tensor.name);
    const std::string expected = dir + "/" + tensor.shard;
    if (found == nullptr || checkpoint.shard_path(*found) != expected) {
      return invalid_argument(format("%s: tensor \"%s\" is not in %s", index_path.c_str(),
                                     excerpt(tensor.name).c_str(), expected.c_str()));
    }
  }
  if (indexed.size() != checkpoint.tensors_.size()) {
    std::set<std::string_view> names;
    for (const IndexedTensor& tensor : indexed) names.insert(tensor.name);
    for (const CheckpointTensor& tensor : checkpoint.tensors_) {
      if (names.contains(tensor.entry.name)) continue;
      return invalid_argument(format("%s: tensor \"%s\" is not in the index",
                                     checkpoint.shard_path(tensor).c_str(),
                                     excerpt(tensor.entry.name).c_str()));
    }
  }
  return checkpoint;
}

Checkpoint Checkpoint::without_data(std::string dir, std::vector<TensorEntry> entries) {
  Checkpoint out(std::move(dir));
  for (TensorEntry& entry : entries) {
    out.data_bytes_ += entry.bytes;
    out.tensors_.push_back({.entry = std::move(entry)});
  }
  CHECK(out.sort_by_name().ok());
  return out;
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const {
  const auto found = std::lower_bound(
      tensors_.begin(), tensors_.end(), name,
      [](const CheckpointTensor& tensor, std::string_view n) { return tensor.entry.name < n; });
  return found != tensors_.end() && found->entry.name == name ? &*found : nullptr;
}

std::vector<std::string> Checkpoint::shard_paths() const {
  std::vector<std::string> paths;
  for (const MappedFile& shard : shards_) paths.push_back(shard.path());
  return paths;
}

const std::string& Checkpoint::shard_path(const CheckpointTensor& tensor) const {
  return has_data() ? shards_[static_cast<size_t>(tensor.shard)].path() : dir_;
}

}  // namespace quire
