#include "weights/shard.h"

#include "base/bytes.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr int64_t kNibblesPerWord = 8;

// The part [begin, begin + n) of an axis.
struct Range {
  int64_t begin = 0;
  int64_t n = 0;
};

Range range_of(int64_t size, bool is_cut, const Partition& partition) {
  if (!is_cut) return {0, size};
  CHECK(size % partition.n_ranks == 0);
  const int64_t n = size / partition.n_ranks;
  return {partition.rank * n, n};
}

// The same range of units of `unit`, the last of which may be ragged at the end of the axis.
Range in_units(const Range& range, int64_t unit) {
  return {range.begin / unit, div_up(range.n, unit)};
}

bool is_at_units(const Range& range, int64_t size, int64_t unit) {
  const int64_t end = range.begin + range.n;
  return range.begin % unit == 0 && (end % unit == 0 || end == size);
}

ArraySlice slice(const CheckpointTensor* array, const Range& rows, const Range& columns,
                 int64_t stride) {
  return {.array = array,
          .first = rows.begin * stride + columns.begin,
          .n_rows = rows.n,
          .n_columns = columns.n,
          .stride = stride};
}

Error cuts_through(const WantedTensor& tensor, const Partition& partition, int64_t unit) {
  return unsupported(
      format("tensor \"%s\": a cut for %lld ranks goes through values that share a "
             "scale (%lld of them): use fewer ranks",
             tensor.source.c_str(), static_cast<long long>(partition.n_ranks),
             static_cast<long long>(unit)));
}

}  // namespace

Cut cut_of(Weight weight) {
  switch (weight) {
    case Weight::embedding:
    case Weight::lm_head:
    case Weight::q_b:
    case Weight::kv_b:
    case Weight::dense_gate:
    case Weight::dense_up:
    case Weight::expert_gate:
    case Weight::expert_up:
    case Weight::shared_gate:
    case Weight::shared_up:
      return Cut::outputs;
    case Weight::o:
    case Weight::dense_down:
    case Weight::expert_down:
    case Weight::shared_down:
      return Cut::inputs;
    case Weight::final_norm:
    case Weight::input_norm:
    case Weight::q_a:
    case Weight::q_a_norm:
    case Weight::kv_a:
    case Weight::kv_a_norm:
    case Weight::post_attention_norm:
    case Weight::router:
    case Weight::router_bias:
    case Weight::indexer_q:
    case Weight::indexer_k:
    case Weight::indexer_k_norm:
    case Weight::indexer_k_norm_bias:
    case Weight::indexer_weights:
    case Weight::predictor_join:
    case Weight::predictor_token_norm:
    case Weight::predictor_hidden_norm:
    case Weight::predictor_final_norm:
      return Cut::none;
  }
  CHECK(false);
  return Cut::none;
}

Result<ModelShape> shape_of_rank(const ModelShape& whole, const Partition& partition) {
  const int64_t n = partition.n_ranks;
  if (n < 1 || partition.rank < 0 || partition.rank >= n) {
    return invalid_argument(format("rank %lld of %lld: there is no such rank",
                                   static_cast<long long>(partition.rank),
                                   static_cast<long long>(n)));
  }
  ModelShape out = whole;
  const struct {
    const char* what;
    int64_t* size;
  } cuts[] = {{"heads", &out.n_heads},
              {"inner values of a dense layer", &out.dense_inner},
              {"inner values of an expert", &out.expert_inner},
              {"tokens of the vocabulary", &out.vocab_size}};
  for (const auto& cut : cuts) {
    if (*cut.size % n != 0) {
      return invalid_argument(format("%lld %s cannot be shared by %lld ranks equally",
                                     static_cast<long long>(*cut.size), cut.what,
                                     static_cast<long long>(n)));
    }
    *cut.size /= n;
  }
  return out;
}

Result<TensorSlice> slice_of(const ResolvedTensor& tensor, const Partition& partition) {
  const WantedTensor& whole = tensor.wanted;
  const bool is_vector = whole.n_in == 0;
  const Cut cut = partition.n_ranks == 1 ? Cut::none : cut_of(whole.weight);
  const Range out = range_of(whole.n_out, cut == Cut::outputs, partition);
  const Range in = range_of(whole.n_in, cut == Cut::inputs, partition);
  TensorSlice part{
      .wanted = whole, .whole_n_in = whole.n_in, .format = tensor.format, .group = tensor.group};
  part.wanted.n_out = out.n;
  part.wanted.n_in = in.n;
  switch (tensor.format) {
    case StoredFormat::bf16:
      part.values = is_vector ? slice(tensor.values, {0, 1}, out, whole.n_out)
                              : slice(tensor.values, out, in, whole.n_in);
      return part;
    case StoredFormat::fp8_block128:
      if (!is_at_units(out, whole.n_out, kFp8Block) || !is_at_units(in, whole.n_in, kFp8Block)) {
        return cuts_through(whole, partition, kFp8Block);
      }
      part.values = slice(tensor.values, out, in, whole.n_in);
      part.scales = slice(tensor.scales, in_units(out, kFp8Block), in_units(in, kFp8Block),
                          div_up(whole.n_in, kFp8Block));
      return part;
    case StoredFormat::int4_group:
      if (!is_at_units(in, whole.n_in, tensor.group)) {
        return cuts_through(whole, partition, tensor.group);
      }
      part.values =
          slice(tensor.values, out, in_units(in, kNibblesPerWord), whole.n_in / kNibblesPerWord);
      part.scales =
          slice(tensor.scales, out, in_units(in, tensor.group), whole.n_in / tensor.group);
      return part;
    case StoredFormat::nvfp4:
      if (!is_at_units(in, whole.n_in, kNvfp4Group)) {
        return cuts_through(whole, partition, kNvfp4Group);
      }
      part.values = slice(tensor.values, out, in_units(in, 2), whole.n_in / 2);
      part.scales = slice(tensor.scales, out, in_units(in, kNvfp4Group), whole.n_in / kNvfp4Group);
      part.tensor_scale = tensor.tensor_scale;
      return part;
  }
  CHECK(false);
  return part;
}

}  // namespace quire
