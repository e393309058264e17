// Answer: one admitted request's choices, and what is written to its client because of them.
//
// Takes the engine's outputs in any order of choices and says what to send: events of a stream, or
// one response when the last choice has ended. No sockets and no engine: a pure state machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/admitted_request.h"
#include "server/choice.h"
#include "server/http.h"
#include "server/served_model.h"

namespace quire {

struct AnswerLabel {
  std::string id;         // 32 hexadecimal digits; the object's id has a prefix before it
  int64_t created_s = 0;  // Unix time
};

// What one output of the engine leads to.
struct AnswerStep {
  std::string events;                    // of a stream, framed
  std::optional<HttpResponse> response;  // instead of a stream
  bool choice_ended = false;  // the engine may stop on it, when its output was not the last
  bool done = false;          // nothing more follows
  bool broken = false;        // done, and the stream ends without its end mark
};

class Answer {
 public:
  // Takes the style and the parsers of `admitted`, not its requests. `model` outlives this.
  Answer(const ServedModel& model, AdmittedRequest* admitted, AnswerLabel label);
  ~Answer();
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Outputs of a choice that has ended are ignored.
  AnswerStep push(int32_t choice, const RequestOutput& output);

  const AnswerStyle& style() const { return style_; }
  // Of all choices; a prompt counts once, however many choices it has.
  ChoiceUsage usage() const;

 private:
  struct Part;
  AnswerStep fail(const ApiError& error);
  std::string events_of(int32_t choice, ChoiceDelta delta);
  Json envelope(const char* object) const;
  HttpResponse whole() const;

  const AnswerStyle style_;
  const int32_t choices_per_prompt_;
  const AnswerLabel label_;
  std::vector<Part> parts_;
  size_t n_open_;
  bool events_sent_ = false;
};

}  // namespace quire
