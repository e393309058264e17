#include "ops/sample.h"

namespace quire::ops {

void sample(Backend& backend, const Sample& args) {
  const auto n_rows = static_cast<size_t>(args.logits[0]);
  CHECK(args.out.size() == n_rows && args.rows.size() == n_rows && args.logits[1] > 0);
  const auto mask_words = static_cast<size_t>((args.logits[1] + 63) / 64);
  for (const SampleRow& row : args.rows) {
    CHECK(row.settings != nullptr);
    CHECK(row.mask.empty() || row.mask.size() >= mask_words);
  }
  if (n_rows == 0) return;
  backend.sample(args);
}

}  // namespace quire::ops
