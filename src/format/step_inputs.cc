#include "format/step_inputs.h"

#include <limits>

namespace quire {

namespace {

// Hands out parts front to back.
class Parts {
 public:
  explicit Parts(std::byte* base) : base_(base) {}

  template <class T, class... Size>
  View<T, int{sizeof...(Size)}> take(Size... size) {
    auto* data = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at_);
    const auto view = view_of(data, size...);
    at_ += view.size() * static_cast<int64_t>(sizeof(T));
    return view;
  }
  int64_t at() const { return at_; }

 private:
  std::byte* base_;
  int64_t at_ = 0;
};

// Parts of 8 bytes first, so that all are aligned.
StepInputs take_fixed(Parts& parts, const StepShape& shape) {
  StepInputs in{.shape = shape};
  in.header = parts.take<SlotHeader>(int64_t{1});
  in.nonces = parts.take<uint64_t>(shape.n_rows);
  in.tags = parts.take<PageTag>(shape.n_rows, shape.tag_width);
  in.samplers = parts.take<SamplerRow>(shape.n_logits);
  in.ids = parts.take<int32_t>(shape.n_tokens);
  in.rows = parts.take<int32_t>(shape.n_tokens);
  in.positions = parts.take<int32_t>(shape.n_tokens);
  in.row_begin = parts.take<int32_t>(shape.n_rows + 1);
  in.logit_rows = parts.take<int32_t>(shape.n_logits);
  in.table = parts.take<int32_t>(shape.n_rows, shape.table_width);
  in.changes = parts.take<WordSlice>(int64_t{shape.tag_width > 0 ? 1 : 0});
  return in;
}

}  // namespace

int64_t StepInputs::fixed_words() const {
  return step_inputs_bytes(shape) / static_cast<int64_t>(sizeof(int32_t));
}

int64_t step_inputs_bytes(const StepShape& shape) {
  Parts parts(nullptr);
  take_fixed(parts, shape);
  return parts.at();
}

StepInputs step_inputs_in(std::span<std::byte> range, const StepShape& shape) {
  Parts parts(range.data());
  StepInputs in = take_fixed(parts, shape);
  const int64_t left = static_cast<int64_t>(range.size()) - parts.at();
  CHECK(left >= 0);
  in.extra = parts.take<int32_t>(left / static_cast<int64_t>(sizeof(int32_t)));
  return in;
}

void close_step_inputs(const StepInputs& inputs, uint64_t step, uint32_t n_rows, int64_t n_extra) {
  const int64_t n_words = inputs.fixed_words() + n_extra;
  CHECK(n_extra <= inputs.extra[0] && n_words <= std::numeric_limits<uint32_t>::max());
  SlotHeader header{.step = step, .n_rows = n_rows, .n_words = static_cast<uint32_t>(n_words)};
  for (int64_t r = 0; r < inputs.nonces[0]; ++r) header.nonce_sum += inputs.nonces(r);
  const auto* words = reinterpret_cast<const uint32_t*>(inputs.header.data);
  for (uint32_t i = kSlotHeaderWords; i < header.n_words; ++i) {
    header.hash += slot_word_hash(i, words[i]);
  }
  inputs.header(0) = header;
}

}  // namespace quire
