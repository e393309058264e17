#include "weights/loader.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/text.h"
#include "weights/resolve.h"

namespace quire {

namespace {

// Rows of the kv_b matrix that are widened at a time: bounds the host memory of the split.
constexpr int64_t kRowsAtOnce = 256;
constexpr int64_t kHostPage = 4096;           // bytes; what touching a mapped file steps by
constexpr int64_t kProgressBytes = 64 << 20;  // between two reports within one tensor

// Memory that copies are put into, front to back.
struct Region {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t used = 0;
};

// The experts of one layer on their way into its bank.
struct RawExperts {
  std::vector<ops::ExpertWeights> routed;
  ops::ExpertWeights shared;
};

// Places resolved tensors: borrows or copies, and keeps count.
class Placer {
 public:
  Placer(Backend& backend, ModelWeights* weights, const LoadProgress& progress, int64_t total)
      : backend_(backend), weights_(*weights), progress_(progress), total_(total) {}

  template <class T, class... Size>
  View<const T, int{sizeof...(Size)}> place(const CheckpointTensor& tensor, Size... size) {
    const std::byte* data = tensor.data.data();
    if (can_borrow(backend_, tensor, alignof(T))) {
      touch(tensor.data);
      weights_.borrowed_bytes += tensor.entry.bytes;
    } else {
      data = copy(tensor.data);
      advance(tensor.entry.bytes);
    }
    return view_of(reinterpret_cast<const T*>(data), size...);
  }

  // Where copies go from now on.
  void copy_into(Region* region) { region_ = region; }

  WeightMatrix place_matrix(const ResolvedTensor& tensor);
  View<const float, 1> place_widened(const ResolvedTensor& tensor);
  void place_kv_b(const ResolvedTensor& tensor, LayerWeights* layer);

 private:
  // Reads the file now, so that the first request does not wait for the disk.
  void touch(std::span<const std::byte> data) {
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

  std::byte* take(int64_t bytes) {
    std::byte* to = region_->data + region_->used;
    region_->used += round_up(bytes, kBufferAlignment);
    CHECK(region_->used <= region_->bytes);
    return to;
  }

  std::byte* copy(std::span<const std::byte> from) {
    std::byte* to = take(static_cast<int64_t>(from.size()));
    backend_.copy_in(to, from);
    return to;
  }

  void advance(int64_t bytes) {
    done_ += bytes;
    if (progress_) progress_(done_, total_);
  }

  Backend& backend_;
  ModelWeights& weights_;
  const LoadProgress& progress_;
  int64_t total_;
  int64_t done_ = 0;
  Region* region_ = nullptr;
  volatile uint8_t touched_ = 0;  // keeps the reads of touch()
};

WeightMatrix Placer::place_matrix(const ResolvedTensor& tensor) {
  const int64_t n_out = tensor.wanted.n_out;
  const int64_t n_in = tensor.wanted.n_in;
  WeightMatrix out{.format = tensor.format, .n_out = n_out, .n_in = n_in, .group = tensor.group};
  switch (tensor.format) {
    case WeightFormat::bf16:
      out.bf16 = place<Bf16>(*tensor.values, n_out, n_in);
      break;
    case WeightFormat::fp8_block128:
      out.fp8 = place<Fp8E4m3>(*tensor.values, n_out, n_in);
      out.fp8_scale =
          place<float>(*tensor.scales, div_up(n_out, kFp8Block), div_up(n_in, kFp8Block));
      break;
    case WeightFormat::int4_group:
      // Little-endian 32-bit words, low nibble first, are bytes of our order as they stand.
      out.int4 = place<uint8_t>(*tensor.values, n_out, n_in / 2);
      out.int4_scale = place<Bf16>(*tensor.scales, n_out, n_in / tensor.group);
      break;
  }
  return out;
}

View<const float, 1> Placer::place_widened(const ResolvedTensor& tensor) {
  const int64_t n = tensor.wanted.n_out;
  if (tensor.values->entry.dtype == Dtype::f32) return place<float>(*tensor.values, n);
  std::vector<float> wide(static_cast<size_t>(n));
  for (size_t i = 0; i < wide.size(); ++i) {
    wide[i] = to_float(load_le<Bf16>(tensor.values->data, i * sizeof(Bf16)));
  }
  const std::byte* data = copy(std::as_bytes(std::span(wide)));
  advance(tensor.values->entry.bytes);
  return view_of(reinterpret_cast<const float*>(data), n);
}

// Of each head, the first nope rows are W_UK and the next v rows W_UV; both become BF16.
void Placer::place_kv_b(const ResolvedTensor& tensor, LayerWeights* layer) {
  const ModelShape& shape = weights_.shape;
  const int64_t row_bytes = shape.kv_lora_rank * static_cast<int64_t>(sizeof(Bf16));
  std::byte* uk = take(shape.n_heads * shape.nope_dim * row_bytes);
  std::byte* uv = take(shape.n_heads * shape.v_dim * row_bytes);
  layer->w_uk =
      view_of(reinterpret_cast<const Bf16*>(uk), shape.n_heads, shape.nope_dim, shape.kv_lora_rank);
  layer->w_uv =
      view_of(reinterpret_cast<const Bf16*>(uv), shape.n_heads, shape.v_dim, shape.kv_lora_rank);
  std::vector<std::byte> rows;
  const auto move_rows = [&](int64_t begin, int64_t n_rows, std::byte* to) {
    for (int64_t done = 0; done < n_rows; done += kRowsAtOnce) {
      const int64_t n = std::min(kRowsAtOnce, n_rows - done);
      rows.resize(static_cast<size_t>(n * row_bytes));
      copy_rows_as_bf16(tensor, begin + done, n, rows);
      backend_.copy_in(to + done * row_bytes, rows);
    }
    return to + n_rows * row_bytes;
  };
  const int64_t head_rows = shape.nope_dim + shape.v_dim;
  for (int64_t head = 0; head < shape.n_heads; ++head) {
    uk = move_rows(head * head_rows, shape.nope_dim, uk);
    uv = move_rows(head * head_rows + shape.nope_dim, shape.v_dim, uv);
  }
  advance(tensor.bytes());
}

// Where a linear map of the table goes; null for what is not one.
WeightMatrix* find_matrix(ModelWeights& weights, RawExperts& raw, const WantedTensor& wanted) {
  LayerWeights* layer =
      wanted.layer < 0 ? nullptr : &weights.layers[static_cast<size_t>(wanted.layer)];
  ops::ExpertWeights* expert =
      wanted.expert < 0 ? nullptr : &raw.routed[static_cast<size_t>(wanted.expert)];
  switch (wanted.weight) {
    case Weight::lm_head:
      return &weights.lm_head;
    case Weight::q_a:
      return &layer->q_a;
    case Weight::q_b:
      return &layer->q_b;
    case Weight::kv_a:
      return &layer->kv_a;
    case Weight::o:
      return &layer->o;
    case Weight::router:
      return &layer->router;
    case Weight::dense_gate:
      return &layer->dense.gate;
    case Weight::dense_up:
      return &layer->dense.up;
    case Weight::dense_down:
      return &layer->dense.down;
    case Weight::expert_gate:
      return &expert->gate;
    case Weight::expert_up:
      return &expert->up;
    case Weight::expert_down:
      return &expert->down;
    case Weight::shared_gate:
      return &raw.shared.gate;
    case Weight::shared_up:
      return &raw.shared.up;
    case Weight::shared_down:
      return &raw.shared.down;
    case Weight::embedding:
    case Weight::final_norm:
    case Weight::input_norm:
    case Weight::q_a_norm:
    case Weight::kv_a_norm:
    case Weight::kv_b:
    case Weight::post_attention_norm:
    case Weight::router_bias:
      return nullptr;
  }
  return nullptr;
}

// Where a norm goes; null for what is not one.
View<const Bf16, 1>* find_norm(ModelWeights& weights, const WantedTensor& wanted) {
  if (wanted.weight == Weight::final_norm) return &weights.final_norm;
  if (wanted.layer < 0) return nullptr;
  LayerWeights& layer = weights.layers[static_cast<size_t>(wanted.layer)];
  if (wanted.weight == Weight::input_norm) return &layer.input_norm;
  if (wanted.weight == Weight::q_a_norm) return &layer.q_a_norm;
  if (wanted.weight == Weight::kv_a_norm) return &layer.kv_a_norm;
  if (wanted.weight == Weight::post_attention_norm) return &layer.post_attention_norm;
  return nullptr;
}

void place_tensor(Placer& placer, const ResolvedTensor& tensor, ModelWeights& weights,
                  RawExperts& raw) {
  const WantedTensor& wanted = tensor.wanted;
  switch (wanted.storage) {
    case Storage::bf16_rows:
      weights.embedding = placer.place<Bf16>(*tensor.values, wanted.n_out, wanted.n_in);
      return;
    case Storage::bf16_vector:
      *find_norm(weights, wanted) = placer.place<Bf16>(*tensor.values, wanted.n_out);
      return;
    case Storage::f32_vector:
      weights.layers[static_cast<size_t>(wanted.layer)].router_bias = placer.place_widened(tensor);
      return;
    case Storage::bf16_matrix:
    case Storage::matrix:
      *find_matrix(weights, raw, wanted) = placer.place_matrix(tensor);
      return;
    case Storage::kv_b:
      placer.place_kv_b(tensor, &weights.layers[static_cast<size_t>(wanted.layer)]);
      return;
  }
}

bool is_of_an_expert(const WantedTensor& wanted) {
  return wanted.expert >= 0 || wanted.weight == Weight::shared_gate ||
         wanted.weight == Weight::shared_up || wanted.weight == Weight::shared_down;
}

// The memory that copies and conversions will take, as Placer takes it.
int64_t bytes_to_copy(const Backend& backend, const ModelShape& shape,
                      std::span<const ResolvedTensor> tensors) {
  const auto bf16_bytes = [](int64_t n) {
    return round_up(n * static_cast<int64_t>(sizeof(Bf16)), kBufferAlignment);
  };
  int64_t bytes = 0;
  for (const ResolvedTensor& tensor : tensors) {
    if (tensor.wanted.storage == Storage::kv_b) {
      bytes += bf16_bytes(shape.n_heads * shape.nope_dim * shape.kv_lora_rank) +
               bf16_bytes(shape.n_heads * shape.v_dim * shape.kv_lora_rank);
      continue;
    }
    if (tensor.wanted.storage == Storage::f32_vector && tensor.values->entry.dtype != Dtype::f32) {
      bytes +=
          round_up(tensor.wanted.n_out * static_cast<int64_t>(sizeof(float)), kBufferAlignment);
      continue;
    }
    for (const CheckpointTensor* part : {tensor.values, tensor.scales}) {
      if (part == nullptr || can_borrow(backend, *part, element_alignment(*part, tensor))) continue;
      bytes += round_up(part->entry.bytes, kBufferAlignment);
    }
  }
  return bytes;
}

// The end of the tensors that share a layer with the first (-1 is one too).
size_t end_of_layer(std::span<const ResolvedTensor> tensors) {
  size_t end = 0;
  while (end < tensors.size() && tensors[end].wanted.layer == tensors[0].wanted.layer) ++end;
  return end;
}

// Loads layer by layer. Experts go to memory that is used again for the next layer, unless the
// backend's banks read them where they are.
class Loader {
 public:
  Loader(Backend& backend, ModelWeights* weights, const LoadProgress& progress)
      : backend_(backend), weights_(*weights), progress_(progress) {}

  Status load(const std::vector<ResolvedTensor>& tensors);

 private:
  Status allocate_regions();
  Status load_layer(Placer& placer, std::span<const ResolvedTensor> tensors);
  Status pack(const RawExperts& raw, LayerWeights* layer);

  Backend& backend_;
  ModelWeights& weights_;
  const LoadProgress& progress_;
  std::vector<ResolvedTensor> kept_, experts_;  // each in the order of the layers
  Region lasting_, passing_;
  Buffer raw_memory_;
};

Status Loader::allocate_regions() {
  int64_t lasting = bytes_to_copy(backend_, weights_.shape, kept_);
  int64_t passing = 0;
  for (std::span<const ResolvedTensor> rest = experts_; !rest.empty();) {
    const size_t end = end_of_layer(rest);
    const int64_t bytes = bytes_to_copy(backend_, weights_.shape, rest.first(end));
    if (backend_.keeps_raw_experts()) {
      lasting += bytes;
    } else {
      passing = std::max(passing, bytes);
    }
    rest = rest.subspan(end);
  }
  weights_.memory = TRY(allocate(backend_, lasting, "the weights"));
  lasting_ = {.data = weights_.memory.data(), .bytes = lasting};
  if (passing == 0) return {};
  raw_memory_ = TRY(allocate(backend_, passing, "a layer of experts"));
  passing_ = {.data = raw_memory_.data(), .bytes = passing};
  return {};
}

Status Loader::pack(const RawExperts& raw, LayerWeights* layer) {
  ops::ExpertTable table{.routed = raw.routed, .shared = {}};
  if (weights_.shape.n_shared_experts > 0) table.shared = raw.shared;
  layer->experts = TRY(ops::pack_experts(backend_, table));
  weights_.packed_bytes += layer->experts->bytes();
  weights_.expert_format = raw.routed.front().gate.format;
  return {};
}

Status Loader::load_layer(Placer& placer, std::span<const ResolvedTensor> tensors) {
  RawExperts raw{
      .routed = std::vector<ops::ExpertWeights>(static_cast<size_t>(weights_.shape.n_experts)),
      .shared = {}};
  passing_.used = 0;
  placer.copy_into(backend_.keeps_raw_experts() ? &lasting_ : &passing_);
  for (const ResolvedTensor& tensor : tensors) place_tensor(placer, tensor, weights_, raw);
  return pack(raw, &weights_.layers[static_cast<size_t>(tensors[0].wanted.layer)]);
}

Status Loader::load(const std::vector<ResolvedTensor>& tensors) {
  int64_t total = 0;
  for (const ResolvedTensor& tensor : tensors) {
    total += tensor.bytes();
    (is_of_an_expert(tensor.wanted) ? experts_ : kept_).push_back(tensor);
  }
  TRY_OK(allocate_regions());
  Placer placer(backend_, &weights_, progress_, total);
  placer.copy_into(&lasting_);
  RawExperts none;
  for (const ResolvedTensor& tensor : kept_) place_tensor(placer, tensor, weights_, none);
  for (std::span<const ResolvedTensor> rest = experts_; !rest.empty();) {
    const size_t end = end_of_layer(rest);
    TRY_OK(load_layer(placer, rest.first(end)));
    rest = rest.subspan(end);
  }
  weights_.copied_bytes = lasting_.used;
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelWeights>> load_weights(Checkpoint checkpoint, const ModelShape& shape,
                                                   const WeightSource& source, Backend& backend,
                                                   const LoadProgress& progress) {
  auto weights = std::make_unique<ModelWeights>(std::move(checkpoint));
  weights->shape = shape;
  const std::vector<ResolvedTensor> tensors =
      TRY(resolve_checkpoint(weights->checkpoint, shape, source));
  weights->layers.resize(static_cast<size_t>(shape.n_layers));
  TRY_OK(Loader(backend, weights.get(), progress).load(tensors));
  return weights;
}

}  // namespace quire
