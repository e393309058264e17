#include "weights/weight_scheme.h"

#include "base/check.h"

namespace quire {

std::string_view name(WeightScheme scheme) {
  switch (scheme) {
    case WeightScheme::bf16:
      return "bf16";
    case WeightScheme::fp8_block128:
      return "fp8_block128";
    case WeightScheme::int4_group:
      return "int4_group";
    case WeightScheme::nvfp4:
      return "nvfp4";
    case WeightScheme::other:
      return "other";
  }
  CHECK(false);
  return {};
}

}  // namespace quire
