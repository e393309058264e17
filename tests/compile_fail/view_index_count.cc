// A matrix takes two indices.
#include "tensor/view.h"

float corner(quire::View<float, 2> matrix) {
#ifdef MENDED
  return matrix(0, 0);
#else
  return matrix(0);
#endif
}
