// What every op computes, in float64 and plain loops, and how far a backend may be from it.
//
// References take the args struct of the op with views of HOST memory; outputs in it are ignored.
// The bounds are derived in docs/numerics.md: rounding steps x format epsilon x norm, an element at
// a time. They hold for a backend that rounds where the contracts say and sums in float32 along
// paths of at most sum_depth(n) additions.
#pragma once

#include <vector>

#include "cases.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "ops/rope.h"

namespace quire::ops_test {

struct Expected {
  std::vector<double> value;  // row-major, as the op's output
  std::vector<double> bound;  // the largest allowed |error|, > 0
  // Errors within their bounds that yet lean one way (a wrong scale, a dropped term) show in the
  // angle first. bfloat16 costs at most 2^-17 a rounding: 1 - cos <= error^2 / 2, error <= 2^-8.
  double cosine_loss = 1e-4;
};

Expected reference(const ops::Add& args);
Expected reference(const ops::SiluMul& args);
Expected reference(const ops::RmsNorm& args);
Expected reference(const ops::Rope& args);
Expected reference(const ops::Linear& args);
Expected reference(const ops::AbsorbQuery& args);
Expected reference(const ops::ExpandValue& args);
Expected reference(const ops::MlaAttention& args);
// `table` is what the bank was made from; the bank itself is not looked at.
Expected reference(const ops::MoeExperts& args, const ops::ExpertTable& table);

// Rounds c_j, k and v to bf16, as the contract says. Where a backend's sums lead to the other
// neighbour, the bound on rounded weights has room: it is twice what rounding can do.
Expected reference(const ops::MlaPrefillAttention& args);

// weight[o, i] in float64, before any rounding of its scaled value.
double weight_at(const WeightMatrix& weight, int64_t o, int64_t i);

// x as the product sees it: exact, for both activation formats.
std::vector<double> activation_of(View<const Bf16, 1> x, Activation activation);

// What kv_append writes of every cached token into the cache's pool, by the words of
// docs/formats/kv_page.md.
void append_reference(Cache* cache);

}  // namespace quire::ops_test
