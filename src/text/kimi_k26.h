// The chat format of Kimi K2.5 and K2.6.
//
// Tools are declared as TypeScript, exact against the publisher's own conversion; the rest follows
// public descriptions of the format and is NOT checked against the published template, which was
// not at hand. Differences from K2-Thinking: no system turn of the publisher's, and the prompt
// opens the thoughts, or opens and closes them when `thinking` is false.
// Thoughts of earlier turns are dropped through the last assistant's turn that calls no tool;
// `preserve_thinking` keeps all; `thinking` false without it drops all.
#pragma once

#include "text/kimi_format.h"

namespace quire {

class KimiK26 final : public KimiFormat {
 public:
  std::string_view family() const override { return "kimi-k2.6"; }
  Result<Prompt> render(const ChatRequest& request) const override;

 protected:
  Result<AnswerStart> answer_start(const ChatRequest& request) const override;
};

}  // namespace quire
