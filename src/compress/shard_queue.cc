#include "compress/shard_queue.h"

#include <span>
#include <utility>

namespace quire {

ShardQueue::ShardQueue(const Work& work, std::vector<std::vector<QuantisationError>>* errors)
    : work_(work), errors_(*errors) {
  for (size_t i = 0; i < work_.plan.shards.size(); ++i) {
    if (!errors_[i].empty()) continue;
    const OutputShard& shard = work_.plan.shards[i];
    shards_.push_back({.index = i,
                       .file = std::nullopt,
                       .errors = std::vector<QuantisationError>(shard.jobs.size()),
                       .n_left = shard.jobs.size()});
    for (const CompressJob& job : shard.jobs) total_ += job.bytes_in();
  }
}

Status ShardQueue::create(OpenShard* shard) {
  const OutputShard& planned = work_.plan.shards[shard->index];
  const std::string path = work_.folders.output + "/" + planned.file_name;
  const std::string header = safetensors_header(planned.arrays);
  shard->file.emplace(TRY(OutputFile::create(path, planned.bytes)));
  return shard->file->write_at(0, std::as_bytes(std::span(header.data(), header.size())));
}

// The next job, its shard's file made; nothing when all are taken or something failed.
std::optional<ShardQueue::Taken> ShardQueue::take() {
  const std::lock_guard lock(mutex_);
  if (!status_.ok() || next_shard_ == shards_.size()) return std::nullopt;
  OpenShard& shard = shards_[next_shard_];
  if (!shard.file) status_ = create(&shard);
  if (!status_.ok()) return std::nullopt;
  const Taken taken{&shard, next_job_};
  if (++next_job_ == shard.errors.size()) {
    ++next_shard_;
    next_job_ = 0;
  } else {
    // The disk fetches what comes next while this job computes.
    const CheckpointTensor& next = *work_.plan.shards[shard.index].jobs[next_job_].values;
    work_.inputs[static_cast<size_t>(next.shard)].will_need(next.entry.offset, next.entry.bytes);
  }
  return taken;
}

Status ShardQueue::end_shard(OpenShard* shard) {
  TRY_OK(work_.record.write_shard(work_.plan.shards[shard->index], shard->errors));
  TRY_OK(shard->file->finish_durably());
  shard->file.reset();
  errors_[shard->index] = std::move(shard->errors);
  return {};
}

Status ShardQueue::run_one(const Taken& taken, JobBuffers* buffers) {
  const OutputShard& planned = work_.plan.shards[taken.shard->index];
  const CompressJob& job = planned.jobs[taken.job];
  const QuantisationError error = TRY(run_job({.plan = work_.plan,
                                               .shard = planned,
                                               .job = job,
                                               .inputs = work_.inputs,
                                               .output = *taken.shard->file},
                                              buffers));
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    taken.shard->errors[taken.job] = error;
    is_last = --taken.shard->n_left == 0;
    done_ += job.bytes_in();
    if (work_.progress) work_.progress(done_, total_);
  }
  // Alone with the shard from here on.
  return is_last ? end_shard(taken.shard) : Status();
}

void ShardQueue::run() {
  JobBuffers buffers;
  while (const std::optional<Taken> taken = take()) {
    Status status = run_one(*taken, &buffers);
    if (status.ok()) continue;
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = std::move(status);
    return;
  }
}

}  // namespace quire
