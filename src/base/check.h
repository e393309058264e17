// CHECK: a broken invariant ends the process, saying where. Always compiled in. An expression.
// DCHECK: the same, in builds without NDEBUG only; for hot loops.
// Neither is for what the world can do to us: that is a Result (base/result.h).
#pragma once

#include <cstdio>
#include <cstdlib>

namespace quire {

[[noreturn, gnu::cold, gnu::noinline]] inline void check_failed(const char* file, int line,
                                                                const char* what) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", file, line, what);
  std::abort();
}

}  // namespace quire

#define CHECK(...) \
  ((__VA_ARGS__) ? (void)0 : ::quire::check_failed(__FILE__, __LINE__, #__VA_ARGS__))

#ifdef NDEBUG
#define DCHECK(...) ((void)0)
#else
#define DCHECK(...) CHECK(__VA_ARGS__)
#endif
