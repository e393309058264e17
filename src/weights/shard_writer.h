// ShardWriter: one rank's part of a checkpoint, as a model folder of its own.
//
// The folder holds safetensors with an index, under the publisher's names and in the publisher's
// formats, cut; the whole model's config.json; and shard.json, which says whose part it is. Loading
// it gives the same weights as cutting the whole checkpoint does (docs/formats/weights.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "weights/loader.h"

namespace quire {

struct WrittenShard {
  int64_t n_files = 0;
  int64_t n_arrays = 0;
  int64_t bytes = 0;
};

// Writes into `dir`, which exists, with request.n_threads threads; `config_json` is the whole
// model's. Errors: as load_weights, and unavailable when a file cannot be written.
Result<WrittenShard> write_shard(const LoadRequest& request, const std::string& dir,
                                 const std::string& config_json, const LoadProgress& progress);

// Whose part `dir` holds, or nothing when it is a whole model's. Errors: invalid_argument, when
// shard.json says nothing that can be.
Result<std::optional<Partition>> read_partition(const std::string& dir);

}  // namespace quire
