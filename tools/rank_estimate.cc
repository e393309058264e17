#include "tools/rank_estimate.h"

#include <algorithm>

#include "base/json.h"
#include "weights/rank_bytes.h"

namespace quire {

namespace {

constexpr int64_t kRankCounts[] = {1, 2, 4, 8, 16, 32};

}  // namespace

// A key of the sparse attention indexer: e4m3 with one float32 scale, in either format of the rest.
double kv_bytes_a_token(const ModelConfig& config, KvFormat format) {
  const int64_t index_key_bytes = config.shape.indexer_dim + static_cast<int64_t>(sizeof(float));
  return static_cast<double>(config.kv_layout(format).page_bytes) / kPageTokens +
         static_cast<double>(config.shape.n_indexer_layers() * index_key_bytes);
}

std::vector<RankEstimate> estimate_ranks(std::span<const ResolvedTensor> tensors,
                                         const ModelConfig& config, const GpuBudget& gpu) {
  const double page_bytes = kv_bytes_a_token(config, gpu.kv_format) * kPageTokens;
  std::vector<RankEstimate> out;
  for (const int64_t n_ranks : kRankCounts) {
    RankEstimate rank{.n_ranks = n_ranks};
    const Partition first{.rank = 0, .n_ranks = n_ranks};
    const Result<int64_t> bytes = rank_weight_bytes(tensors, config.shape, first);
    if (bytes.ok()) {
      rank.weight_bytes = bytes.value();
      const double room = static_cast<double>(gpu.bytes) * gpu.fraction -
                          static_cast<double>(rank.weight_bytes + kRankOverheadBytes);
      // One page is the null page, which holds nobody's tokens.
      const auto pages = static_cast<int64_t>(room / page_bytes) - 1;
      rank.kv_tokens = std::max<int64_t>(pages, 0) * kPageTokens;
    } else {
      rank.refused = bytes.error().message;
    }
    out.push_back(std::move(rank));
  }
  return out;
}

Json to_json(std::span<const RankEstimate> ranks) {
  Json out = Json::array();
  for (const RankEstimate& rank : ranks) {
    if (rank.refused.empty()) {
      out.push_back({{"tp", rank.n_ranks},
                     {"weight_bytes", rank.weight_bytes},
                     {"kv_tokens", rank.kv_tokens}});
    } else {
      out.push_back({{"tp", rank.n_ranks}, {"refused", rank.refused}});
    }
  }
  return out;
}

}  // namespace quire
