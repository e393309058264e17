#include "weights/placer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "ops/random_fill.h"
#include "weights/dummy.h"
#include "weights/nvfp4.h"

namespace quire {

namespace {

constexpr int64_t kHostPage = 4096;           // bytes; what touching a mapped file steps by
constexpr int64_t kProgressBytes = 64 << 20;  // between two reports within one tensor

// Rows [begin, begin + n) of an FP8 matrix of `columns`, as BF16: values times their scale, rounded
// once, to nearest even.
void dequantise_rows(std::span<const std::byte> values, std::span<const std::byte> scales,
                     int64_t columns, int64_t begin, std::span<std::byte> out) {
  const int64_t scale_columns = div_up(columns, kFp8Block);
  const int64_t n = static_cast<int64_t>(out.size()) / (columns * int64_t{sizeof(Bf16)});
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t scale_at = (begin + row) / kFp8Block * scale_columns + column / kFp8Block;
      const auto scale = load_le<float>(scales, static_cast<size_t>(scale_at) * sizeof(float));
      const auto value =
          load_le<Fp8E4m3>(values, static_cast<size_t>((begin + row) * columns + column));
      store_le(out, static_cast<size_t>(row * columns + column) * sizeof(Bf16),
               to_bf16(to_float(value) * scale));
    }
  }
}

}  // namespace

std::byte* Region::take(int64_t bytes) {
  std::byte* to = data == nullptr ? nullptr : data + used;
  used += round_up(bytes, kBufferAlignment);
  return to;
}

// Reads the file now, so that the first request does not wait for the disk.
void Placer::touch(std::span<const std::byte> data) {
  uint8_t sum = 0;
  const auto bytes = static_cast<int64_t>(data.size());
  for (int64_t begin = 0; begin < bytes; begin += kProgressBytes) {
    const int64_t end = std::min(begin + kProgressBytes, bytes);
    for (int64_t at = begin; at < end; at += kHostPage) {
      sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(data[static_cast<size_t>(at)]));
    }
    advance(end - begin);
  }
  touched_ = sum;
}

template <class T, class... Size>
View<const T, int{sizeof...(Size)}> Placer::place(const TensorSlice& tensor,
                                                  const ArraySlice& array, Size... size) {
  const std::byte* from = array.data();
  const bool can_borrow = backend_.reads_host_memory() && from != nullptr &&
                          array.is_contiguous() &&
                          reinterpret_cast<uintptr_t>(from) % alignof(T) == 0;
  if (can_borrow) {
    if (!is_measuring()) {
      touch({from, static_cast<size_t>(array.bytes())});
      borrowed_bytes_ += array.bytes();
    }
    return view_of(reinterpret_cast<const T*>(from), size...);
  }
  std::byte* to = region_->take(array.bytes());
  if (!is_measuring() && from != nullptr) {
    pieces_.push_back(
        {to, from, array.n_rows, array.row_bytes(), array.stride * array.element_bytes()});
  }
  if (!is_measuring() && from == nullptr) {
    ops::random_fill(backend_, {.out = to, .values = dummy_values(tensor, array)});
    advance(array.bytes());
  }
  return view_of(reinterpret_cast<const T*>(to), size...);
}

WeightMatrix Placer::matrix(const TensorSlice& tensor) {
  const int64_t n_out = tensor.wanted.n_out;
  const int64_t n_in = tensor.wanted.n_in;
  WeightMatrix out{.n_out = n_out, .n_in = n_in, .group = tensor.group};
  switch (tensor.format) {
    case StoredFormat::bf16:
      out.bf16 = place<Bf16>(tensor, tensor.values, n_out, n_in);
      break;
    case StoredFormat::fp8_block128:
      out.format = WeightFormat::fp8_block128;
      out.fp8 = place<Fp8E4m3>(tensor, tensor.values, n_out, n_in);
      out.fp8_scale =
          place<float>(tensor, tensor.scales, div_up(n_out, kFp8Block), div_up(n_in, kFp8Block));
      break;
    case StoredFormat::int4_group:
      out.format = WeightFormat::int4_group;
      // Little-endian 32-bit words, low nibble first, are bytes of our order as they stand.
      out.int4 = place<uint8_t>(tensor, tensor.values, n_out, n_in / 2);
      out.int4_scale = place<Bf16>(tensor, tensor.scales, n_out, n_in / tensor.group);
      break;
    case StoredFormat::nvfp4:
      out.bf16 = decode_nvfp4(tensor);
      break;
  }
  return out;
}

View<const Bf16, 2> Placer::decode_nvfp4(const TensorSlice& tensor) {
  const int64_t n_out = tensor.wanted.n_out;
  const int64_t n_in = tensor.wanted.n_in;
  std::byte* const to = region_->take(n_out * n_in * int64_t{sizeof(Bf16)});
  const View<const Bf16, 2> out = view_of(reinterpret_cast<const Bf16*>(to), n_out, n_in);
  if (is_measuring()) return out;
  const auto tensor_scale = load_le<float>(tensor.tensor_scale->data, 0);
  std::vector<Bf16> row(static_cast<size_t>(n_in));
  for (int64_t r = 0; r < n_out; ++r) {
    decode_nvfp4_row({.packed = tensor.values.data() + r * tensor.values.stride,
                      .scales = tensor.scales.data() + r * tensor.scales.stride,
                      .tensor_scale = tensor_scale},
                     row);
    backend_.copy_in(to + r * n_in * int64_t{sizeof(Bf16)}, std::as_bytes(std::span(row)));
  }
  advance(tensor.bytes());
  return out;
}

View<const Bf16, 1> Placer::vector(const TensorSlice& tensor) {
  return place<Bf16>(tensor, tensor.values, tensor.wanted.n_out);
}

View<const Bf16, 2> Placer::rows(const TensorSlice& tensor) {
  return place<Bf16>(tensor, tensor.values, tensor.wanted.n_out, tensor.wanted.n_in);
}

View<const float, 1> Placer::widened_vector(const TensorSlice& tensor) {
  const int64_t n = tensor.wanted.n_out;
  const ArraySlice& array = tensor.values;
  if (array.array->entry.dtype == Dtype::f32) return place<float>(tensor, array, n);
  std::byte* to = region_->take(n * int64_t{sizeof(float)});
  if (!is_measuring()) {
    std::vector<std::byte> owned;
    const std::span<const std::byte> from = host_bytes(tensor, array, &owned);
    std::vector<float> wide(static_cast<size_t>(n));
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = to_float(load_le<Bf16>(from, i * sizeof(Bf16)));
    }
    backend_.copy_in(to, std::as_bytes(std::span(wide)));
    advance(array.bytes());
  }
  return view_of(reinterpret_cast<const float*>(to), n);
}

std::span<const std::byte> Placer::host_bytes(const TensorSlice& tensor, const ArraySlice& array,
                                              std::vector<std::byte>* owned) const {
  CHECK(array.is_contiguous());
  if (array.data() != nullptr) return {array.data(), static_cast<size_t>(array.bytes())};
  const RandomArray values = dummy_values(tensor, array);
  owned->resize(static_cast<size_t>(values.bytes()));
  for (int64_t row = 0; row < values.n_rows; ++row) {
    random_row(values, row, owned->data() + row * values.row_bytes());
  }
  return *owned;
}

// Of each head, the first nope rows are W_UK and the next v rows W_UV.
void Placer::split_kv_b(const TensorSlice& tensor, const ModelShape& shape, LayerWeights* layer) {
  const int64_t row_bytes = shape.kv_lora_rank * int64_t{sizeof(Bf16)};
  std::byte* uk = region_->take(shape.n_heads * shape.nope_dim * row_bytes);
  std::byte* uv = region_->take(shape.n_heads * shape.v_dim * row_bytes);
  layer->w_uk =
      view_of(reinterpret_cast<const Bf16*>(uk), shape.n_heads, shape.nope_dim, shape.kv_lora_rank);
  layer->w_uv =
      view_of(reinterpret_cast<const Bf16*>(uv), shape.n_heads, shape.v_dim, shape.kv_lora_rank);
  if (is_measuring()) return;
  if (tensor.format == StoredFormat::bf16) {
    split_bf16(tensor, shape, uk, uv);
  } else {
    split_fp8(tensor, shape, uk, uv);
  }
}

void Placer::split_bf16(const TensorSlice& tensor, const ModelShape& shape, std::byte* uk,
                        std::byte* uv) {
  const ArraySlice& rows = tensor.values;
  const int64_t head_rows = shape.nope_dim + shape.v_dim;
  if (rows.data() != nullptr) {
    const int64_t row_bytes = rows.row_bytes();
    pieces_.push_back(
        {uk, rows.data(), shape.n_heads, shape.nope_dim * row_bytes, head_rows * row_bytes});
    pieces_.push_back({uv, rows.data() + shape.nope_dim * row_bytes, shape.n_heads,
                       shape.v_dim * row_bytes, head_rows * row_bytes});
    return;
  }
  // A head's rows of one kind are a row of the draw: they follow each other.
  const auto fill = [&](std::byte* out, int64_t first_row, int64_t n_rows) {
    RandomArray values = dummy_values(tensor, rows);
    values.first += first_row * values.stride;
    values.stride *= head_rows;
    values.n_rows = shape.n_heads;
    values.n_columns *= n_rows;
    ops::random_fill(backend_, {.out = out, .values = values});
  };
  fill(uk, 0, shape.nope_dim);
  fill(uv, shape.nope_dim, shape.v_dim);
  advance(rows.bytes());
}

void Placer::split_fp8(const TensorSlice& tensor, const ModelShape& shape, std::byte* uk,
                       std::byte* uv) {
  std::vector<std::byte> owned_values;
  std::vector<std::byte> owned_scales;
  const auto values = host_bytes(tensor, tensor.values, &owned_values);
  const auto scales = host_bytes(tensor, tensor.scales, &owned_scales);
  const int64_t columns = shape.kv_lora_rank;
  const int64_t row_bytes = columns * int64_t{sizeof(Bf16)};
  std::vector<std::byte> out;
  const auto move_rows = [&](int64_t begin, int64_t n_rows, std::byte* to) {
    out.resize(static_cast<size_t>(n_rows * row_bytes));
    dequantise_rows(values, scales, columns, begin, out);
    backend_.copy_in(to, out);
    return to + n_rows * row_bytes;
  };
  const int64_t head_rows = shape.nope_dim + shape.v_dim;
  for (int64_t head = 0; head < shape.n_heads; ++head) {
    uk = move_rows(head * head_rows, shape.nope_dim, uk);
    uv = move_rows(head * head_rows + shape.nope_dim, shape.v_dim, uv);
  }
  advance(tensor.bytes());
}

void Placer::flush() {
  if (is_measuring() || pieces_.empty()) return;
  upload_->copy(pieces_, progress_);
  pieces_.clear();
}

}  // namespace quire
