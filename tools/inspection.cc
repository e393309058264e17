#include "tools/inspection.h"

#include <set>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "weights/dummy.h"
#include "weights/shard_writer.h"

namespace quire {

namespace {

// The part of a layer that a linear map belongs to; empty for what has one format everywhere.
std::string_view part_of(const WantedTensor& wanted) {
  switch (wanted.weight) {
    case Weight::q_a:
    case Weight::q_b:
    case Weight::kv_a:
    case Weight::kv_b:
    case Weight::o:
    case Weight::indexer_q:
    case Weight::indexer_k:
      return "attention";
    case Weight::dense_gate:
    case Weight::dense_up:
    case Weight::dense_down:
      return "mlp";
    case Weight::expert_gate:
    case Weight::expert_up:
    case Weight::expert_down:
      return "experts";
    case Weight::shared_gate:
    case Weight::shared_up:
    case Weight::shared_down:
      return "shared expert";
    case Weight::embedding:
    case Weight::final_norm:
    case Weight::lm_head:
    case Weight::input_norm:
    case Weight::q_a_norm:
    case Weight::kv_a_norm:
    case Weight::post_attention_norm:
    case Weight::router:
    case Weight::router_bias:
    case Weight::indexer_k_norm:
    case Weight::indexer_k_norm_bias:
    case Weight::indexer_weights:
    case Weight::predictor_join:
    case Weight::predictor_token_norm:
    case Weight::predictor_hidden_norm:
    case Weight::predictor_final_norm:
      return {};
  }
  CHECK(false);
  return {};
}

std::vector<LayerRun> layer_runs(const std::vector<ResolvedTensor>& tensors) {
  std::map<int64_t, LayerRun> layers;
  std::map<int64_t, std::map<std::string, std::set<std::string>>> formats;
  for (const ResolvedTensor& tensor : tensors) {
    const int64_t layer = tensor.wanted.layer;
    if (layer < 0) continue;
    layers[layer].bytes += tensor.bytes();
    const std::string_view part = part_of(tensor.wanted);
    if (!part.empty()) formats[layer][std::string(part)].insert(format_of(tensor));
  }
  std::vector<LayerRun> out;
  for (auto& [layer, run] : layers) {
    for (const auto& [part, names] : formats[layer]) {
      std::string& text = run.formats[part];
      for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    }
    if (!out.empty() && out.back().formats == run.formats) {
      out.back().last = layer;
      out.back().bytes += run.bytes;
      continue;
    }
    run.first = run.last = layer;
    out.push_back(std::move(run));
  }
  return out;
}

Status inspect_tensors(const Checkpoint& checkpoint, const GpuBudget& gpu, Inspection* found) {
  const ModelConfig& config = found->config;
  const WeightSource& source = config.weights;
  const ModelShape shape =
      found->part ? TRY(shape_of_rank(config.shape, *found->part)) : config.shape;
  const LayerScope scope = scope_of(checkpoint, shape, source.naming);
  const std::vector<ResolvedTensor> tensors =
      TRY(resolve_checkpoint(checkpoint, shape, source, scope));
  for (const ResolvedTensor& tensor : tensors) {
    TensorTotal& total = found->formats[format_of(tensor)];
    ++total.tensors;
    total.bytes += tensor.bytes();
  }
  found->layers = layer_runs(tensors);
  if (!found->part) found->ranks = estimate_ranks(tensors, config, gpu);
  return {};
}

Status inspect_checkpoint(const GpuBudget& gpu, Inspection* found) {
  Result<Checkpoint> opened = Checkpoint::open(found->dir);
  if (!opened.ok() && opened.error().code != ErrorCode::not_found) return opened.error();
  const ModelConfig& config = found->config;
  if (!opened.ok()) {
    if (config.weights.scheme == WeightScheme::other) return {};
    const Checkpoint published =
        dummy_checkpoint(found->dir, config.shape, config.weights, LayerScope::with_predictors);
    found->checkpoint_bytes = published.data_bytes();
    return inspect_tensors(published, gpu, found);
  }
  found->checkpoint = std::move(opened).value();
  found->checkpoint_bytes = found->checkpoint->data_bytes();
  for (const CheckpointTensor& tensor : found->checkpoint->tensors()) {
    TensorTotal& total = found->dtypes[std::string(name(tensor.entry.dtype))];
    ++total.tensors;
    total.bytes += tensor.entry.bytes;
  }
  found->part = TRY(read_partition(found->dir));
  if (config.weights.scheme == WeightScheme::other) return {};
  return inspect_tensors(*found->checkpoint, gpu, found);
}

Json to_json(const std::map<std::string, TensorTotal>& totals) {
  Json out = Json::object();
  for (const auto& [key, total] : totals) {
    out[key] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  return out;
}

Json to_json(const std::vector<LayerRun>& layers) {
  Json out = Json::array();
  for (const LayerRun& run : layers) {
    Json formats = Json::object();
    for (const auto& [part, text] : run.formats) formats[part] = text;
    out.push_back({{"first", run.first},
                   {"last", run.last},
                   {"bytes", run.bytes},
                   {"formats", std::move(formats)}});
  }
  return out;
}

}  // namespace

std::string format_of(const ResolvedTensor& tensor) {
  switch (tensor.format) {
    case StoredFormat::bf16:
      return std::string(name(tensor.values->entry.dtype));
    case StoredFormat::fp8_block128:
      return "FP8 128x128";
    case StoredFormat::int4_group:
      return format("INT4 group %d", tensor.group);
    case StoredFormat::nvfp4:
      return "NVFP4 group 16";
  }
  CHECK(false);
  return {};
}

Result<Inspection> inspect_model(const std::string& dir, const GpuBudget& gpu) {
  Inspection found{.dir = dir, .config = TRY(read_model_config(dir))};
  found.unsupported = unsupported_features(found.config);
  const Status status = inspect_checkpoint(gpu, &found);
  if (!status.ok()) found.weights_error = status.error().message;
  return found;
}

Json to_json(const Inspection& found) {
  const ModelConfig& config = found.config;
  const ModelShape& shape = config.shape;
  Json out;
  out["model_path"] = found.dir;
  out["architecture"] = config.architecture_text;
  out["model_type"] = config.model_type;
  out["layers"] = shape.n_layers;
  out["dense_layers"] = shape.n_dense_layers;
  out["hidden_size"] = shape.hidden_size;
  out["vocab_size"] = shape.vocab_size;
  out["heads"] = shape.n_heads;
  out["q_lora_rank"] = shape.q_lora_rank;
  out["kv_lora_rank"] = shape.kv_lora_rank;
  out["head_dims"] = {{"nope", shape.nope_dim}, {"rope", shape.rope_dim}, {"v", shape.v_dim}};
  out["experts"] = {
      {"routed", shape.n_experts}, {"shared", shape.n_shared_experts}, {"per_token", shape.top_k}};
  out["positions_max"] = config.positions_max;
  out["rope"] = config.rope.type;
  out["weights"] = config.weights.scheme_text;
  out["kv_bytes_per_token"] = {{"bf16", kv_bytes_a_token(config, KvFormat::bf16)},
                               {"fp8_e4m3", kv_bytes_a_token(config, KvFormat::fp8_e4m3_584)}};
  out["checkpoint_bytes"] = found.checkpoint_bytes;
  out["formats"] = to_json(found.formats);
  out["formats_by_layer"] = to_json(found.layers);
  out["ranks"] = to_json(std::span<const RankEstimate>(found.ranks));
  if (found.checkpoint) {
    out["checkpoint"] = {{"shards", found.checkpoint->n_shards()},
                         {"tensors", found.checkpoint->tensors().size()},
                         {"bytes", found.checkpoint->data_bytes()},
                         {"dtypes", to_json(found.dtypes)}};
    if (found.part) {
      out["checkpoint"]["part"] = {{"rank", found.part->rank}, {"n_ranks", found.part->n_ranks}};
    }
  }
  if (!found.weights_error.empty()) out["weights_error"] = found.weights_error;
  out["unsupported"] = found.unsupported;
  out["runs"] = found.runs();
  return out;
}

}  // namespace quire
