// A Status is looked at or passed on, never dropped.
#include "base/result.h"

quire::Status may_fail();

void caller() {
#ifdef MENDED
  if (!may_fail().ok()) return;
#else
  may_fail();
#endif
}
