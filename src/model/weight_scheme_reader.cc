// quantization_config of config.json: which of the schemes of weights/weight_scheme.h it names.
#include "base/text.h"
#include "model/config_reader.h"

namespace quire {

namespace {

constexpr int kIgnoredMax = 100'000;  // GLM-5 in FP8 lists every module that it leaves alone

// The modules that the scheme leaves alone. `kind` is what an entry is before its own text says so:
// "" plain names (compressed-tensors), "re:" regular expressions (transformers' FP8).
Status read_ignored(const ConfigReader& quant, const char* key, std::string_view kind,
                    WeightSource* source) {
  if (!quant.has(key)) return {};
  const std::vector<std::string> ignored = TRY(quant.texts(key, kIgnoredMax));
  for (const std::string& text : ignored) {
    source->ignored.push_back(TRY(NamePattern::parse(std::string(kind) + text)));
  }
  return {};
}

Status read_fp8(const ConfigReader& quant, WeightSource* source) {
  source->scheme_text = "fp8";
  const std::string element = TRY(quant.text_or("fmt", "e4m3"));
  if (element != "e4m3") return quant.refuse("fmt", "e4m3", element);
  // Without block sizes it is some other FP8 scheme, one scale a tensor or a row.
  if (!quant.has("weight_block_size")) {
    source->scheme = WeightScheme::other;
    source->scheme_text = "fp8 without weight_block_size";
    return {};
  }
  const std::vector<int64_t> block = TRY(quant.integers("weight_block_size", {1, 1 << 16}, 2));
  if (block != std::vector<int64_t>{128, 128}) {
    source->scheme = WeightScheme::other;
    source->scheme_text = "fp8 in blocks other than 128 x 128";
    return {};
  }
  source->scheme = WeightScheme::fp8_block128;
  return read_ignored(quant, "modules_to_not_convert", "re:", source);
}

Status read_compressed_tensors(const ConfigReader& quant, WeightSource* source) {
  const std::string packing = TRY(quant.text_or("format", "none"));
  const ConfigReader group = TRY(quant.only_member("config_groups"));
  const ConfigReader weights = TRY(group.object("weights"));
  const int64_t bits = TRY(weights.integer("num_bits", {1, 64}));
  const std::string kind = TRY(weights.text("type"));
  const std::string strategy = TRY(weights.text_or("strategy", "tensor"));
  const bool is_symmetric = TRY(weights.boolean_or("symmetric", true));
  const int64_t group_size = TRY(weights.integer_or("group_size", {-1, 1 << 20}, 0));
  const bool is_reordered = weights.has("actorder");
  source->scheme_text = format("compressed-tensors %s %s%lld %s %lld%s%s", excerpt(packing).c_str(),
                               excerpt(kind).c_str(), static_cast<long long>(bits),
                               excerpt(strategy).c_str(), static_cast<long long>(group_size),
                               is_symmetric ? "" : " asymmetric", is_reordered ? " actorder" : "");
  const bool is_known = packing == "pack-quantized" && kind == "int" && bits == 4 &&
                        strategy == "group" && is_symmetric && !is_reordered &&
                        (group_size == 32 || group_size == 128) && !group.has("input_activations");
  if (!is_known) {
    source->scheme = WeightScheme::other;
    return {};
  }
  source->scheme = WeightScheme::int4_group;
  source->group = static_cast<int>(group_size);
  return read_ignored(quant, "ignore", "", source);
}

// modelopt's names may end in, or hold, a star for whatever follows; they begin with the prefix of
// their model's names, which ours do not.
Result<NamePattern> read_star_pattern(std::string_view text, CheckpointNaming naming) {
  constexpr std::string_view kPrefix = "language_model.";
  if (naming == CheckpointNaming::language_model && text.starts_with(kPrefix)) {
    text.remove_prefix(kPrefix.size());
  }
  std::string pattern = "re:";
  for (const char c : text) {
    if (c == '*') {
      pattern += ".*";
    } else if (c == '.') {
      pattern += "\\.";
    } else {
      pattern += c;
    }
  }
  return NamePattern::parse(pattern + "$");
}

Status read_nvfp4(const ConfigReader& quant, WeightSource* source) {
  source->scheme_text = "NVFP4 (modelopt)";
  if (quant.has("config_groups")) {
    const ConfigReader group = TRY(quant.only_member("config_groups"));
    const ConfigReader weights = TRY(group.object("weights"));
    const int64_t bits = TRY(weights.integer("num_bits", {1, 64}));
    const int64_t size = TRY(weights.integer("group_size", {1, 1 << 20}));
    if (bits != 4 || size != kNvfp4Group) {
      return weights.refuse("group_size", "4 bits in groups of 16", std::to_string(size));
    }
  }
  source->scheme = WeightScheme::nvfp4;
  if (!quant.has("ignore")) return {};
  const std::vector<std::string> ignored = TRY(quant.texts("ignore", kIgnoredMax));
  for (const std::string& text : ignored) {
    source->ignored.push_back(TRY(read_star_pattern(text, source->naming)));
  }
  return {};
}

}  // namespace

Status read_weight_scheme(const ConfigReader& owner, WeightSource* source) {
  if (!owner.has("quantization_config")) return {};
  const ConfigReader quant = TRY(owner.object("quantization_config"));
  const std::string method = TRY(quant.text("quant_method"));
  if (method == "fp8") return read_fp8(quant, source);
  if (method == "compressed-tensors") return read_compressed_tensors(quant, source);
  const std::string algorithm = TRY(quant.text_or("quant_algo", ""));
  if (method == "modelopt" && algorithm == "NVFP4") return read_nvfp4(quant, source);
  source->scheme = WeightScheme::other;
  source->scheme_text = excerpt(algorithm.empty() ? method : algorithm + " (" + method + ")");
  return {};
}

}  // namespace quire
