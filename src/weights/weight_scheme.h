// WeightScheme: how config.json says that a checkpoint's weights are stored.
//
// It is a claim to be checked, not a decoder: what a tensor holds is decided by the file, tensor by
// tensor (weights/loader.h), and a file that disagrees with its own config is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weights/name_pattern.h"

namespace quire {

// How the names of a checkpoint begin.
enum class CheckpointNaming : uint8_t {
  plain,           // model.layers.0 ...
  language_model,  // language_model.model.layers.0 ...; beside vision_tower and mm_projector
};

// How a file holds a linear map. More than what backends multiply with (ops/weight_matrix.h): NVFP4
// is decoded while it is loaded.
enum class StoredFormat : uint8_t {
  bf16,  // of vectors: or F32
  fp8_block128,
  int4_group,
  nvfp4,  // e2m1, an e4m3 scale for each 16 inputs, a float32 scale for the tensor
};

enum class WeightScheme : uint8_t {
  bf16,          // no quantization_config
  fp8_block128,  // quant_method fp8, e4m3, blocks of 128 x 128
  int4_group,    // compressed-tensors, pack-quantized, 4 bits, symmetric, groups along the inputs
  nvfp4,         // modelopt's NVFP4
  other,         // known by name alone; never loaded
};

std::string_view name(WeightScheme scheme);

// Inputs of a row that share an e4m3 scale in NVFP4.
inline constexpr int64_t kNvfp4Group = 16;

struct WeightSource {
  CheckpointNaming naming = CheckpointNaming::plain;
  WeightScheme scheme = WeightScheme::bf16;
  std::string scheme_text = "bf16";  // as config.json names it
  int group = 0;                     // int4_group: 32 or 128
  // Modules that the scheme leaves alone (compressed-tensors `ignore`, FP8
  // `modules_to_not_convert`), without the naming prefix.
  std::vector<NamePattern> ignored;
};

}  // namespace quire
