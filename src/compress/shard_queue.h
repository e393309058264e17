// ShardQueue: the jobs of the shards that are not written yet, handed to whichever thread is free;
// the thread that ends a shard's last job puts it on the disk. What is written does not depend on
// who does what.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/input_file.h"
#include "base/output_file.h"
#include "compress/compress.h"
#include "compress/job.h"

namespace quire {

class ShardQueue {
 public:
  struct Work {
    const CompressPlan& plan;
    const CompressFolders& folders;
    const ProgressRecord& record;
    std::span<const InputFile> inputs;
    const CompressProgress& progress;
    const ActivationRecord* activations;  // null of a plan that does not calibrate
  };

  // `losses` is by shard: those that are not empty are done. All outlive this.
  ShardQueue(const Work& work, std::vector<std::vector<TensorLoss>>* losses);

  // One thread's share: returns when there is nothing left to take. Called by several at once.
  void run();

  // Once every run has returned.
  const Status& status() const { return status_; }

 private:
  struct OpenShard {
    size_t index;  // in the plan
    std::optional<OutputFile> file;
    std::vector<TensorLoss> losses;
    size_t n_left;
  };
  // Jobs that follow each other and share what they are calibrated with.
  struct Taken {
    OpenShard* shard;
    size_t first;
    size_t n;
  };

  std::optional<Taken> take();
  Status run_one(OpenShard* shard, size_t job_index, JobBuffers* buffers);
  Status create(OpenShard* shard);
  Status end_shard(OpenShard* shard);

  const Work work_;
  std::vector<std::vector<TensorLoss>>& losses_;

  std::mutex mutex_;  // guards what follows
  Status status_;
  std::vector<OpenShard> shards_;  // those to write; never grows after the constructor
  size_t next_shard_ = 0;
  size_t next_job_ = 0;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace quire
