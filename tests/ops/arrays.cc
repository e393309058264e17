#include "arrays.h"

namespace quire::ops_test {

std::string position_of(size_t i, std::span<const int64_t> shape) {
  std::string out = "]";
  auto rest = static_cast<int64_t>(i);
  for (size_t axis = shape.size(); axis-- > 0;) {
    out.insert(0, (axis == 0 ? "[" : ", ") + std::to_string(rest % shape[axis]));
    rest /= shape[axis];
  }
  return out;
}

}  // namespace quire::ops_test
