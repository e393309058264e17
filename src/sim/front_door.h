// FrontDoor: the server's part of a run, from the engine's outputs to the bytes that clients read.
//
// Outputs go through an inbox, as between the engine's thread and the server's. Each exchange has
// the server's own Answer (server/answer.h), which turns them into events of a stream, or into one
// response; what is written carries the exchange's label. At the end each client's bytes must carry
// its own label, and no other text than its own right answer. No sockets and no HTTP.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/answer.h"
#include "sim/request_record.h"
#include "sim/served_text.h"

namespace quire::sim {

class FrontDoor {
 public:
  // `text` outlives this.
  explicit FrontDoor(const ServedText& text) : text_(text) {}

  // An exchange for a request that was taken. Streamed or whole, with or without a stop string, as
  // `drawn` has it.
  void open(RequestId id, const PlannedRequest& planned, uint64_t drawn);
  // From the engine's side.
  void post(RequestId id, RequestOutput output) { inbox_.push_back({id, std::move(output)}); }
  // Takes what is in the inbox to the answers. The requests whose answers have ended, and of which
  // the engine does not know it: they are to be aborted.
  std::vector<RequestId> deliver();
  // A client goes; what is said to it from now on is late.
  void leave(RequestId id) { exchanges_.at(id.value).is_gone = true; }

  // What is wrong with what a client was sent; `is_right_text` false: only whose it is.
  std::string judge(const RequestRecord& record, bool is_right_text) const;
  uint64_t late_outputs() const { return late_outputs_; }
  uint64_t ended_by_text() const { return ended_by_text_; }
  uint64_t events_read() const { return events_; }

 private:
  struct Post {
    RequestId id;
    RequestOutput output;
  };
  struct Exchange {
    std::unique_ptr<Answer> answer;
    std::string id;  // in every object that is written
    std::string stop;
    std::string stream;
    std::optional<HttpResponse> response;
    bool is_gone = false;
    bool is_over = false;
    bool is_broken = false;
    bool is_generating = true;  // as far as the server knows
  };
  // What a client has understood.
  struct Understood {
    std::string text;
    std::string finish;
    bool is_done = false;
    bool is_error = false;
    std::string wrong;
  };

  Understood read(const Exchange& exchange) const;
  static void read_object(const Json& object, const Exchange& exchange, Understood* out);
  Understood expected_of(const RequestRecord& record, const Exchange& exchange) const;

  const ServedText& text_;
  std::map<uint64_t, Exchange> exchanges_;  // by request
  std::vector<Post> inbox_;
  uint64_t late_outputs_ = 0;
  uint64_t ended_by_text_ = 0;
  uint64_t events_ = 0;
};

}  // namespace quire::sim
