// Steps made up for benches: a pool full of random rows, and batches of any size and context.
//
// Nothing is prefilled: the pages hold random values that the cache format allows, so a step moves
// and computes what a real one does. Rows have pages of their own, scattered over the pool, and no
// two pages are alike: rows that attend to the same keys grow alike, and so do their experts.
#pragma once

#include <cstdint>

#include "format/step_inputs.h"
#include "model/model.h"
#include "ops/backend.h"
#include "tensor/buffer.h"

namespace quire {

// Memory that takes turns at being the KV pool of one format or another. Page 0 is never a row's.
class SyntheticPool {
 public:
  // Errors: resource_exhausted.
  static Result<SyntheticPool> make(Backend& backend, int64_t bytes);

  int64_t bytes() const { return memory_.bytes(); }
  std::byte* data() const { return memory_.data(); }
  int64_t pages(const KvPageLayout& layout) const { return bytes() / layout.page_bytes; }
  // Random rows in every page, as `layout` stores them. Errors: resource_exhausted.
  Status fill(Backend& backend, const KvPageLayout& layout);

 private:
  Buffer memory_;
};

// Random rows in every page of a pool. Errors: resource_exhausted.
Status fill_with_random_rows(Backend& backend, const PoolPages& pool);

struct SyntheticShape {
  int32_t n_rows = 0;
  int32_t row_tokens = 1;      // new tokens of each row, in this step
  int32_t first_position = 0;  // of them: how many tokens each row has cached
  bool wants_logits = true;    // of each row's last token

  int64_t pages_per_row() const;
};

class SyntheticStep {
 public:
  // Random ids below `vocab`; pages of a random permutation of the pool's, which must hold them.
  // `layout` and the pool outlive the step. Errors: resource_exhausted.
  static Result<SyntheticStep> make(Backend& backend, const SyntheticPool& pool,
                                    const KvPageLayout& layout, const SyntheticShape& shape,
                                    int64_t vocab);
  const ModelBatch& batch() const { return batch_; }

 private:
  Buffer memory_;
  ModelBatch batch_;
};

// Sampling of a step's logits, with everything it needs in the backend's memory.
class SyntheticSampler {
 public:
  // Every row like `row`, which names no lists; greedy by default. Errors: resource_exhausted.
  static Result<SyntheticSampler> make(Backend& backend, int64_t n_rows,
                                       const SamplerRow& row = {});
  void run(Backend& backend, const View<float, 2>& logits) const;

 private:
  Buffer rows_, sampled_, recent_, step_;
};

}  // namespace quire
