// SingleSequence: one sequence through a model, with pages of its own. For tools and tests that
// want logits and need no engine: no batching, no sampling, no sharing.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/model.h"

namespace quire {

class SingleSequence {
 public:
  // `tokens_max` is of the whole sequence, `chunk_max` of one call of feed (the model's
  // tokens_max). `model` and `backend` outlive it. Errors: resource_exhausted.
  static Result<SingleSequence> make(Model& model, Backend& backend, int64_t tokens_max,
                                     int64_t chunk_max);

  // Appends one chunk and gives the logits of its last `n_logits` tokens, [n_logits, vocab].
  // Sizes past the limits are a programmer error; ids were checked by the caller.
  std::vector<float> feed(std::span<const Token> tokens, int64_t n_logits);

  int64_t length() const { return length_; }
  // Forgets everything; pages are reused as they are.
  void clear() { length_ = 0; }

 private:
  SingleSequence(Model& model, Backend& backend, int64_t tokens_max, int64_t chunk_max);

  Model* model_;
  Backend* backend_;
  int64_t tokens_max_;
  int64_t chunk_max_;
  int64_t n_pages_;
  int64_t length_ = 0;
  Buffer pool_;                   // [n_pages, page_bytes]
  Buffer inputs_;                 // table, then ids, rows, positions and logit rows of a chunk
  std::vector<int32_t> staging_;  // the same on the host
};

}  // namespace quire
