// quire inspect: what a model folder holds, and whether this build can run it. Reads config.json
// and, where there are weights, their headers; loads nothing.
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "format/checkpoint.h"
#include "model/config.h"
#include "tools/commands.h"
#include "tools/option_value.h"
#include "weights/resolve.h"
#include "weights/shard_writer.h"

namespace quire {

namespace {

struct DtypeTotal {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

struct Inspection {
  std::string dir;
  ModelConfig config;
  std::vector<std::string> unsupported;
  std::optional<Checkpoint> checkpoint;
  std::map<std::string, DtypeTotal> dtypes;          // of every tensor in the files
  std::map<std::string, DtypeTotal> linear_formats;  // of the tensors that the model reads
  std::optional<Partition> part;                     // of a rank's folder: whose it is
  std::string weights_error;  // why the weights do not fit the config; empty when they do
};

std::string format_of(const ResolvedTensor& tensor) {
  switch (tensor.format) {
    case WeightFormat::bf16:
      return std::string(name(tensor.values->entry.dtype));
    case WeightFormat::fp8_block128:
      return "FP8 128x128";
    case WeightFormat::int4_group:
      return format("INT4 group %d", tensor.group);
  }
  CHECK(false);
  return {};
}

void inspect_weights(Inspection* found) {
  for (const CheckpointTensor& tensor : found->checkpoint->tensors()) {
    DtypeTotal& total = found->dtypes[std::string(name(tensor.entry.dtype))];
    ++total.tensors;
    total.bytes += tensor.entry.bytes;
  }
  if (!found->unsupported.empty()) return;
  ModelShape shape = found->config.shape;
  if (found->part) {
    const Result<ModelShape> of_rank = shape_of_rank(shape, *found->part);
    if (!of_rank.ok()) {
      found->weights_error = of_rank.error().message;
      return;
    }
    shape = of_rank.value();
  }
  const auto resolved = resolve_checkpoint(*found->checkpoint, shape, found->config.weights);
  if (!resolved.ok()) {
    found->weights_error = resolved.error().message;
    return;
  }
  for (const ResolvedTensor& tensor : resolved.value()) {
    DtypeTotal& total = found->linear_formats[format_of(tensor)];
    ++total.tensors;
    total.bytes += tensor.bytes();
  }
}

Result<Inspection> inspect(const std::string& dir) {
  Inspection found{.dir = dir, .config = TRY(read_model_config(dir))};
  found.unsupported = unsupported_features(found.config);
  Result<Checkpoint> checkpoint = Checkpoint::open(dir);
  if (checkpoint.ok()) {
    found.checkpoint = std::move(checkpoint).value();
    found.part = TRY(read_partition(dir));
    inspect_weights(&found);
  } else if (checkpoint.error().code != ErrorCode::not_found) {
    found.weights_error = checkpoint.error().message;
  }
  return found;
}

// A key of the sparse attention indexer: e4m3 with one float32 scale, in either format of the rest.
double kv_bytes_a_token(const ModelConfig& config, KvFormat format) {
  const int64_t index_key_bytes = config.indexer_dim + static_cast<int64_t>(sizeof(float));
  return static_cast<double>(config.kv_layout(format).page_bytes) / kPageTokens +
         static_cast<double>(config.n_indexer_layers * index_key_bytes);
}

Json to_json(const std::map<std::string, DtypeTotal>& totals) {
  Json out = Json::object();
  for (const auto& [key, total] : totals) {
    out[key] = {{"tensors", total.tensors}, {"bytes", total.bytes}};
  }
  return out;
}

void print_json(const Inspection& found) {
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
  if (found.checkpoint) {
    out["checkpoint"] = {{"shards", found.checkpoint->n_shards()},
                         {"tensors", found.checkpoint->tensors().size()},
                         {"bytes", found.checkpoint->data_bytes()},
                         {"dtypes", to_json(found.dtypes)},
                         {"formats", to_json(found.linear_formats)}};
    if (found.part) {
      out["checkpoint"]["part"] = {{"rank", found.part->rank}, {"n_ranks", found.part->n_ranks}};
    }
  }
  if (!found.weights_error.empty()) out["weights_error"] = found.weights_error;
  out["unsupported"] = found.unsupported;
  out["runs"] = found.unsupported.empty() && found.weights_error.empty();
  std::printf("%s\n", dump_json(out).c_str());
}

void print_totals(const char* title, const std::map<std::string, DtypeTotal>& totals) {
  for (const auto& [key, total] : totals) {
    std::printf("  %-12s %-14s %8lld tensors  %10s\n", title, key.c_str(),
                static_cast<long long>(total.tensors), human_bytes(total.bytes).c_str());
    title = "";
  }
}

void print_text(const Inspection& found) {
  const ModelConfig& config = found.config;
  const ModelShape& shape = config.shape;
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  std::printf("%s: %s (%s)\n", found.dir.c_str(), config.architecture_text.c_str(),
              config.model_type.c_str());
  std::printf("  %-12s %lld, the first %lld dense; hidden %lld, vocabulary %lld\n", "layers",
              number(shape.n_layers), number(shape.n_dense_layers), number(shape.hidden_size),
              number(shape.vocab_size));
  std::printf("  %-12s %lld heads of %lld + %lld (values %lld), latent %lld, queries through %s\n",
              "attention", number(shape.n_heads), number(shape.nope_dim), number(shape.rope_dim),
              number(shape.v_dim), number(shape.kv_lora_rank),
              shape.q_lora_rank > 0 ? std::to_string(shape.q_lora_rank).c_str() : "one step");
  std::printf("  %-12s %lld routed, %lld a token, %lld shared\n", "experts",
              number(shape.n_experts), number(shape.top_k), number(shape.n_shared_experts));
  std::printf("  %-12s %lld tokens, rope %s\n", "context", number(config.positions_max),
              config.rope.type.c_str());
  std::printf(
      "  %-12s %s a token in BF16, %s in FP8\n", "KV cache",
      human_bytes(static_cast<int64_t>(kv_bytes_a_token(config, KvFormat::bf16))).c_str(),
      human_bytes(static_cast<int64_t>(kv_bytes_a_token(config, KvFormat::fp8_e4m3_584))).c_str());
  std::printf("  %-12s %s\n", "weights", config.weights.scheme_text.c_str());
  if (found.checkpoint) {
    std::printf("  %-12s %lld files, %zu tensors, %s\n", "checkpoint",
                number(found.checkpoint->n_shards()), found.checkpoint->tensors().size(),
                human_bytes(found.checkpoint->data_bytes()).c_str());
    if (found.part) {
      std::printf("  %-12s of rank %lld of %lld\n", "a part", number(found.part->rank),
                  number(found.part->n_ranks));
    }
    print_totals("in files", found.dtypes);
    print_totals("as read", found.linear_formats);
  } else if (found.weights_error.empty()) {
    std::printf("  %-12s no weights in this folder\n", "checkpoint");
  }
  if (!found.weights_error.empty()) {
    std::printf("  %-12s %s\n", "refused", found.weights_error.c_str());
  }
  for (const std::string& what : found.unsupported) {
    std::printf("  %-12s %s\n", "unsupported", what.c_str());
  }
}

}  // namespace

void add_inspect_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a model folder holds, and whether it can run");
  command->add_option("--model-path", "Folder with config.json, with or without weights")
      ->required();
  command->add_flag("--json")->description("Report as JSON");
  command->callback([command, exit_code] {
    const Result<Inspection> found = inspect(option_value(*command, "--model-path", std::string()));
    if (!found.ok()) {
      *exit_code = fail(found.error());
      return;
    }
    if (command->count("--json") > 0) {
      print_json(found.value());
    } else {
      print_text(found.value());
    }
    const bool is_sound = found.value().weights_error.empty();
    *exit_code = is_sound ? ExitCode::ok : ExitCode::wrong;
  });
}

}  // namespace quire
