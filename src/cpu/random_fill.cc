#include "cpu/kernels.h"

namespace quire::cpu {

void random_fill(Workers& workers, const ops::RandomFill& args) {
  const RandomArray& values = args.values;
  const int n_workers = workers.count_for(values.n_rows * values.n_columns);
  workers.each(n_workers, [&](int worker, Scratch&) {
    const Share rows = share_of(worker, n_workers, values.n_rows);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      random_row(values, row, args.out + row * values.row_bytes());
    }
  });
}

}  // namespace quire::cpu
