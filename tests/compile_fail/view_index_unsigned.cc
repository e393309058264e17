// Indices are signed: a size_t is converted in sight.
#include "tensor/view.h"

float at(quire::View<float, 1> values, size_t index) {
#ifdef MENDED
  return values(static_cast<int64_t>(index));
#else
  return values(index);
#endif
}
