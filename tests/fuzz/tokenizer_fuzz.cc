// Fuzzes the tokenizer: any bytes must come back from their tokens, whole and cut, and any file
// must be read or refused.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "text/detokenizer.h"
#include "text/test_tokenizer.h"
#include "text/tokenizer.h"

namespace quire {
namespace {

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<Token> tokens = tokenizer.encode(text);
  CHECK(tokenizer.bytes(tokens) == text);
  Detokenizer detokenizer(tokenizer, SpecialText::skip_hidden);
  std::string shown;
  for (const Token token : tokens) {
    CHECK(!tokenizer.is_special(token));
    const std::string delta = detokenizer.push(token);
    CHECK(!first_invalid_utf8(delta).has_value());
    shown += delta;
  }
  shown += detokenizer.finish();
  CHECK(!first_invalid_utf8(shown).has_value());
  CHECK(first_invalid_utf8(text).has_value() || shown == text);
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const quire::Tokenizer tokenizer = quire::testing::small_tokenizer();
  static const std::string single_bytes = quire::testing::ranks_file({});
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  quire::check_round_trip(tokenizer, input);
  // As files: the ranks after those of the single bytes, then the configuration.
  const size_t half = size / 2;
  const auto ranks =
      quire::Tokenizer::parse(single_bytes + std::string(input.substr(0, half)), "{}");
  if (ranks.ok()) quire::check_round_trip(ranks.value(), input);
  const auto config = quire::Tokenizer::parse(single_bytes, input.substr(half));
  if (config.ok()) quire::check_round_trip(config.value(), input);
  return 0;
}
