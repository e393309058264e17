// Fuzzes what stands between JSON chats, models and answers: the reading of requests, rendering,
// tool grammars, and the parser of any tokens a model might write.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "text/chat.h"
#include "text/chat_request.h"
#include "text/kimi_output_parser.h"
#include "text/test_tokenizer.h"

namespace quire {
namespace {

struct Fixture {
  Tokenizer tokenizer = testing::small_tokenizer();
  TokenTrie trie{tokenizer};
  KimiTokens marks = KimiTokens::resolve(tokenizer).value();
};

// A chat as JSON: rendered by every family, or refused; its markup does not depend on its text.
void check_request(const Fixture& fixture, std::string_view text) {
  const auto body = parse_json(text);
  if (!body.ok()) return;
  const auto request = parse_chat_request(body.value());
  if (!request.ok()) {
    CHECK(request.error().message.find(": ") != std::string::npos);
    return;
  }
  for (const char* family : {"kimi-k2-thinking", "kimi-k2.6"}) {
    const auto chat_format = make_chat_format(family);
    const auto prompt = chat_format.value()->render(request.value());
    if (!prompt.ok()) continue;
    const auto tokens = prompt.value().encode(fixture.tokenizer);
    CHECK(tokens.ok());
    size_t n_marks = 0;
    for (const Prompt::Segment& segment : prompt.value().segments()) {
      if (segment.kind == Prompt::Kind::markup) ++n_marks;
    }
    size_t n_special = 0;
    for (const Token token : tokens.value()) n_special += fixture.tokenizer.is_special(token);
    CHECK(n_marks == n_special);
    auto grammar =
        chat_format.value()->make_grammar(fixture.trie, fixture.tokenizer, request.value(), {});
    if (!grammar.ok()) continue;
    std::vector<uint64_t> mask(token_mask_words(fixture.tokenizer.vocab_size()));
    for (size_t i = 0; i < 64 && !grammar.value().finished(); ++i) {
      CHECK(grammar.value().fill_mask(mask));
      size_t word = i % mask.size();
      while (mask[word] == 0) word = (word + 1) % mask.size();
      const auto token = static_cast<Token>(word * 64) + std::countr_zero(mask[word]);
      CHECK(grammar.value().advance(token));
    }
  }
}

// Any tokens: ordinary ones by byte, special ones behind an 0xff.
void check_answer(const Fixture& fixture, std::string_view bytes, AnswerStart start) {
  KimiOutputParser parser(fixture.tokenizer, fixture.marks, {.start = start});
  std::vector<OutputDelta> deltas;
  const Token first = fixture.tokenizer.vocabulary().size();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    const bool is_mark = byte == 0xff && i + 1 < bytes.size();
    const Token token = is_mark ? first + static_cast<uint8_t>(bytes[++i]) : byte;
    parser.push(token, &deltas);
  }
  parser.finish(&deltas);
  int32_t n_calls = 0;
  ParsedOutput out;
  for (const OutputDelta& delta : deltas) {
    CHECK(!first_invalid_utf8(delta.text + delta.id + delta.name).has_value());
    if (delta.kind == OutputDelta::Kind::tool_call_begin) CHECK(delta.call == n_calls++);
    out.add(delta);
  }
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quire::Fixture fixture;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  quire::check_request(fixture, input);
  quire::check_answer(fixture, input, quire::AnswerStart::in_thoughts);
  quire::check_answer(fixture, input, quire::AnswerStart::may_think);
  return 0;
}
