// ProgressRecord: what is done of a compression, on the disk, so that a killed one goes on.
//
// A hidden folder in the output: the plan that the files follow, and of each finished shard what
// its tensors lost. It is made before the first shard and goes when the checkpoint is whole; while
// it is there, the folder is nobody's but this plan's. One process at a time: it holds a lock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "compress/activation_record.h"
#include "compress/plan.h"
#include "compress/tensor_loss.h"

namespace quire {

class ProgressRecord {
 public:
  // `dir` is made when it is not there. Errors: invalid_argument, when the folder holds files that
  // this plan did not begin; unavailable, when the system refuses or another process works there.
  static Result<ProgressRecord> open(const std::string& dir, const std::string& plan_text);

  ProgressRecord(ProgressRecord&& other) noexcept;
  ProgressRecord& operator=(ProgressRecord&& other) = delete;
  ~ProgressRecord();

  // The losses of a shard's jobs, when its file is whole. Errors: corruption, a record that says
  // nothing, or a file of another size than the plan's.
  Result<std::optional<std::vector<TensorLoss>>> read_shard(const OutputShard& shard) const;
  // Goes before the shard gets its name.
  Status write_shard(const OutputShard& shard, const std::vector<TensorLoss>& losses) const;
  std::string folder() const;
  // The checkpoint is whole: the record goes.
  Status remove();

 private:
  ProgressRecord(std::string dir, int lock) : dir_(std::move(dir)), lock_(lock) {}

  std::string record_path(const OutputShard& shard) const;

  std::string dir_;  // of the output
  int lock_ = -1;    // descriptor; the lock goes with it
};

// Of what activations are a record: which files and which text.
Result<std::string> describe_calibration(const std::string& input_dir,
                                         const CalibrationTexts& texts);

// The texts in a few characters: of others they are others.
std::string fingerprint(const CalibrationTexts& texts);

// Which plan it is: what was asked, of which files. `input_dir` is the plan's checkpoint.
Result<std::string> describe_plan(const CompressPlan& plan, const std::string& input_dir);

}  // namespace quire
