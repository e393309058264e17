#include "weights/dummy.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

constexpr ModelShape kShape = {.vocab_size = 96,
                               .hidden_size = 128,
                               .n_layers = 2,
                               .n_dense_layers = 1,
                               .n_heads = 2,
                               .q_lora_rank = 128,
                               .kv_lora_rank = 64,
                               .nope_dim = 128,
                               .rope_dim = 64,
                               .v_dim = 128,
                               .dense_inner = 256,
                               .expert_inner = 128,
                               .n_experts = 4,
                               .top_k = 2,
                               .n_shared_experts = 1};

// Kimi K2.6 in its own words: experts alone are quantised, in either scheme.
TEST(DummyCheckpoint, ModulesThatTheSchemeLeavesAloneAreBf16) {
  for (WeightSource source :
       {WeightSource{.scheme = WeightScheme::fp8_block128, .scheme_text = "fp8"},
        WeightSource{.scheme = WeightScheme::int4_group, .scheme_text = "int4", .group = 32}}) {
    SCOPED_TRACE(source.scheme_text);
    for (const char* pattern : {"re:.*self_attn.*", "re:.*shared_experts.*",
                                "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}) {
      source.ignored.push_back(NamePattern::parse(pattern).value());
    }
    const Checkpoint checkpoint = dummy_checkpoint("dummy", kShape, source);
    const auto tensors = resolve_checkpoint(checkpoint, kShape, source).value();
    int n_experts = 0;
    for (const ResolvedTensor& tensor : tensors) {
      const bool is_expert = tensor.wanted.source.find(".experts.") != std::string::npos;
      n_experts += is_expert ? 1 : 0;
      EXPECT_EQ(tensor.scales != nullptr, is_expert) << tensor.wanted.source;
    }
    EXPECT_EQ(n_experts, 4 * 3);
  }
}

}  // namespace
}  // namespace quire
