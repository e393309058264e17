#include "tools/absent_flags.h"

#include <array>
#include <string>

namespace quire {

namespace {

struct Feature {
  const char* what;
  std::array<const char*, 9> flags;  // SGLang's and vLLM's names; null past the last
};

constexpr std::array kAbsent = {
    Feature{"prefill and decode in separate pools, and cache transfer between them, are not built",
            {"--disaggregation-mode", "--disaggregation-transfer-backend",
             "--disaggregation-bootstrap-port", "--disaggregation-ib-device",
             "--disaggregation-decode-tp", "--kv-transfer-config"}},
    Feature{"cache pages live on the device alone: no tier below it is built",
            {"--enable-hierarchical-cache", "--hicache-ratio", "--hicache-size",
             "--hicache-storage-backend", "--enable-lmcache", "--kv-offloading-size",
             "--kv-offloading-backend", "--cpu-offload-gb", "--swap-space"}},
    Feature{"speculative decoding is not built",
            {"--speculative-algorithm", "--speculative-draft-model-path", "--speculative-num-steps",
             "--speculative-eagle-topk", "--speculative-num-draft-tokens", "--speculative-config"}},
    Feature{"adapters are not built",
            {"--enable-lora", "--lora-paths", "--lora-modules", "--max-loras"}},
    Feature{"images are not built", {"--enable-multimodal", "--limit-mm-per-prompt"}},
    Feature{"a page has one number, of physical memory: pools that move are not built",
            {"--enable-memory-saver", "--enable-sleep-mode"}},
    Feature{"one process serves one device: several ranks are not built",
            {"--dp-size", "--data-parallel-size", "--pp-size", "--pipeline-parallel-size",
             "--nnodes", "--node-rank", "--dist-init-addr"}},
};

template <class Visit>
void for_each_flag(const Visit& visit) {
  for (const Feature& feature : kAbsent) {
    for (const char* flag : feature.flags) {
      if (flag != nullptr) visit(feature, flag);
    }
  }
}

}  // namespace

void add_absent_flags(CLI::App& command) {
  for_each_flag([&](const Feature&, const char* flag) {
    // With a value or without, as it is written there.
    command.add_option(flag)->expected(0, 16)->group("");
  });
}

Status refuse_absent_flags(const CLI::App& command) {
  Status refused;
  for_each_flag([&](const Feature& feature, const char* flag) {
    if (!refused.ok() || command.count(flag) == 0) return;
    refused = unsupported(std::string(flag) + ": " + feature.what);
  });
  return refused;
}

}  // namespace quire
