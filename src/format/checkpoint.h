// Checkpoint: the weight files of a model folder, mapped, with every tensor found by name.
//
// Either one `model.safetensors`, or shards named by `model.safetensors.index.json`. Knows nothing
// of what the tensors mean (weights/table.h). The mapping outlives every span taken from it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "format/safetensors.h"

namespace quire {

struct CheckpointTensor {
  TensorEntry entry;
  int32_t shard = 0;
  std::span<const std::byte> data;  // empty in a checkpoint without data
};

class Checkpoint {
 public:
  // Errors: not_found (no weight file in the folder, or a shard that the index names is missing);
  // invalid_argument as parse_safetensors, and when the index and the shards disagree: a shard name
  // that is a path, a tensor that is not in its shard, in two of them, or not in the index.
  static Result<Checkpoint> open(const std::string& dir);

  // Tensors that have everything but bytes: no file is behind them. `dir` is for messages.
  static Checkpoint without_data(std::string dir, std::vector<TensorEntry> entries);

  bool has_data() const { return !shards_.empty(); }

  // Null when there is none.
  const CheckpointTensor* find(std::string_view name) const;

  std::span<const CheckpointTensor> tensors() const { return tensors_; }  // in order of name
  int64_t n_shards() const { return static_cast<int64_t>(shards_.size()); }
  int64_t data_bytes() const { return data_bytes_; }
  const std::string& dir() const { return dir_; }
  // In the order of CheckpointTensor::shard.
  std::vector<std::string> shard_paths() const;
  // The file of a tensor; the folder when there is no data.
  const std::string& shard_path(const CheckpointTensor& tensor) const;

 private:
  explicit Checkpoint(std::string dir) : dir_(std::move(dir)) {}

  Status add_shard(const std::string& file_name);
  Status sort_by_name();

  std::string dir_;
  std::vector<MappedFile> shards_;
  std::vector<CheckpointTensor> tensors_;
  int64_t data_bytes_ = 0;
};

}  // namespace quire
