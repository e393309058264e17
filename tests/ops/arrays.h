// Arrays of the op tests: on the host with a shape, and their copies in a backend's memory.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "tensor/buffer.h"

namespace quire::ops_test {

template <class T, int Rank>
struct HostArray {
  std::array<int64_t, Rank> shape{};
  std::vector<T> values;

  HostArray() = default;
  template <class... Size>
  explicit HostArray(Size... size)
      : shape{int64_t{size}...}, values(static_cast<size_t>((int64_t{1} * ... * size))) {}

  int64_t operator[](int axis) const { return shape[static_cast<size_t>(axis)]; }
  View<T, Rank> view() {
    View<T, Rank> v{.data = values.data(), .shape = shape};
    int64_t stride = 1;
    for (size_t i = Rank; i-- > 0; stride *= shape[i]) v.stride[i] = stride;
    return v;
  }
  View<const T, Rank> view() const { return const_cast<HostArray*>(this)->view(); }
};

template <class T, int Rank>
HostArray<T, Rank> rows_of(const HostArray<T, Rank>& from, int64_t begin, int64_t count) {
  HostArray<T, Rank> out = from;
  out.shape[0] = count;
  const auto row = static_cast<int64_t>(from.values.size()) / from.shape[0];
  out.values.assign(from.values.begin() + begin * row, from.values.begin() + (begin + count) * row);
  return out;
}

// A copy in backend memory. Outputs start as poison (every byte 0xff: NaN in bf16 and float32), so
// that a value that was not written shows.
template <class T, int Rank>
class DeviceArray {
 public:
  DeviceArray(Backend& backend, const HostArray<T, Rank>& from) : DeviceArray(backend, from.shape) {
    if (!from.values.empty()) {
      backend.copy_in(buffer_.data(), std::as_bytes(std::span(from.values)));
    }
  }
  static DeviceArray poisoned(Backend& backend, std::array<int64_t, Rank> shape) {
    DeviceArray out(backend, shape);
    backend.fill(out.buffer_.data(), out.buffer_.bytes(), std::byte{0xff});
    return out;
  }

  View<T, Rank> view() const {
    View<T, Rank> v{.data = reinterpret_cast<T*>(buffer_.data()), .shape = shape_};
    int64_t stride = 1;
    for (size_t i = Rank; i-- > 0; stride *= shape_[i]) v.stride[i] = stride;
    return v;
  }
  View<const T, Rank> constant() const { return view(); }
  HostArray<T, Rank> download(Backend& backend) const {
    HostArray<T, Rank> out;
    out.shape = shape_;
    out.values.resize(static_cast<size_t>(view().size()));
    backend.copy_out(std::as_writable_bytes(std::span(out.values)), buffer_.data());
    return out;
  }

 private:
  DeviceArray(Backend& backend, std::array<int64_t, Rank> shape) : shape_(shape) {
    int64_t bytes = sizeof(T);
    for (const int64_t extent : shape) bytes *= extent;
    buffer_ = allocate(backend, bytes > 0 ? bytes : 1, "a test array").value();
  }

  std::array<int64_t, Rank> shape_;
  Buffer buffer_;
};

// "[3, 7]": where flat index `i` is.
std::string position_of(size_t i, std::span<const int64_t> shape);

template <class T, int Rank>
bool same_bits(const HostArray<T, Rank>& a, const HostArray<T, Rank>& b) {
  return a.shape == b.shape && (a.values.empty() || std::memcmp(a.values.data(), b.values.data(),
                                                                a.values.size() * sizeof(T)) == 0);
}

}  // namespace quire::ops_test
