#include "tools/text_source.h"

namespace quire {

Result<std::unique_ptr<TextSource>> load_text(const std::string& dir, std::string_view family) {
  Tokenizer tokenizer = TRY(Tokenizer::load(dir));
  auto format = TRY(make_chat_format(family == "auto" ? "kimi-k2.6" : family));
  return std::make_unique<TextSource>(std::move(tokenizer), std::move(format));
}

}  // namespace quire
