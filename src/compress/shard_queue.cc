#include "compress/shard_queue.h"

#include <span>
#include <utility>

namespace quire {

namespace {

// A gate and an up projection: whoever has the moments of one has the other's.
bool shares_input(const CompressJob& a, const CompressJob& b) {
  return a.input && b.input && !a.input->is_inner() && !b.input->is_inner() &&
         a.input->layer == b.input->layer && a.input->expert == b.input->expert;
}

}  // namespace

ShardQueue::ShardQueue(const Work& work, std::vector<std::vector<TensorLoss>>* losses)
    : work_(work), losses_(*losses) {
  for (size_t i = 0; i < work_.plan.shards.size(); ++i) {
    if (!losses_[i].empty()) continue;
    const OutputShard& shard = work_.plan.shards[i];
    shards_.push_back({.index = i,
                       .file = std::nullopt,
                       .losses = std::vector<TensorLoss>(shard.jobs.size()),
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

// The next job or jobs, their shard's file made; nothing when all are taken or something failed.
std::optional<ShardQueue::Taken> ShardQueue::take() {
  const std::lock_guard lock(mutex_);
  if (!status_.ok() || next_shard_ == shards_.size()) return std::nullopt;
  OpenShard& shard = shards_[next_shard_];
  if (!shard.file) status_ = create(&shard);
  if (!status_.ok()) return std::nullopt;
  const std::vector<CompressJob>& jobs = work_.plan.shards[shard.index].jobs;
  Taken taken{.shard = &shard, .first = next_job_, .n = 1};
  while (++next_job_ < jobs.size() && shares_input(jobs[taken.first], jobs[next_job_])) ++taken.n;
  if (next_job_ == jobs.size()) {
    ++next_shard_;
    next_job_ = 0;
  } else {
    // The disk fetches what comes next while this job computes.
    const CheckpointTensor& next = *jobs[next_job_].matrix.values;
    work_.inputs[static_cast<size_t>(next.shard)].will_need(next.entry.offset, next.entry.bytes);
  }
  return taken;
}

Status ShardQueue::end_shard(OpenShard* shard) {
  TRY_OK(work_.record.write_shard(work_.plan.shards[shard->index], shard->losses));
  TRY_OK(shard->file->finish_durably());
  shard->file.reset();
  losses_[shard->index] = std::move(shard->losses);
  return {};
}

Status ShardQueue::run_one(OpenShard* shard, size_t job_index, JobBuffers* buffers) {
  const OutputShard& planned = work_.plan.shards[shard->index];
  const CompressJob& job = planned.jobs[job_index];
  const TensorLoss loss = TRY(run_job({.plan = work_.plan,
                                       .shard = planned,
                                       .job = job,
                                       .inputs = work_.inputs,
                                       .output = *shard->file,
                                       .activations = work_.activations},
                                      buffers));
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    shard->losses[job_index] = loss;
    is_last = --shard->n_left == 0;
    done_ += job.bytes_in();
    if (work_.progress) work_.progress(done_, total_);
  }
  // Alone with the shard from here on.
  return is_last ? end_shard(shard) : Status();
}

void ShardQueue::run() {
  JobBuffers buffers;
  if (work_.activations != nullptr) {
    buffers.calibration.reserve(CalibrationSizes::of(work_.plan));
  }
  while (const std::optional<Taken> taken = take()) {
    for (size_t i = 0; i < taken->n; ++i) {
      Status status = run_one(taken->shard, taken->first + i, &buffers);
      if (status.ok()) continue;
      const std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = std::move(status);
      return;
    }
  }
}

}  // namespace quire
