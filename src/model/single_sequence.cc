#include "model/single_sequence.h"

#include <algorithm>

#include "base/bytes.h"

namespace quire {

SingleSequence::SingleSequence(Model& model, Backend& backend, int64_t tokens_max,
                               int64_t chunk_max)
    : model_(&model),
      backend_(&backend),
      tokens_max_(tokens_max),
      chunk_max_(chunk_max),
      n_pages_(div_up(tokens_max, kPageTokens)) {}

Result<SingleSequence> SingleSequence::make(Model& model, Backend& backend, int64_t tokens_max,
                                            int64_t chunk_max) {
  CHECK(tokens_max > 0 && chunk_max > 0);
  SingleSequence out(model, backend, tokens_max, chunk_max);
  const int64_t pool_bytes = out.n_pages_ * model.kv_layout().page_bytes;
  out.pool_ = TRY(allocate(backend, pool_bytes, "the pages of one sequence"));
  backend.fill(out.pool_.data(), pool_bytes, std::byte{0});
  const int64_t words = out.n_pages_ + 4 * chunk_max + 2;  // and where the one row begins and ends
  out.inputs_ = TRY(allocate(backend, words * static_cast<int64_t>(sizeof(int32_t)),
                             "the inputs of one sequence"));
  out.staging_.resize(static_cast<size_t>(words));
  return out;
}

std::vector<float> SingleSequence::feed(std::span<const Token> tokens, int64_t n_logits) {
  const auto n = static_cast<int64_t>(tokens.size());
  CHECK(0 < n && n <= chunk_max_ && length_ + n <= tokens_max_ && 0 <= n_logits && n_logits <= n);
  int32_t* table = staging_.data();
  int32_t* ids = table + n_pages_;
  int32_t* rows = ids + chunk_max_;
  int32_t* positions = rows + chunk_max_;
  int32_t* logit_rows = positions + chunk_max_;
  int32_t* row_begin = logit_rows + chunk_max_;
  for (int64_t page = 0; page < n_pages_; ++page) table[page] = static_cast<int32_t>(page);
  std::copy(tokens.begin(), tokens.end(), ids);
  std::fill(rows, rows + n, 0);
  for (int64_t i = 0; i < n; ++i) positions[i] = static_cast<int32_t>(length_ + i);
  for (int64_t i = 0; i < n_logits; ++i) logit_rows[i] = static_cast<int32_t>(n - n_logits + i);
  row_begin[0] = 0;
  row_begin[1] = static_cast<int32_t>(n);
  backend_->copy_in(inputs_.data(), std::as_bytes(std::span(staging_)));

  const auto* device = reinterpret_cast<const int32_t*>(inputs_.data());
  const auto* device_ids = device + n_pages_;
  TokenRows in_step{.row = view_of(device_ids + chunk_max_, n),
                    .position = view_of(device_ids + 2 * chunk_max_, n),
                    .row_begin = view_of(device_ids + 4 * chunk_max_, int64_t{2})};
  in_step.count_row(n, length_ + n);
  const ModelBatch batch{
      .ids = view_of(device_ids, n),
      .tokens = in_step,
      .kv = {.pool = pool_.data(),
             .n_pages = n_pages_,
             .layout = &model_->kv_layout(),
             .table = view_of(device, int64_t{1}, n_pages_)},
      .logit_rows = view_of(device_ids + 3 * chunk_max_, n_logits),
  };
  const View<const float, 2> logits = model_->forward(batch);
  length_ += n;
  std::vector<float> out(static_cast<size_t>(logits.size()));
  backend_->copy_out(std::as_writable_bytes(std::span(out)),
                     reinterpret_cast<const std::byte*>(logits.data));
  return out;
}

}  // namespace quire
