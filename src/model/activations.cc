#include "model/activations.h"

#include <algorithm>

#include "base/bytes.h"

namespace quire {

namespace {

// Hands out memory front to back. Without a base it only measures.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}

  template <class T, class... Size>
  View<T, int{sizeof...(Size)}> take(Size... size) {
    auto* data = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + at_);
    const auto view = view_of(data, size...);
    at_ += round_up(view.size() * static_cast<int64_t>(sizeof(T)), kBufferAlignment);
    end_ = std::max(end_, at_);
    return view;
  }

  int64_t at() const { return at_; }
  void go_back_to(int64_t at) { at_ = at; }
  void go_to_end() { at_ = end_; }

 private:
  std::byte* base_;
  int64_t at_ = 0;
  int64_t end_ = 0;
};

}  // namespace

StepBuffers Activations::carve(std::byte* base, int64_t n_tokens, int64_t n_logits,
                               int64_t* bytes) const {
  Carver carver(base);
  const ModelShape& shape = shape_;
  StepBuffers s;
  s.h = carver.take<Bf16>(n_tokens, shape.hidden_size);
  s.normed = carver.take<Bf16>(n_tokens, shape.hidden_size);
  s.block_out = carver.take<Bf16>(n_tokens, shape.hidden_size);
  s.places = carver.take<TokenPlace>(n_tokens);
  s.routed = carver.take<int32_t>(shape.n_layers - shape.n_dense_layers, n_tokens, shape.top_k);
  const int64_t turn = carver.at();

  // Next to each other, as their weights are: one product may write both.
  const int64_t latent_key = shape.kv_lora_rank + shape.rope_dim;
  const auto low_rank = carver.take<Bf16>(n_tokens, shape.q_lora_rank + latent_key);
  if (base != nullptr) {  // while only bytes are counted there is nothing to point into
    s.q_a = low_rank.columns(0, shape.q_lora_rank);
    s.kv_a = low_rank.columns(shape.q_lora_rank, latent_key);
  }
  s.q = carver.take<Bf16>(n_tokens, shape.n_heads, shape.qk_dim());
  s.q_latent = carver.take<Bf16>(n_tokens, shape.n_heads, shape.kv_lora_rank);
  s.attn_latent = carver.take<Bf16>(n_tokens, shape.n_heads, shape.kv_lora_rank);
  s.attn = carver.take<Bf16>(n_tokens, shape.n_heads, shape.v_dim);

  carver.go_back_to(turn);
  s.dense_gate = carver.take<Bf16>(n_tokens, shape.dense_inner);
  s.dense_up = carver.take<Bf16>(n_tokens, shape.dense_inner);

  carver.go_back_to(turn);
  s.router_scores = carver.take<float>(n_tokens, shape.n_experts);
  s.expert_weights = carver.take<float>(n_tokens, shape.top_k);

  carver.go_to_end();
  s.last = carver.take<Bf16>(n_logits, shape.hidden_size);
  s.logits = carver.take<float>(n_logits, shape.vocab_size);
  if (n_ranks_ > 1) s.all_logits = carver.take<float>(n_logits, n_ranks_ * shape.vocab_size);
  *bytes = carver.at();
  return s;
}

Result<Activations> Activations::make(Backend& backend, const ModelShape& shape,
                                      const ModelLimits& limits, int64_t n_ranks) {
  CHECK(limits.tokens_max > 0 && limits.logits_max > 0);
  Activations activations(shape, limits, n_ranks);
  int64_t bytes = 0;
  activations.carve(nullptr, limits.tokens_max, limits.logits_max, &bytes);
  activations.memory_ = TRY(allocate(backend, bytes, "the activations"));
  return activations;
}

StepBuffers Activations::step(int64_t n_tokens, int64_t n_logits) const {
  CHECK(n_tokens <= limits_.tokens_max && n_logits <= limits_.logits_max);
  int64_t bytes = 0;
  return carve(memory_.data(), n_tokens, n_logits, &bytes);
}

}  // namespace quire
