#include "tensor/random_values.h"

#include <cstring>

namespace quire {

namespace {

template <class T, class Value>
void each_element(std::byte* out, int64_t n, const Value& value) {
  for (int64_t c = 0; c < n; ++c) {
    const T x = value(c);
    std::memcpy(out + c * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  }
}

}  // namespace

void random_row(const RandomArray& array, int64_t row, std::byte* out) {
  const int64_t first = array.first + row * array.stride;
  const auto bits = [&](int64_t c) { return random_bits(array.seed, first + c); };
  switch (array.kind) {
    case RandomKind::normal_bf16:
      each_element<Bf16>(out, array.n_columns,
                         [&](int64_t c) { return random_normal(bits(c), array.scale); });
      return;
    case RandomKind::uniform_bf16:
      each_element<Bf16>(out, array.n_columns,
                         [&](int64_t c) { return to_bf16(random_near(bits(c), array.scale)); });
      return;
    case RandomKind::uniform_f32:
      each_element<float>(out, array.n_columns,
                          [&](int64_t c) { return random_near(bits(c), array.scale); });
      return;
    case RandomKind::e4m3:
    case RandomKind::nibbles:
      break;
  }
  int64_t c = 0;
  if (first % 8 == 0) {
    for (; c + 8 <= array.n_columns; c += 8) {
      const uint64_t eight = random_eight(array.kind, array.seed, (first + c) / 8);
      std::memcpy(out + c, &eight, sizeof(eight));
    }
  }
  for (; c < array.n_columns; ++c) {
    const uint64_t eight = random_eight(array.kind, array.seed, (first + c) / 8);
    out[c] = static_cast<std::byte>(eight >> (8 * ((first + c) % 8)) & 0xffU);
  }
}

}  // namespace quire
