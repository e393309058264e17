// A deep copy of a Buffer has a name; it is not an assignment.
#include <utility>

#include "tensor/buffer.h"

quire::Buffer take(quire::Buffer& from) {
#ifdef MENDED
  return std::move(from);
#else
  return from;
#endif
}
