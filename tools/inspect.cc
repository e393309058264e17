// quire inspect: what a model folder holds, what each rank of it would, and whether this build can
// run it. Reads config.json and, where there are weights, their headers; loads nothing.
#include <cstdio>
#include <string>

#include "base/json.h"
#include "base/text.h"
#include "tools/commands.h"
#include "tools/gpu_budget_flags.h"
#include "tools/inspection.h"
#include "tools/option_value.h"

namespace quire {

namespace {

long long number(int64_t value) { return static_cast<long long>(value); }

void print_totals(const char* title, const std::map<std::string, TensorTotal>& totals) {
  for (const auto& [key, total] : totals) {
    std::printf("  %-12s %-14s %8lld tensors  %10s\n", title, key.c_str(), number(total.tensors),
                human_bytes(total.bytes).c_str());
    title = "";
  }
}

void print_model(const Inspection& found) {
  const ModelConfig& config = found.config;
  const ModelShape& shape = config.shape;
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
}

void print_checkpoint(const Inspection& found) {
  if (!found.checkpoint) {
    std::printf("  %-12s no weights in this folder", "checkpoint");
    if (found.checkpoint_bytes > 0) {
      std::printf("; as published %s (%lld bytes)", human_bytes(found.checkpoint_bytes).c_str(),
                  number(found.checkpoint_bytes));
    }
    std::printf("\n");
    return;
  }
  std::printf("  %-12s %lld files, %zu tensors, %s (%lld bytes)\n", "checkpoint",
              number(found.checkpoint->n_shards()), found.checkpoint->tensors().size(),
              human_bytes(found.checkpoint_bytes).c_str(), number(found.checkpoint_bytes));
  if (found.part) {
    std::printf("  %-12s of rank %lld of %lld\n", "a part", number(found.part->rank),
                number(found.part->n_ranks));
  }
  print_totals("in files", found.dtypes);
}

void print_layers(const Inspection& found) {
  const char* title = "by layer";
  for (const LayerRun& run : found.layers) {
    std::string text;
    for (const auto& [part, formats] : run.formats) {
      text += (text.empty() ? "" : "; ") + part + " " + formats;
    }
    std::printf("  %-12s %3lld to %3lld  %10s  %s\n", title, number(run.first), number(run.last),
                human_bytes(run.bytes).c_str(), text.c_str());
    title = "";
  }
}

void print_ranks(const Inspection& found, const GpuBudget& gpu) {
  const char* title = "a rank";
  for (const RankEstimate& rank : found.ranks) {
    std::printf("  %-12s tp %2lld  ", title, number(rank.n_ranks));
    title = "";
    if (!rank.refused.empty()) {
      std::printf("%s\n", rank.refused.c_str());
    } else if (rank.kv_tokens == 0) {
      std::printf("%10s of weights: no room for a cache\n", human_bytes(rank.weight_bytes).c_str());
    } else {
      std::printf("%10s of weights, %lld KV tokens\n", human_bytes(rank.weight_bytes).c_str(),
                  number(rank.kv_tokens));
    }
  }
  if (found.ranks.empty()) return;
  std::printf("  %-12s GPUs of %s, of which %.2f are taken; cache in %s\n", "",
              human_bytes(gpu.bytes).c_str(), gpu.fraction,
              std::string(name(gpu.kv_format)).c_str());
}

void print_text(const Inspection& found, const GpuBudget& gpu) {
  print_model(found);
  print_checkpoint(found);
  print_totals("as read", found.formats);
  print_layers(found);
  print_ranks(found, gpu);
  if (!found.weights_error.empty()) {
    std::printf("  %-12s %s\n", "refused", found.weights_error.c_str());
  }
  for (const std::string& what : found.unsupported) {
    std::printf("  %-12s %s\n", "unsupported", what.c_str());
  }
}

Result<ExitCode> run(const CLI::App& command) {
  const GpuBudget gpu = TRY(read_gpu_budget(command));
  const Inspection found =
      TRY(inspect_model(option_value(command, "--model-path", std::string()), gpu));
  if (command.count("--json") > 0) {
    std::printf("%s\n", dump_json(to_json(found)).c_str());
  } else {
    print_text(found, gpu);
  }
  return found.weights_error.empty() ? ExitCode::ok : ExitCode::wrong;
}

}  // namespace

void add_inspect_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "What a model folder holds, and whether it can run");
  command->add_option("--model-path", "Folder with config.json, with or without weights")
      ->required();
  add_gpu_budget_flags(*command);
  command->add_flag("--json")->description("Report as JSON");
  command->callback([command, exit_code] {
    const Result<ExitCode> ended = run(*command);
    *exit_code = ended.ok() ? ended.value() : fail(ended.error());
  });
}

}  // namespace quire
