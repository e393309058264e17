// The backends that the op tests run on. A new one is added to backends() and to nothing else.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace quire::ops_test {

struct BackendFactory {
  std::string name;                                // a valid test name
  std::function<std::unique_ptr<Backend>()> make;  // null: the machine has no such device
  // Backends of one family give the same bits, alone and in any batch; empty: no such promise.
  std::string family;

  friend std::ostream& operator<<(std::ostream& out, const BackendFactory& factory) {
    return out << factory.name;
  }
};

std::vector<BackendFactory> backends();

// A test that runs once on each of them.
class OpTest : public testing::TestWithParam<BackendFactory> {
 protected:
  void SetUp() override {
    backend_ = GetParam().make();
    if (backend_ == nullptr) GTEST_SKIP() << GetParam().name << ": no such device here";
  }
  Backend& backend() { return *backend_; }

 private:
  std::unique_ptr<Backend> backend_;
};

#define QUIRE_ON_EVERY_BACKEND(suite)                                                 \
  INSTANTIATE_TEST_SUITE_P(, suite, testing::ValuesIn(::quire::ops_test::backends()), \
                           [](const auto& each) { return each.param.name; })

}  // namespace quire::ops_test
