// RequestRecord: what a run knows of one request, and whether its outputs are right.
//
// Judges every output as it comes: for this request, after no last one, the next tokens of the one
// right answer; and an end that somebody caused.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "sim/workload.h"

namespace quire::sim {

enum class RequestEnd : uint8_t { none, answered, aborted, failed };

class RequestRecord {
 public:
  RequestRecord(RequestId id, const PlannedRequest& planned) : id_(id), planned_(&planned) {}

  // What is wrong with the output, or nothing.
  std::string judge(const RequestOutput& output);
  // Its client has left: from now on `aborted` is a right end.
  void leave() { left_ = true; }
  bool has_left() const { return left_; }

  RequestId id() const { return id_; }
  const PlannedRequest& planned() const { return *planned_; }
  RequestEnd end() const { return end_; }
  bool is_live() const { return end_ == RequestEnd::none; }
  FailureKind failure() const { return failure_; }
  // Tokens that were sent and are not those of the right answer.
  uint64_t wrong_tokens() const { return wrong_tokens_; }

 private:
  std::string judge_end(const RequestOutput& output);

  RequestId id_;
  const PlannedRequest* planned_;  // of the workload, which outlives this
  size_t n_got_ = 0;
  bool left_ = false;
  RequestEnd end_ = RequestEnd::none;
  FailureKind failure_ = FailureKind::none;
  uint64_t wrong_tokens_ = 0;
};

}  // namespace quire::sim
