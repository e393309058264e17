#include "text/chat.h"

#include "base/text.h"
#include "text/kimi_k26.h"
#include "text/kimi_k2_thinking.h"

namespace quire {

Result<std::unique_ptr<ChatFormat>> make_chat_format(std::string_view family) {
  std::unique_ptr<ChatFormat> out;
  if (family == "kimi-k2-thinking") out = std::make_unique<KimiK2Thinking>();
  if (family == "kimi-k2.6" || family == "kimi-k2.5") out = std::make_unique<KimiK26>();
  if (out == nullptr) {
    return not_found("no chat family \"" + excerpt(family) +
                     "\"; there are kimi-k2-thinking, kimi-k2.5 and kimi-k2.6");
  }
  return out;
}

}  // namespace quire
