// The two small per-head products around absorbed attention.
#include "cpu/kernels.h"

namespace quire::cpu {

void absorb_query(Workers& workers, const ops::AbsorbQuery& args) {
  const int64_t rank = args.out[2];
  workers.each(workers.count(), [&](int worker, Scratch& scratch) {
    float* sum = scratch.take<float>(rank);
    for (int64_t head = worker; head < args.out[1]; head += workers.count()) {
      for (int64_t token = 0; token < args.out[0]; ++token) {
        for (int64_t c = 0; c < rank; ++c) sum[c] = 0;
        for (int64_t d = 0; d < args.q_nope[2]; ++d) {
          const float q = to_float(args.q_nope(token, head, d));
          for (int64_t c = 0; c < rank; ++c) sum[c] += q * to_float(args.w_uk(head, d, c));
        }
        for (int64_t c = 0; c < rank; ++c) args.out(token, head, c) = to_bf16(sum[c]);
      }
    }
  });
}

void expand_value(Workers& workers, const ops::ExpandValue& args) {
  workers.split(args.out[1], [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      for (int64_t token = 0; token < args.out[0]; ++token) {
        for (int64_t v = 0; v < args.out[2]; ++v) {
          float sum = 0;
          for (int64_t c = 0; c < args.x[2]; ++c) {
            sum += to_float(args.w_uv(head, v, c)) * to_float(args.x(token, head, c));
          }
          args.out(token, head, v) = to_bf16(sum);
        }
      }
    }
  });
}

}  // namespace quire::cpu
