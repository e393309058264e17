// The chat format of Kimi K2-Thinking, rendered exactly as its published template does.
//
// Tools are declared as a JSON array; a chat that does not begin with a system turn gets the
// publisher's. The model opens its thoughts itself.
#pragma once

#include "text/kimi_format.h"

namespace quire {

class KimiK2Thinking final : public KimiFormat {
 public:
  std::string_view family() const override { return "kimi-k2-thinking"; }
  Result<Prompt> render(const ChatRequest& request) const override;

 protected:
  Result<AnswerStart> answer_start(const ChatRequest& request) const override;
};

}  // namespace quire
