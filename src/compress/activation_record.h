// ActivationRecord: what every mixture of a model was given while calibration text ran through it,
// on the disk.
//
// Inputs, not their second moments: these would be hidden^2 numbers for every expert, which is 79
// GB for a layer of Kimi K2; the inputs are 2 * hidden bytes a token and layer, and a job makes the
// moments of its one expert out of them. A file a layer, safetensors: `experts` I32 [n_tokens,
// top_k], `inputs` BF16 [n_tokens, hidden] and `held_out` U8 [n_tokens], 1 of tokens that judge
// what the others made. docs/compress.md has the sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/mapped_file.h"
#include "base/result.h"
#include "format/safetensors.h"
#include "model/config.h"
#include "ops/backend.h"
#include "tensor/view.h"
#include "weights/model_weights.h"

namespace quire {

// A model whose experts are to be calibrated, on a backend that reads host memory; all outlive it.
struct CalibratedModel {
  const ModelConfig& config;
  const ModelWeights& weights;
  Backend& backend;
};

// Sequences of token ids, each from its beginning.
using CalibrationTexts = std::vector<std::vector<Token>>;

// Tokens done and in all.
using CalibrationProgress = std::function<void(int64_t done, int64_t total)>;

// What a record of that many tokens takes.
int64_t activation_bytes(const ModelShape& shape, int64_t n_tokens);

class ActivationRecord {
 public:
  // Runs the texts and writes the record into `dir`, or, where all of its files are there already,
  // does nothing. `identity` says of what it is a record. Errors: invalid_argument (a record of
  // something else is there, an id outside the vocabulary, a text too long), resource_exhausted
  // (memory, or the disk: needed and available bytes are named), unavailable.
  static Status make(const std::string& dir, const std::string& identity,
                     const CalibratedModel& model, const CalibrationTexts& texts,
                     const CalibrationProgress& progress);

  // Errors: not_found, invalid_argument, corruption, each naming the file.
  static Result<ActivationRecord> open(const std::string& dir, const ModelShape& shape);
  // Whether a record of that identity is in `dir`. Errors: invalid_argument, one of another is.
  static Result<bool> is_there(const std::string& dir, const std::string& identity);

  int64_t hidden() const { return hidden_; }
  int64_t n_tokens() const { return n_tokens_; }

  // Those that a layer sent to an expert, in order.
  struct ExpertTokens {
    std::vector<int64_t> fit;
    std::vector<int64_t> held_out;
  };
  ExpertTokens tokens_of(int64_t layer, int64_t expert) const;

  // out: [tokens.size(), hidden]. Errors: corruption, an input that is no finite number.
  Status read(int64_t layer, std::span<const int64_t> tokens, float* out) const;

 private:
  struct Layer {
    MappedFile file;
    View<const int32_t, 2> experts;   // [n_tokens, top_k]
    View<const Bf16, 2> inputs;       // [n_tokens, hidden]
    View<const uint8_t, 1> held_out;  // [n_tokens]
  };

  int64_t hidden_ = 0;
  int64_t n_tokens_ = 0;
  std::map<int64_t, Layer> layers_;  // the mixtures
};

}  // namespace quire
