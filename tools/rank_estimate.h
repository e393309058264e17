// RankEstimate: what each rank of a tensor-parallel group would hold, and the cache that its GPU
// would have room for. Arithmetic for who plans machines; a server measures (tools/pool_budget.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "model/config.h"
#include "tools/pool_budget.h"
#include "weights/resolve.h"

namespace quire {

// What an H200 says that it has.
inline constexpr double kGpuGigabytes = 150;

// What a rank takes beside weights and cache: the driver's context, activations of 8,192 tokens,
// working memory, recorded steps. Measured of rank 0 of 8 of Kimi K2.6 on an H200
// (docs/formats/weights.md, Memory): with it the estimate is within 0.2 % of
// the 1,814,720 tokens that the server had.
inline constexpr int64_t kRankOverheadBytes = 1'600'000'000;

struct GpuBudget {
  int64_t bytes = static_cast<int64_t>(kGpuGigabytes * 1e9);
  double fraction = kMemFraction;  // of bytes, for all of it: --mem-fraction-static
  KvFormat kv_format = KvFormat::bf16;
};

struct RankEstimate {
  int64_t n_ranks = 1;
  int64_t weight_bytes = 0;
  int64_t kv_tokens = 0;  // 0: the weights alone do not fit
  std::string refused;    // why there is no such rank; empty when there is
};

// Of one token in all layers: latents, rope keys, and indexer keys where there are any.
double kv_bytes_a_token(const ModelConfig& config, KvFormat format);

// For 1, 2, 4, 8, 16 and 32 ranks.
std::vector<RankEstimate> estimate_ranks(std::span<const ResolvedTensor> tensors,
                                         const ModelConfig& config, const GpuBudget& gpu);

// [{"tp", "weight_bytes", "kv_tokens"}], or {"tp", "refused"}.
Json to_json(std::span<const RankEstimate> ranks);

}  // namespace quire
