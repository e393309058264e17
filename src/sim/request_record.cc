#include "sim/request_record.h"

#include "base/text.h"

namespace quire::sim {

std::string RequestRecord::judge(const RequestOutput& output) {
  const auto number = static_cast<unsigned long long>(id_.value);
  if (output.request != id_) return format("request %llu: an output of another", number);
  if (!is_live()) return format("request %llu: output after its last", number);
  std::string wrong;
  for (const GeneratedToken& token : output.tokens) {
    const std::vector<Token>& right = planned_->right;
    if (n_got_ >= right.size() || right[n_got_] != token.token) {
      ++wrong_tokens_;
      wrong = format("request %llu: wrong token at %zu", number, n_got_);
    }
    ++n_got_;
  }
  const std::string wrong_end = output.finish ? judge_end(output) : std::string();
  return wrong.empty() ? wrong_end : wrong;
}

std::string RequestRecord::judge_end(const RequestOutput& output) {
  const auto number = static_cast<unsigned long long>(id_.value);
  switch (*output.finish) {
    case FinishReason::stop:
    case FinishReason::length:
      end_ = RequestEnd::answered;
      return n_got_ == planned_->right.size() ? std::string()
                                              : format("request %llu: cut short", number);
    case FinishReason::aborted:
      end_ = RequestEnd::aborted;
      return left_ ? std::string() : format("request %llu: aborted by nobody", number);
    case FinishReason::failed:
      end_ = RequestEnd::failed;
      failure_ = output.failure;
      return format("request %llu: failed: %s", number, output.error->message.c_str());
  }
  return {};
}

}  // namespace quire::sim
