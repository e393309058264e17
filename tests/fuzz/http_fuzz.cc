// Fuzzes the way of a request from bytes to admission: the reader at any split, then, for what it
// takes, the fields. Whatever arrives is a request or a refusal; how it was cut changes neither.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "server/admission.h"
#include "server/http_request_reader.h"
#include "server/served_model.h"
#include "text/test_tokenizer.h"

namespace quire {
namespace {

using State = HttpRequestReader::State;

struct Model {
  Tokenizer tokenizer = testing::small_tokenizer();
  std::unique_ptr<ChatFormat> chat = make_chat_format("kimi-k2.6").value();
  TokenTrie trie{tokenizer};
  ServedModel served{.names = {"m"},
                     .path = "m",
                     .tokenizer = tokenizer,
                     .chat = *chat,
                     .trie = trie,
                     .vocab_size = tokenizer.vocab_size(),
                     .context_tokens = 128,
                     .turn_ends = chat->stop_tokens(tokenizer)};
};

struct Outcome {
  State state;
  int status = 0;
  size_t taken = 0;
  HttpRequest request;
};

Outcome read(std::string_view bytes, size_t piece, const HttpLimits& limits) {
  HttpRequestReader reader(limits);
  std::string received;
  Outcome out{.state = State::head};
  for (size_t at = 0; at < bytes.size(); at += piece) {
    received.append(bytes.substr(at, piece));
    const size_t taken = reader.feed(received);
    CHECK(taken <= received.size());
    received.erase(0, taken);
    out.taken += taken;
    if (reader.state() == State::complete || reader.state() == State::refused) break;
  }
  out.state = reader.state();
  if (out.state == State::refused) out.status = reader.refusal().status;
  if (out.state == State::complete) out.request = reader.take();
  return out;
}

void check_admission(const Model& model, Endpoint endpoint, std::string_view body) {
  const Admission admission = admit(model.served, endpoint, body, {});
  if (const auto* error = std::get_if<ApiError>(&admission)) {
    CHECK(error->status == 400 || error->status == 404);
    CHECK(parse_json(dump_json(to_json(*error))).ok());
    return;
  }
  for (const AdmittedChoice& choice : std::get<AdmittedRequest>(admission).choices) {
    const GenerateRequest& request = choice.request;
    const auto prompt = static_cast<int32_t>(request.prompt.size());
    CHECK(prompt >= 1 && request.max_new_tokens >= 1);
    CHECK(prompt + request.max_new_tokens <= model.served.context_tokens);
    for (const Token token : request.prompt) CHECK(token >= 0 && token < model.served.vocab_size);
    CHECK(request.sampling.temperature >= 0 && request.sampling.temperature <= 2);
    CHECK(request.sampling.top_p > 0 && request.sampling.top_p <= 1);
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace quire;
  static const Model model;
  static const HttpLimits limits{.request_line_bytes_max = 256,
                                 .header_bytes_max = 256,
                                 .headers_bytes_max = 1024,
                                 .headers_max = 8,
                                 .body_bytes_max = 4096,
                                 .chunks_max = 16,
                                 .chunk_head_bytes_max = 64};
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.empty()) return 0;
  const Outcome whole = read(bytes, bytes.size(), limits);
  for (const size_t piece : {size_t{1}, size_t{7}}) {
    const Outcome cut = read(bytes, piece, limits);
    if (cut.state != State::complete) continue;
    // The bound on a chunk's head is held byte by byte only when it comes so: never the reverse.
    CHECK(whole.state == State::complete);
    CHECK(cut.request.body == whole.request.body);
    CHECK(cut.request.path == whole.request.path);
    CHECK(cut.taken == whole.taken);
  }
  // A body alone reaches the fields more often than one in a request.
  for (const Endpoint endpoint : {Endpoint::chat, Endpoint::completions}) {
    check_admission(model, endpoint, bytes);
    if (whole.state == State::complete) check_admission(model, endpoint, whole.request.body);
  }
  return 0;
}
