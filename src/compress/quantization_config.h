// The config.json of a compressed checkpoint: the input's, with a quantization_config that says
// which modules are in which format, as transformers, vLLM and SGLang read it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "compress/plan.h"

namespace quire {

// `input_config` is a config.json that parse_model_config took. INT4 is compressed-tensors
// `pack-quantized`, FP8 is quant_method `fp8` in blocks, NVFP4 is `modelopt`. Errors:
// invalid_argument.
Result<std::string> compressed_config(std::string_view input_config, const CompressPlan& plan);

}  // namespace quire
