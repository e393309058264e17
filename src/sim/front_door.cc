#include "sim/front_door.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/rng.h"
#include "base/text.h"

namespace quire::sim {

void FrontDoor::open(RequestId id, const PlannedRequest& planned, uint64_t drawn) {
  Exchange exchange;
  AdmittedRequest admitted;
  admitted.style = {.endpoint = Endpoint::completions,
                    .delivery = drawn % 4 == 0 ? Delivery::whole : Delivery::streamed,
                    .model = text_.model().names.front()};
  // Two tokens that follow each other in the right answer, so that it ends an answer now and then.
  if (drawn % 8 < 3 && planned.right.size() > 3) {
    const size_t at = drawn / 8 % (planned.right.size() - 1);
    exchange.stop = text_.text_of({planned.right[at], planned.right[at + 1]});
    admitted.style.stops = {exchange.stop};
  }
  admitted.choices.emplace_back();
  const uint64_t label = mix64(id.value);
  const std::string digits = format("%016llx%016llx", static_cast<unsigned long long>(label),
                                    static_cast<unsigned long long>(mix64(label)));
  exchange.answer = std::make_unique<Answer>(text_.model(), &admitted, AnswerLabel{.id = digits});
  exchange.id = "cmpl-" + digits;
  exchanges_.emplace(id.value, std::move(exchange));
}

std::vector<RequestId> FrontDoor::deliver() {
  std::vector<RequestId> to_abort;
  for (const Post& post : std::exchange(inbox_, {})) {
    Exchange& exchange = exchanges_.at(post.id.value);
    if (exchange.is_gone || exchange.is_over) {
      ++late_outputs_;
      continue;
    }
    exchange.is_generating = !post.output.finish.has_value();
    AnswerStep step = exchange.answer->push(0, post.output);
    if (step.choice_ended && exchange.is_generating) {
      ++ended_by_text_;
      to_abort.push_back(post.id);
    }
    exchange.stream += step.events;
    if (step.response) exchange.response = std::move(step.response);
    exchange.is_over = step.done;
    exchange.is_broken = step.broken;
    ++events_;
  }
  return to_abort;
}

void FrontDoor::read_object(const Json& object, const Exchange& exchange, Understood* out) {
  if (object.contains("error")) {
    out->is_error = true;
    return;
  }
  if (object["id"] != exchange.id) out->wrong = "it was sent an object of another exchange";
  const Json& choice = object["choices"][0];
  out->text += choice["text"].get<std::string>();
  if (!choice["finish_reason"].is_null()) out->finish = choice["finish_reason"].get<std::string>();
}

FrontDoor::Understood FrontDoor::read(const Exchange& exchange) const {
  Understood out;
  if (exchange.response) {
    out.is_error = exchange.response->status != 200;
    read_object(parse_json(exchange.response->body).value(), exchange, &out);
    out.is_done = !out.is_error;
    return out;
  }
  constexpr std::string_view kHead = "data: ";
  std::string_view left = exchange.stream;
  while (!left.empty()) {
    if (out.is_done || out.is_error) out.wrong = "something follows the end of a stream";
    const size_t end = left.find("\n\n");
    if (left.substr(0, kHead.size()) != kHead || end == left.npos) {
      out.wrong = "what was sent is no stream of events";
      return out;
    }
    const std::string_view data = left.substr(kHead.size(), end - kHead.size());
    left.remove_prefix(end + 2);
    if (data == "[DONE]") {
      out.is_done = true;
    } else {
      read_object(parse_json(data).value(), exchange, &out);
    }
  }
  return out;
}

// Said anew, from what a stop string and a stop token mean.
FrontDoor::Understood FrontDoor::expected_of(const RequestRecord& record,
                                             const Exchange& exchange) const {
  const GenerateRequest& request = record.planned().request;
  std::vector<Token> tokens = record.planned().right;
  Understood out{.finish = "length"};
  if (std::ranges::find(request.stop_tokens, tokens.back()) != request.stop_tokens.end()) {
    out.finish = "stop";
    tokens.pop_back();
  }
  out.text = text_.text_of(tokens);
  const size_t cut = exchange.stop.empty() ? out.text.npos : out.text.find(exchange.stop);
  if (cut != out.text.npos) {
    out.text.resize(cut);
    out.finish = "stop";
  }
  return out;
}

std::string FrontDoor::judge(const RequestRecord& record, bool is_right_text) const {
  const Exchange& exchange = exchanges_.at(record.id().value);
  const Understood sent = read(exchange);
  const auto wrong = [&](std::string_view what) {
    return format("client %llu: %s", static_cast<unsigned long long>(record.id().value),
                  std::string(what).c_str());
  };
  if (!sent.wrong.empty()) return wrong(sent.wrong);
  if (sent.is_done && sent.is_error) return wrong("an error, and the mark of a whole answer");
  if (!exchange.is_gone && !exchange.is_over) return wrong("it waits for ever");
  if (!is_right_text) return {};
  const Understood expected = expected_of(record, exchange);
  if (expected.text.substr(0, sent.text.size()) != sent.text) return wrong("foreign text");
  if (exchange.is_gone) return {};
  if (sent.is_error) return wrong("an error that nobody caused");
  const bool is_whole = sent.is_done && sent.text == expected.text;
  return is_whole && sent.finish == expected.finish ? std::string() : wrong("cut short");
}

}  // namespace quire::sim
