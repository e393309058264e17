// AnswerStart: where a chat prompt leaves the model, which decides how its first tokens read.
#pragma once

namespace quire {

enum class AnswerStart {
  in_thoughts,  // the prompt ends with <think>: the answer begins as a thought
  may_think,    // the model opens its thoughts itself, or does without
  answer,       // the prompt closed the thoughts: the answer begins as content
};

}  // namespace quire
