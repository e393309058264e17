#include "weights/loader.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "ops/expert_bank.h"
#include "weights/placer.h"
#include "weights/resolve.h"

namespace quire {

namespace {

// The experts of one layer on their way into its bank.
struct RawExperts {
  std::vector<ops::ExpertWeights> routed;
  ops::ExpertWeights shared;
};

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
    case Weight::indexer_q:
    case Weight::indexer_k:
    case Weight::indexer_k_norm:
    case Weight::indexer_k_norm_bias:
    case Weight::indexer_weights:
    case Weight::predictor_join:
    case Weight::predictor_token_norm:
    case Weight::predictor_hidden_norm:
    case Weight::predictor_final_norm:
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

void place_tensor(Placer& placer, const TensorSlice& tensor, ModelWeights& weights,
                  RawExperts& raw) {
  const WantedTensor& wanted = tensor.wanted;
  switch (wanted.storage) {
    case Storage::bf16_rows:
      weights.embedding = placer.rows(tensor);
      return;
    case Storage::bf16_vector:
      *find_norm(weights, wanted) = placer.vector(tensor);
      return;
    case Storage::f32_vector:
      weights.layers[static_cast<size_t>(wanted.layer)].router_bias = placer.widened_vector(tensor);
      return;
    case Storage::bf16_matrix:
    case Storage::matrix:
      *find_matrix(weights, raw, wanted) = placer.matrix(tensor);
      return;
    case Storage::kv_b:
      placer.split_kv_b(tensor, weights.shape, &weights.layers[static_cast<size_t>(wanted.layer)]);
      return;
  }
}

bool is_of_an_expert(const WantedTensor& wanted) {
  return wanted.expert >= 0 || wanted.weight == Weight::shared_gate ||
         wanted.weight == Weight::shared_up || wanted.weight == Weight::shared_down;
}

// Loads layer by layer. Experts go to memory that is used again for the next layer, unless the
// backend's banks read them where they are.
class Loader {
 public:
  Loader(Backend& backend, ModelWeights* weights) : backend_(backend), weights_(*weights) {}

  Status load(std::span<const TensorSlice> tensors, int n_threads, const LoadProgress& progress);

 private:
  // One pass over all tensors. `pack` is called with each layer's experts once they are placed.
  template <class Pack>
  Status walk(std::span<const TensorSlice> tensors, Placer& placer, const Pack& pack);
  Status pack(const RawExperts& raw, LayerWeights* layer);

  Backend& backend_;
  ModelWeights& weights_;
  Region lasting_;
  Region passing_;  // the experts of one layer
};

template <class Pack>
Status Loader::walk(std::span<const TensorSlice> tensors, Placer& placer, const Pack& pack) {
  for (size_t begin = 0; begin < tensors.size();) {
    const int64_t layer = tensors[begin].wanted.layer;
    RawExperts raw;
    if (layer >= weights_.shape.n_dense_layers) {
      raw.routed.resize(static_cast<size_t>(weights_.shape.n_experts));
    }
    passing_.used = 0;
    size_t end = begin;
    for (; end < tensors.size() && tensors[end].wanted.layer == layer; ++end) {
      const bool passes = is_of_an_expert(tensors[end].wanted) && !backend_.keeps_raw_experts();
      placer.fill_region(passes ? &passing_ : &lasting_);
      place_tensor(placer, tensors[end], weights_, raw);
    }
    placer.flush();
    if (!raw.routed.empty()) {
      TRY_OK(pack(raw, &weights_.layers[static_cast<size_t>(layer)]));
    }
    begin = end;
  }
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

Status Loader::load(std::span<const TensorSlice> tensors, int n_threads,
                    const LoadProgress& progress) {
  int64_t passing_max = 0;
  Placer measure(backend_, nullptr, nullptr);
  TRY_OK(walk(tensors, measure, [&](const RawExperts&, LayerWeights*) -> Status {
    passing_max = std::max(passing_max, passing_.used);
    return {};
  }));
  if (lasting_.used > 0) {
    weights_.memory = TRY(allocate(backend_, lasting_.used, "the weights"));
  }
  Buffer passing;
  if (passing_max > 0) passing = TRY(allocate(backend_, passing_max, "a layer of experts"));
  lasting_ = {.data = weights_.memory.data()};
  passing_ = {.data = passing.data()};

  int64_t total = 0;
  for (const TensorSlice& tensor : tensors) total += tensor.bytes();
  int64_t done = 0;
  const std::unique_ptr<Upload> upload = backend_.start_upload(n_threads);
  Placer placer(backend_, upload.get(), [&](int64_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  });
  TRY_OK(walk(tensors, placer,
              [&](const RawExperts& raw, LayerWeights* layer) { return pack(raw, layer); }));
  CHECK(lasting_.used == weights_.memory.bytes());
  weights_.copied_bytes = lasting_.used;
  weights_.borrowed_bytes = placer.borrowed_bytes();
  backend_.copy_out({}, nullptr);  // waits: `passing` goes, and whoever measures wants the end
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelWeights>> load_weights(LoadRequest request, Backend& backend,
                                                   const LoadProgress& progress) {
  if (request.shape.n_indexer_layers() > 0) {
    return unsupported(request.checkpoint.dir() + ": a sparse attention indexer cannot be loaded");
  }
  if (request.source.scheme == WeightScheme::nvfp4 && !request.checkpoint.has_data()) {
    return unsupported(request.checkpoint.dir() + ": NVFP4 weights cannot be made up");
  }
  auto weights = std::make_unique<ModelWeights>(std::move(request.checkpoint));
  weights->shape = TRY(shape_of_rank(request.shape, request.partition));
  const std::vector<ResolvedTensor> tensors =
      TRY(resolve_checkpoint(weights->checkpoint, request.shape, request.source));
  std::vector<TensorSlice> parts;
  for (const ResolvedTensor& tensor : tensors) {
    parts.push_back(TRY(slice_of(tensor, request.partition)));
  }
  weights->layers.resize(static_cast<size_t>(weights->shape.n_layers));
  TRY_OK(Loader(backend, weights.get()).load(parts, request.n_threads, progress));
  return weights;
}

}  // namespace quire
