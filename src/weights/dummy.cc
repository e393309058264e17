#include "weights/dummy.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "weights/table.h"

namespace quire {

namespace {

constexpr int64_t kNibblesPerWord = 8;

TensorEntry entry_of(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  int64_t bytes = size_of(dtype);
  for (const int64_t extent : shape) bytes *= extent;
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape), .bytes = bytes};
}

// What publishers do under each scheme (docs/formats/weights.md).
StoredFormat published_format(const WantedTensor& wanted, const WeightSource& source) {
  const auto leaves_alone = [&](const NamePattern& pattern) {
    return pattern.matches(wanted.module);
  };
  if (std::any_of(source.ignored.begin(), source.ignored.end(), leaves_alone)) {
    return StoredFormat::bf16;
  }
  const bool is_quantised = wanted.storage == Storage::matrix && wanted.weight != Weight::lm_head;
  switch (source.scheme) {
    case WeightScheme::bf16:
    case WeightScheme::other:
      return StoredFormat::bf16;
    case WeightScheme::fp8_block128:
      return is_quantised || wanted.storage == Storage::kv_b ? StoredFormat::fp8_block128
                                                             : StoredFormat::bf16;
    case WeightScheme::nvfp4:
      return is_quantised && wanted.n_in % kNvfp4Group == 0 ? StoredFormat::nvfp4
                                                            : StoredFormat::bf16;
    case WeightScheme::int4_group:
      return is_quantised && wanted.n_in % source.group == 0 ? StoredFormat::int4_group
                                                             : StoredFormat::bf16;
  }
  CHECK(false);
  return StoredFormat::bf16;
}

void add_entries(const WantedTensor& wanted, const WeightSource& source,
                 std::vector<TensorEntry>* out) {
  const int64_t n_out = wanted.n_out;
  const int64_t n_in = wanted.n_in;
  switch (wanted.storage) {
    case Storage::bf16_rows:
      out->push_back(entry_of(wanted.source, Dtype::bf16, {n_out, n_in}));
      return;
    case Storage::bf16_vector:
      out->push_back(entry_of(wanted.source, Dtype::bf16, {n_out}));
      return;
    case Storage::f32_vector:
      out->push_back(entry_of(wanted.source, Dtype::f32, {n_out}));
      return;
    case Storage::bf16_matrix:
    case Storage::matrix:
    case Storage::kv_b:
      break;
  }
  switch (published_format(wanted, source)) {
    case StoredFormat::bf16:
      out->push_back(entry_of(wanted.source + ".weight", Dtype::bf16, {n_out, n_in}));
      return;
    case StoredFormat::fp8_block128:
      out->push_back(entry_of(wanted.source + ".weight", Dtype::f8_e4m3, {n_out, n_in}));
      out->push_back(entry_of(wanted.source + ".weight_scale_inv", Dtype::f32,
                              {div_up(n_out, kFp8Block), div_up(n_in, kFp8Block)}));
      return;
    case StoredFormat::int4_group:
      out->push_back(
          entry_of(wanted.source + ".weight_packed", Dtype::i32, {n_out, n_in / kNibblesPerWord}));
      out->push_back(
          entry_of(wanted.source + ".weight_scale", Dtype::bf16, {n_out, n_in / source.group}));
      return;
    case StoredFormat::nvfp4:
      out->push_back(entry_of(wanted.source + ".weight", Dtype::u8, {n_out, n_in / 2}));
      out->push_back(
          entry_of(wanted.source + ".weight_scale", Dtype::f8_e4m3, {n_out, n_in / kNvfp4Group}));
      out->push_back(entry_of(wanted.source + ".weight_scale_2", Dtype::f32, {}));
      out->push_back(entry_of(wanted.source + ".input_scale", Dtype::f32, {}));
      return;
  }
}

// FNV-1a: a number for a name, the same on every machine.
uint64_t seed_of(const std::string& name) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

struct Values {
  RandomKind kind;
  double scale;
};

// What a block adds to the residual stream is small beside it: else attention, which mixes tokens,
// would make them alike within a few layers, and routers would send all of them to the same
// experts.
constexpr double kBlockGain = 0.125;

// A linear map keeps the size of its input: weights of deviation n_in^-1/2.
Values values_of(const TensorSlice& tensor, bool is_scale) {
  const bool ends_a_block = cut_of(tensor.wanted.weight) == Cut::inputs;
  const double deviation =
      (ends_a_block ? kBlockGain : 1) / std::sqrt(static_cast<double>(tensor.whole_n_in));
  switch (tensor.wanted.storage) {
    case Storage::bf16_rows:
      return {RandomKind::normal_bf16, 1};
    case Storage::bf16_vector:
      return {RandomKind::uniform_bf16, 1};
    case Storage::f32_vector:
      return {RandomKind::uniform_f32, 0};  // a router without a bias prefers no expert
    case Storage::bf16_matrix:
    case Storage::matrix:
    case Storage::kv_b:
      break;
  }
  switch (tensor.format) {
    case StoredFormat::bf16:
      return {RandomKind::normal_bf16, deviation};
    case StoredFormat::fp8_block128:
      if (is_scale) return {RandomKind::uniform_f32, deviation / kE4m3Deviation};
      return {RandomKind::e4m3, 1};
    case StoredFormat::int4_group:
      if (is_scale) return {RandomKind::uniform_bf16, deviation / kNibbleDeviation};
      return {RandomKind::nibbles, 1};
    case StoredFormat::nvfp4:
      break;  // the loader makes none up
  }
  CHECK(false);
  return {RandomKind::nibbles, 1};
}

}  // namespace

Checkpoint dummy_checkpoint(const std::string& dir, const ModelShape& shape,
                            const WeightSource& source, LayerScope scope) {
  std::vector<TensorEntry> entries;
  for (const WantedTensor& wanted : wanted_tensors(shape, source.naming, scope)) {
    add_entries(wanted, source, &entries);
  }
  return Checkpoint::without_data(dir, std::move(entries));
}

RandomArray dummy_values(const TensorSlice& tensor, const ArraySlice& array) {
  const Values values = values_of(tensor, &array == &tensor.scales);
  // Packed words are made of bytes.
  const int64_t per_element = array.element_bytes() / element_bytes(values.kind);
  return {.kind = values.kind,
          .n_rows = array.n_rows,
          .n_columns = array.n_columns * per_element,
          .first = array.first * per_element,
          .stride = array.stride * per_element,
          .seed = seed_of(array.array->entry.name),
          .scale = static_cast<float>(values.scale)};
}

}  // namespace quire
