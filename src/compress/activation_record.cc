#include "compress/activation_record.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/bytes.h"
#include "base/output_file.h"
#include "base/text.h"
#include "compress/quantise.h"
#include "model/single_sequence.h"
#include "ops/forwarding_backend.h"
#include "ops/moe.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkTokensMax = 2048;
// Pieces of a text, and of one in how many the tokens are held out. Neighbours in a text are alike:
// single tokens would flatter what was made of those beside them.
constexpr size_t kPieceTokens = 256;
constexpr size_t kHeldOutEach = 4;
constexpr const char* kIdentityFile = "/calibration.json";
constexpr size_t kIdentityBytesMax = size_t{1} << 20;

std::string layer_path(const std::string& dir, int64_t layer) {
  return dir + format("/layer-%05lld.safetensors", static_cast<long long>(layer));
}

std::vector<TensorEntry> layer_arrays(const ModelShape& shape, int64_t n_tokens) {
  std::vector<TensorEntry> out = {
      {.name = "experts", .dtype = Dtype::i32, .shape = {n_tokens, shape.top_k}},
      {.name = "inputs", .dtype = Dtype::bf16, .shape = {n_tokens, shape.hidden_size}},
      {.name = "held_out", .dtype = Dtype::u8, .shape = {n_tokens, 1}}};
  for (TensorEntry& entry : out) {
    entry.bytes = size_of(entry.dtype) * entry.shape[0] * entry.shape[1];
  }
  auto offset = static_cast<int64_t>(safetensors_header(out).size());
  for (TensorEntry& entry : out) {
    entry.offset = offset;
    offset += entry.bytes;
  }
  return out;
}

// By token of all texts: 1 where it is held out.
std::vector<uint8_t> held_out_tokens(const CalibrationTexts& texts) {
  std::vector<uint8_t> out;
  for (size_t text = 0; text < texts.size(); ++text) {
    for (size_t i = 0; i < texts[text].size(); ++i) {
      out.push_back((text + i / kPieceTokens) % kHeldOutEach == kHeldOutEach - 1 ? 1 : 0);
    }
  }
  return out;
}

// Writes down what each mixture of the model is given, and passes it on.
class Recorder final : public ForwardingBackend {
 public:
  static Result<std::unique_ptr<Recorder>> make(const std::string& dir,
                                                const CalibratedModel& model,
                                                const std::vector<uint8_t>& held_out);

  void moe_experts(const ops::MoeExperts& args) override {
    ForwardingBackend::moe_experts(args);  // which says what was chosen
    if (status_.ok()) status_ = write(args);
  }

  const Status& status() const { return status_; }
  Status finish();

 private:
  struct Layer {
    const ops::ExpertBank* bank;
    OutputFile file;
    int64_t n_written;  // tokens
  };

  Recorder(const CalibratedModel& model, std::vector<TensorEntry> arrays)
      : ForwardingBackend(model.backend), arrays_(std::move(arrays)) {}

  Status write(const ops::MoeExperts& args);
  template <class T>
  Status append(const Layer& layer, const TensorEntry& array, const View<const T, 2>& rows);

  std::vector<TensorEntry> arrays_;  // of every layer's file
  std::vector<Layer> layers_;
  std::vector<std::byte> rows_;
  Status status_;
};

Result<std::unique_ptr<Recorder>> Recorder::make(const std::string& dir,
                                                 const CalibratedModel& model,
                                                 const std::vector<uint8_t>& held_out) {
  const auto n_tokens = static_cast<int64_t>(held_out.size());
  std::unique_ptr<Recorder> out(new Recorder(model, layer_arrays(model.config.shape, n_tokens)));
  const std::string header = safetensors_header(out->arrays_);
  const int64_t bytes = out->arrays_.back().offset + out->arrays_.back().bytes;
  for (size_t i = 0; i < model.weights.layers.size(); ++i) {
    const ops::ExpertBank* bank = model.weights.layers[i].experts.get();
    if (bank == nullptr) continue;
    OutputFile file = TRY(OutputFile::create(layer_path(dir, static_cast<int64_t>(i)), bytes));
    TRY_OK(file.write_at(0, std::as_bytes(std::span(header.data(), header.size()))));
    TRY_OK(file.write_at(out->arrays_.back().offset, std::as_bytes(std::span(held_out))));
    out->layers_.push_back({.bank = bank, .file = std::move(file), .n_written = 0});
  }
  return out;
}

template <class T>
Status Recorder::append(const Layer& layer, const TensorEntry& array,
                        const View<const T, 2>& rows) {
  const auto row_bytes = static_cast<size_t>(array.shape[1]) * sizeof(T);
  rows_.resize(static_cast<size_t>(rows[0]) * row_bytes);
  for (int64_t i = 0; i < rows[0]; ++i) {
    std::memcpy(rows_.data() + static_cast<size_t>(i) * row_bytes, rows.row(i).data, row_bytes);
  }
  return layer.file.write_at(array.offset + layer.n_written * static_cast<int64_t>(row_bytes),
                             rows_);
}

Status Recorder::write(const ops::MoeExperts& args) {
  const auto layer = std::find_if(layers_.begin(), layers_.end(),
                                  [&](const Layer& one) { return one.bank == args.bank; });
  CHECK(layer != layers_.end());
  TRY_OK(append<int32_t>(*layer, arrays_[0], args.experts));
  TRY_OK(append<Bf16>(*layer, arrays_[1], args.x));
  layer->n_written += args.x[0];
  return {};
}

Status Recorder::finish() {
  TRY_OK(status_);
  for (Layer& layer : layers_) TRY_OK(layer.file.finish());
  return {};
}

Status check_texts(const ModelConfig& config, const CalibrationTexts& texts) {
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto n = static_cast<int64_t>(texts[i].size());
    if (n > config.positions_max) {
      return invalid_argument(format("calibration text %zu has %lld tokens, the model takes %lld",
                                     i + 1, static_cast<long long>(n),
                                     static_cast<long long>(config.positions_max)));
    }
    for (const Token token : texts[i]) {
      if (token >= 0 && token < config.shape.vocab_size) continue;
      return invalid_argument(format("calibration text %zu: id %d is not in the vocabulary", i + 1,
                                     static_cast<int>(token)));
    }
  }
  return {};
}

Status check_disk(const std::string& dir, int64_t needed) {
  std::error_code failed;
  const fs::space_info space = fs::space(dir, failed);
  if (failed) return unavailable(dir + ": " + failed.message());
  if (needed <= static_cast<int64_t>(space.available)) return {};
  return resource_exhausted(
      format("%s: what the experts are given takes %s there, and %s are free: calibrate with fewer "
             "tokens, or keep it elsewhere (--activations)",
             dir.c_str(), human_bytes(needed).c_str(),
             human_bytes(static_cast<int64_t>(space.available)).c_str()));
}

}  // namespace

int64_t activation_bytes(const ModelShape& shape, int64_t n_tokens) {
  const TensorEntry last = layer_arrays(shape, n_tokens).back();
  return (last.offset + last.bytes) * (shape.n_layers - shape.n_dense_layers);
}

Result<bool> ActivationRecord::is_there(const std::string& dir, const std::string& identity) {
  const std::string path = dir + kIdentityFile;
  const Result<std::string> found = read_text_file(path, kIdentityBytesMax);
  if (!found.ok() && found.error().code == ErrorCode::not_found) return false;
  if (!found.ok()) return found.error();
  if (found.value() == identity) return true;
  return invalid_argument(path + ": is of another model or another text: nothing is overwritten");
}

Status ActivationRecord::make(const std::string& dir, const std::string& identity,
                              const CalibratedModel& model, const CalibrationTexts& texts,
                              const CalibrationProgress& progress) {
  if (TRY(is_there(dir, identity))) return {};
  CHECK(model.backend.reads_host_memory());
  TRY_OK(check_texts(model.config, texts));
  int64_t n_tokens = 0;
  int64_t longest = 0;
  for (const std::vector<Token>& text : texts) {
    n_tokens += static_cast<int64_t>(text.size());
    longest = std::max(longest, static_cast<int64_t>(text.size()));
  }
  if (n_tokens == 0) return invalid_argument("the calibration texts are empty");
  std::error_code failed;
  fs::create_directories(dir, failed);
  if (failed) return unavailable(dir + ": cannot be made: " + failed.message());
  TRY_OK(check_disk(dir, activation_bytes(model.config.shape, n_tokens)));
  const std::unique_ptr<Recorder> recorder =
      TRY(Recorder::make(dir, model, held_out_tokens(texts)));
  const int64_t chunk_tokens = std::min(longest, kChunkTokensMax);
  const std::unique_ptr<Model> forward =
      TRY(make_model(model.config, model.weights, *recorder,
                     {.tokens_max = chunk_tokens, .logits_max = 1, .positions_max = longest}, {}));
  SingleSequence sequence = TRY(SingleSequence::make(*forward, *recorder, longest, chunk_tokens));
  int64_t n_done = 0;
  for (const std::vector<Token>& text : texts) {
    sequence.clear();
    std::span<const Token> left = text;
    while (!left.empty()) {
      const auto chunk = left.first(std::min(left.size(), static_cast<size_t>(chunk_tokens)));
      sequence.feed(chunk, 0);
      TRY_OK(recorder->status());
      left = left.subspan(chunk.size());
      n_done += static_cast<int64_t>(chunk.size());
      if (progress) progress(n_done, n_tokens);
    }
  }
  TRY_OK(recorder->finish());
  return write_text_file(dir + kIdentityFile, identity);
}

Result<ActivationRecord> ActivationRecord::open(const std::string& dir, const ModelShape& shape) {
  ActivationRecord out;
  out.hidden_ = shape.hidden_size;
  for (int64_t layer = shape.n_dense_layers; layer < shape.n_layers; ++layer) {
    MappedFile file = TRY(MappedFile::open(layer_path(dir, layer)));
    const SafetensorsIndex index = TRY(parse_safetensors(file.bytes(), file.path()));
    const auto find = [&](std::string_view name, Dtype dtype, int64_t columns) {
      return std::find_if(index.tensors.begin(), index.tensors.end(), [&](const TensorEntry& e) {
        return e.name == name && e.dtype == dtype && e.shape.size() == 2 && e.shape[1] == columns;
      });
    };
    const auto experts = find("experts", Dtype::i32, shape.top_k);
    const auto inputs = find("inputs", Dtype::bf16, shape.hidden_size);
    const auto held_out = find("held_out", Dtype::u8, 1);
    const auto end = index.tensors.end();
    if (experts == end || inputs == end || held_out == end ||
        experts->shape[0] != inputs->shape[0] || experts->shape[0] != held_out->shape[0] ||
        (layer > shape.n_dense_layers && experts->shape[0] != out.n_tokens_)) {
      return corruption(file.path() + ": is not what the experts of this model were given");
    }
    out.n_tokens_ = experts->shape[0];
    const std::byte* data = file.bytes().data();
    const auto* chosen = reinterpret_cast<const int32_t*>(data + experts->offset);
    const auto* rows = reinterpret_cast<const Bf16*>(data + inputs->offset);
    const auto* flags = reinterpret_cast<const uint8_t*>(data + held_out->offset);
    out.layers_.emplace(layer, Layer{.file = std::move(file),
                                     .experts = view_of(chosen, out.n_tokens_, shape.top_k),
                                     .inputs = view_of(rows, out.n_tokens_, shape.hidden_size),
                                     .held_out = view_of(flags, out.n_tokens_)});
  }
  return out;
}

ActivationRecord::ExpertTokens ActivationRecord::tokens_of(int64_t layer, int64_t expert) const {
  ExpertTokens out;
  const auto at = layers_.find(layer);
  if (at == layers_.end()) return out;
  const View<const int32_t, 2>& experts = at->second.experts;
  const View<const uint8_t, 1>& held_out = at->second.held_out;
  for (int64_t token = 0; token < n_tokens_; ++token) {
    for (int64_t k = 0; k < experts[1]; ++k) {
      if (experts(token, k) != expert) continue;
      (held_out(token) != 0 ? out.held_out : out.fit).push_back(token);
      break;
    }
  }
  return out;
}

Status ActivationRecord::read(int64_t layer, std::span<const int64_t> tokens, float* out) const {
  const Layer& from = layers_.at(layer);
  for (const int64_t token : tokens) {
    const View<const Bf16, 1> row = from.inputs.row(token);
    for (int64_t i = 0; i < hidden_; ++i) out[i] = to_float(row(i));
    const int64_t bad = find_not_finite({out, static_cast<size_t>(hidden_)});
    if (bad >= 0) {
      return corruption(format("%s: input %lld of token %lld is not a finite number",
                               from.file.path().c_str(), static_cast<long long>(bad),
                               static_cast<long long>(token)));
    }
    out += hidden_;
  }
  return {};
}

}  // namespace quire
