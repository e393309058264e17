// View<T, Rank>: a borrowed, row-major, typed window on memory somebody else owns.
//
// Rank and element type are part of the type; sizes are run-time. The last axis is contiguous.
// A View does not say where its memory is; it is the op's contract that all views of one call
// belong to the backend that runs it. Never stored beyond the call, unless a comment at the field
// says what outlives what.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "tensor/dtype.h"

namespace quire {

template <class T, int Rank>
struct View {
  static_assert(Rank >= 1 && Rank <= 4);
  T* data = nullptr;
  std::array<int64_t, Rank> shape{};   // elements
  std::array<int64_t, Rank> stride{};  // elements; stride[Rank - 1] == 1

  constexpr int64_t operator[](int axis) const { return shape[static_cast<size_t>(axis)]; }

  constexpr int64_t size() const {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    return n;
  }

  template <class... Index>
  requires(sizeof...(Index) == Rank) constexpr T& operator()(Index... index) const {
    int64_t offset = 0;
    int axis = 0;
    ((offset += int64_t{index} * stride[static_cast<size_t>(axis++)]), ...);
    return data[offset];
  }

  // The sub-view at `index` on the first axis.
  constexpr View<T, Rank - 1> row(int64_t index) const requires(Rank > 1) {
    DCHECK(0 <= index && index < shape[0]);
    View<T, Rank - 1> out{.data = data + index * stride[0]};
    for (size_t i = 1; i < Rank; ++i) {
      out.shape[i - 1] = shape[i];
      out.stride[i - 1] = stride[i];
    }
    return out;
  }

  // Rows [begin, begin + count) of the first axis.
  constexpr View rows(int64_t begin, int64_t count) const {
    DCHECK(0 <= begin && 0 <= count && begin + count <= shape[0]);
    View out = *this;
    out.data += begin * stride[0];
    out.shape[0] = count;
    return out;
  }

  // Elements [begin, begin + count) of the last axis; the result has gaps between its rows.
  constexpr View columns(int64_t begin, int64_t count) const {
    DCHECK(0 <= begin && 0 <= count && begin + count <= shape[Rank - 1]);
    View out = *this;
    out.data += begin;
    out.shape[Rank - 1] = count;
    return out;
  }

  // A View of T is a View of const T.
  template <class U>
  requires(std::is_same_v<U, const T> && !std::is_const_v<T>) constexpr operator View<U, Rank>()
      const {
    return {.data = data, .shape = shape, .stride = stride};
  }
};

// A contiguous view: strides follow from the shape.
template <class T, class... Size>
constexpr View<T, int{sizeof...(Size)}> view_of(T* data, Size... size) {
  constexpr size_t rank = sizeof...(Size);
  View<T, int{rank}> v{.data = data, .shape = {int64_t{size}...}};
  int64_t stride = 1;
  for (size_t i = rank; i-- > 0;) {
    v.stride[i] = stride;
    stride *= v.shape[i];
  }
  return v;
}

// True when the rows of `v` follow each other without a gap.
template <class T, int Rank>
constexpr bool is_contiguous(const View<T, Rank>& v) {
  int64_t stride = 1;
  for (size_t i = Rank; i-- > 0;) {
    if (v.stride[i] != stride) return false;
    stride *= v.shape[i];
  }
  return true;
}

}  // namespace quire
