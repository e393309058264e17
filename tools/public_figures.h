// What the best public kernels take for the parts of a decode step of Kimi K2 on one of eight
// tensor-parallel H200: the column that ours stand beside.
//
// From the public database ai-dynamo/aiconfigurator (aic-core/src/aiconfigurator_core/systems/data/
// h200_sxm), the fastest framework for each part. Those are CUDA graph replays with warm caches.
// Known at 8,192 tokens of context and 1, 8, 32 and 64 requests only, and given only there.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "format/kv_page.h"
#include "model/config.h"

namespace quire {

struct PublicFigures {
  double attention_us = 0;  // MLA decode over the cache, a layer
  double experts_us = 0;    // routed INT4 experts and the shared one, a layer
  double layer_us = 0;      // the sum of all parts of a layer, without collectives
};

// Nothing where nothing is published: another model, batch or context.
std::optional<PublicFigures> public_decode_figures(const ModelConfig& config, KvFormat kv_format,
                                                   int32_t batch, int32_t context);

}  // namespace quire
