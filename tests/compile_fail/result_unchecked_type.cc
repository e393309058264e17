// A Result<int> is not an int: whoever wants the number says value() or TRY.
#include "base/result.h"

quire::Result<int> count();

quire::Result<int> twice() {
#ifdef MENDED
  const int n = TRY(count());
#else
  const int n = count();
#endif
  return 2 * n;
}
