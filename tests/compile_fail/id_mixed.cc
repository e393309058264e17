// A page id is not a request id.
#include "base/ids.h"

quire::PageId page_of(quire::RequestId request) {
#ifdef MENDED
  return quire::PageId{static_cast<int32_t>(request.value)};
#else
  return request;
#endif
}
