// Compression: a plan carried out. Shards are written one after the other by all threads together,
// each under another name until it is whole and on the disk; then the small files, config.json
// last. Broken off anywhere, the folder has no config.json, and the same call goes on with the
// first shard that is not whole. Nothing that was there is overwritten.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compress/activation_record.h"
#include "compress/plan.h"
#include "compress/progress_record.h"
#include "compress/tensor_loss.h"

namespace quire {

struct CompressFolders {
  std::string input;
  std::string output;
};

// Bytes of the input done and in all, of what this run has to do. Any thread, one at a time.
using CompressProgress = std::function<void(int64_t done, int64_t total)>;

class Compression {
 public:
  // `input` is open on folders.input, `plan` is made of it; both outlive this. Errors:
  // invalid_argument, when the output is the input, is inside it, or belongs to something else.
  static Result<Compression> begin(const CompressFolders& folders, const CompressPlan& plan,
                                   const Checkpoint& input);

  // Where a calibration's record lies that goes when the checkpoint is whole.
  std::string own_activations() const { return record_.folder() + "/activations"; }

  // `activations` is null unless the plan calibrates. Errors: as run_job. What is whole stays.
  Status write_shards(int n_threads, const ActivationRecord* activations,
                      const CompressProgress& progress);

  // Of every job of every shard, once write_shards has ended well.
  const std::vector<std::vector<TensorLoss>>& losses() const { return losses_; }
  int64_t n_resumed() const { return n_resumed_; }  // shards that were whole already

  // Index, tokenizer and the like, report and config; then the checkpoint is whole.
  Status finish(const std::string& config_json, const std::string& report_json);

 private:
  Compression(CompressFolders folders, const CompressPlan& plan, const Checkpoint& input,
              ProgressRecord record)
      : folders_(std::move(folders)), plan_(plan), input_(input), record_(std::move(record)) {}

  Status copy_others() const;

  CompressFolders folders_;
  const CompressPlan& plan_;
  const Checkpoint& input_;
  ProgressRecord record_;
  std::vector<std::vector<TensorLoss>> losses_;  // by shard, by job
  int64_t n_resumed_ = 0;
};

}  // namespace quire
