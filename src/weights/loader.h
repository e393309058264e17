// Loader: a checkpoint, or a rank's part of it, becomes ModelWeights in a backend's memory.
//
// The whole checkpoint is resolved and checked before any memory is taken: every tensor that the
// table wants is there, in a format that the file holds and the config agrees with, with the sizes
// that follow from the config; and nothing is there that would be left unread by mistake. On a
// backend that reads host memory, tensors stay in the mapped file; else, and where alignment or a
// cut does not permit, they are copied, layer by layer. Experts are packed as their layer arrives.
// docs/formats/weights.md has the rules.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/result.h"
#include "ops/backend.h"
#include "weights/model_weights.h"
#include "weights/shard.h"
#include "weights/weight_scheme.h"

namespace quire {

// Called on the loading thread, often: bytes of the checkpoint read so far, and in all.
using LoadProgress = std::function<void(int64_t bytes_done, int64_t bytes_total)>;

struct LoadRequest {
  Checkpoint checkpoint;  // without data: dummy weights
  ModelShape shape;       // of the checkpoint
  WeightSource source;
  Partition partition;  // what to take of it
  int n_threads = 1;    // that read it, where the backend copies
};

// The weights' shape is the partition's. Errors: invalid_argument (a tensor is missing, unexpected,
// or has another format or size than it must; a partition that the shape does not permit),
// unsupported (a format that exists but is not handled for this tensor, or a cut that it does not
// permit), resource_exhausted. Each names the tensor and its file.
Result<std::unique_ptr<ModelWeights>> load_weights(LoadRequest request, Backend& backend,
                                                   const LoadProgress& progress);

}  // namespace quire
