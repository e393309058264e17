// Any bytes as config.json: refused, or sizes that can be multiplied without overflow.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const quire::Result<quire::ModelConfig> parsed = quire::parse_model_config(text);
  if (!parsed.ok()) {
    CHECK(!parsed.error().message.empty());
    return 0;
  }
  const quire::ModelConfig& config = parsed.value();
  CHECK(config.shape.top_k <= config.shape.n_experts);
  CHECK(config.attention_scale() > 0);
  CHECK(config.kv_layout(quire::KvFormat::bf16).page_bytes > 0);
  (void)quire::check_supported(config);
  return 0;
}
