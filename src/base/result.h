// Result<T>: the value of an operation that may fail for a reason outside the program.
//
// Use it for what the world can do to us: a truncated file, a page whose tag does not match, a peer
// that went away, a request that asks too much. A broken invariant is not a Result; it is a CHECK
// (base/check.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace quire {

// Only kinds on which a caller acts differently. Each maps once to HTTP (server/openai_error.h).
enum class ErrorCode : int {
  invalid_argument,    // the caller's input can never work: HTTP 400
  not_found,           // the named thing does not exist: HTTP 404
  corruption,          // bytes do not match their tag or checksum; never retried in place: HTTP 500
  resource_exhausted,  // no page, slot or budget now; may be retried: HTTP 429
  unavailable,         // starting, draining, peer or device gone; retry elsewhere: HTTP 503
  unsupported,         // well formed, but this build or model cannot do it: HTTP 400
};

std::string_view name(ErrorCode code);

struct [[nodiscard]] Error {
  ErrorCode code;
  // Names the thing, the expected and the found. Safe to show to a user unless `code` is
  // corruption.
  std::string message;
  // Where it was made. Not std::source_location: clang-tidy 14 cannot parse it.
  const char* file = __builtin_FILE();
  int line = __builtin_LINE();
};

// Shorthands, so that a return reads as a sentence.
inline Error invalid_argument(std::string message, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return {ErrorCode::invalid_argument, std::move(message), file, line};
}
inline Error not_found(std::string message, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  return {ErrorCode::not_found, std::move(message), file, line};
}
inline Error corruption(std::string message, const char* file = __builtin_FILE(),
                        int line = __builtin_LINE()) {
  return {ErrorCode::corruption, std::move(message), file, line};
}
inline Error resource_exhausted(std::string message, const char* file = __builtin_FILE(),
                                int line = __builtin_LINE()) {
  return {ErrorCode::resource_exhausted, std::move(message), file, line};
}
inline Error unavailable(std::string message, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  return {ErrorCode::unavailable, std::move(message), file, line};
}
inline Error unsupported(std::string message, const char* file = __builtin_FILE(),
                         int line = __builtin_LINE()) {
  return {ErrorCode::unsupported, std::move(message), file, line};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }

  // Asking for what is not there is a programmer error.
  T& value() & { return CHECK(ok()), *std::get_if<0>(&state_); }
  const T& value() const& { return CHECK(ok()), *std::get_if<0>(&state_); }
  T&& value() && { return std::move(value()); }
  const Error& error() const& { return CHECK(!ok()), *std::get_if<1>(&state_); }
  Error&& error() && { return CHECK(!ok()), std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

// A Result that carries nothing on success.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  const Error& error() const& { return CHECK(!ok()), *error_; }
  Error&& error() && { return CHECK(!ok()), *std::move(error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace quire

// TRY(expr): yields the value of a Result, or returns its Error from the enclosing function.
// Not to be nested (-Wshadow refuses it): name the step instead.
#define TRY(expr)                                                 \
  __extension__({                                                 \
    auto try_result_ = (expr);                                    \
    if (!try_result_.ok()) return std::move(try_result_).error(); \
    std::move(try_result_).value();                               \
  })

// TRY_OK(expr): the same for a Status.
#define TRY_OK(expr)                                    \
  do {                                                  \
    if (auto try_status_ = (expr); !try_status_.ok()) { \
      return std::move(try_status_).error();            \
    }                                                   \
  } while (false)
