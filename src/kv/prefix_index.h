// PrefixIndex: finds sealed pages by what they hold. Under construction by its owner; the domain
// below is fixed.
#pragma once

#include <array>
#include <cstdint>

#include "format/kv_page.h"
#include "ops/weight_matrix.h"

namespace quire {

// Everything but tokens and tenant that decides the bytes of a page (docs/formats/page_tag.md).
struct PrefixDomain {
  std::array<uint8_t, 16> model_lineage{};
  WeightFormat weight_format = WeightFormat::bf16;
  Activation activation = Activation::bf16;
  KvFormat kv_format = KvFormat::bf16;
  uint8_t path_class = 0;  // 0 absorbed attention, 1 non-absorbed prefill
};

}  // namespace quire
