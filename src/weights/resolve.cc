#include "weights/resolve.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/text.h"

namespace quire {

namespace {

constexpr int64_t kNibblesPerWord = 8;

class Resolver {
 public:
  Resolver(const Checkpoint& checkpoint, const ModelShape& shape, const WeightSource& source)
      : checkpoint_(checkpoint), shape_(shape), source_(source) {}

  Result<ResolvedTensor> resolve(const WantedTensor& wanted);
  // Every tensor of the checkpoint was resolved, or is left unread on purpose.
  Status check_all_read() const;

 private:
  Error refuse(const CheckpointTensor& tensor, const std::string& what) const {
    return invalid_argument(format("%s: tensor \"%s\": %s", checkpoint_.shard_path(tensor).c_str(),
                                   excerpt(tensor.entry.name).c_str(), what.c_str()));
  }

  // Marks it as read.
  const CheckpointTensor* find(const std::string& name) {
    const CheckpointTensor* tensor = checkpoint_.find(name);
    if (tensor != nullptr) read_.insert(tensor->entry.name);
    return tensor;
  }

  Status check(const CheckpointTensor& tensor, Dtype dtype, std::vector<int64_t> shape) const;
  Result<ResolvedTensor> resolve_plain(const WantedTensor& wanted);
  Result<ResolvedTensor> resolve_matrix(const WantedTensor& wanted);
  Status resolve_fp8(ResolvedTensor* tensor);
  Status resolve_int4(ResolvedTensor* tensor);
  Status resolve_nvfp4(ResolvedTensor* tensor);

  const Checkpoint& checkpoint_;
  const ModelShape& shape_;
  const WeightSource& source_;
  std::set<std::string_view> read_;
};

Status Resolver::check(const CheckpointTensor& tensor, Dtype dtype,
                       std::vector<int64_t> shape) const {
  const TensorEntry expected{.name = tensor.entry.name, .dtype = dtype, .shape = std::move(shape)};
  if (tensor.entry.dtype == expected.dtype && tensor.entry.shape == expected.shape) return {};
  return refuse(tensor, "expected " + describe(expected) + ", found " + describe(tensor.entry));
}

Result<ResolvedTensor> Resolver::resolve_plain(const WantedTensor& wanted) {
  const CheckpointTensor* tensor = find(wanted.source);
  if (tensor == nullptr) {
    return invalid_argument(
        format("%s: tensor \"%s\" is missing", checkpoint_.dir().c_str(), wanted.source.c_str()));
  }
  const bool may_be_f32 =
      wanted.storage == Storage::f32_vector && tensor->entry.dtype == Dtype::f32;
  std::vector<int64_t> shape{wanted.n_out};
  if (wanted.n_in > 0) shape.push_back(wanted.n_in);
  TRY_OK(check(*tensor, may_be_f32 ? Dtype::f32 : Dtype::bf16, std::move(shape)));
  return ResolvedTensor{.wanted = wanted, .values = tensor};
}

Status Resolver::resolve_fp8(ResolvedTensor* tensor) {
  const WantedTensor& wanted = tensor->wanted;
  if (source_.scheme != WeightScheme::fp8_block128) {
    return refuse(*tensor->values,
                  "is F8_E4M3, and the config's weights are " + source_.scheme_text);
  }
  tensor->format = StoredFormat::fp8_block128;
  TRY_OK(check(*tensor->values, Dtype::f8_e4m3, {wanted.n_out, wanted.n_in}));
  tensor->scales = find(wanted.source + ".weight_scale_inv");
  if (tensor->scales == nullptr) {
    return refuse(*tensor->values, "is F8_E4M3 without a weight_scale_inv");
  }
  return check(*tensor->scales, Dtype::f32,
               {div_up(wanted.n_out, kFp8Block), div_up(wanted.n_in, kFp8Block)});
}

Status Resolver::resolve_int4(ResolvedTensor* tensor) {
  const WantedTensor& wanted = tensor->wanted;
  if (source_.scheme != WeightScheme::int4_group) {
    return refuse(*tensor->values,
                  "is packed, and the config's weights are " + source_.scheme_text);
  }
  const auto leaves_alone = [&](const NamePattern& pattern) {
    return pattern.matches(wanted.module);
  };
  if (std::any_of(source_.ignored.begin(), source_.ignored.end(), leaves_alone)) {
    return refuse(*tensor->values, "is packed, and the config's ignore list leaves it alone");
  }
  if (wanted.n_in % source_.group != 0) {
    return refuse(*tensor->values, format("%lld inputs are not whole groups of %d",
                                          static_cast<long long>(wanted.n_in), source_.group));
  }
  tensor->format = StoredFormat::int4_group;
  tensor->group = source_.group;
  TRY_OK(check(*tensor->values, Dtype::i32, {wanted.n_out, wanted.n_in / kNibblesPerWord}));
  tensor->scales = find(wanted.source + ".weight_scale");
  if (tensor->scales == nullptr) {
    return refuse(*tensor->values, "is packed without a weight_scale");
  }
  return check(*tensor->scales, Dtype::bf16, {wanted.n_out, wanted.n_in / source_.group});
}

Status Resolver::resolve_nvfp4(ResolvedTensor* tensor) {
  const WantedTensor& wanted = tensor->wanted;
  if (source_.scheme != WeightScheme::nvfp4) {
    return refuse(*tensor->values, "is U8, and the config's weights are " + source_.scheme_text);
  }
  if (wanted.n_in % kNvfp4Group != 0) {
    return refuse(*tensor->values,
                  format("%lld inputs are not whole groups of %lld",
                         static_cast<long long>(wanted.n_in), static_cast<long long>(kNvfp4Group)));
  }
  tensor->format = StoredFormat::nvfp4;
  TRY_OK(check(*tensor->values, Dtype::u8, {wanted.n_out, wanted.n_in / 2}));
  tensor->scales = find(wanted.source + ".weight_scale");
  tensor->tensor_scale = find(wanted.source + ".weight_scale_2");
  // Of activations that are rounded to four bits, too: ours are not.
  find(wanted.source + ".input_scale");
  if (tensor->scales == nullptr || tensor->tensor_scale == nullptr) {
    return refuse(*tensor->values, "is U8 without a weight_scale or a weight_scale_2");
  }
  const std::vector<int64_t>& scalar = tensor->tensor_scale->entry.shape;
  TRY_OK(check(*tensor->tensor_scale, Dtype::f32,
               scalar.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{1}));
  return check(*tensor->scales, Dtype::f8_e4m3, {wanted.n_out, wanted.n_in / kNvfp4Group});
}

Result<ResolvedTensor> Resolver::resolve_matrix(const WantedTensor& wanted) {
  const CheckpointTensor* plain = find(wanted.source + ".weight");
  const CheckpointTensor* packed = find(wanted.source + ".weight_packed");
  if (plain == nullptr && packed == nullptr) {
    return invalid_argument(format("%s: tensor \"%s.weight\" is missing", checkpoint_.dir().c_str(),
                                   wanted.source.c_str()));
  }
  if (plain != nullptr && packed != nullptr) {
    return refuse(*packed, "is there beside an unpacked weight");
  }
  ResolvedTensor tensor{.wanted = wanted, .values = plain != nullptr ? plain : packed};
  const bool is_fp8 = plain != nullptr && plain->entry.dtype == Dtype::f8_e4m3;
  const bool is_nvfp4 = plain != nullptr && plain->entry.dtype == Dtype::u8;
  const bool must_be_bf16 = wanted.storage == Storage::bf16_matrix;
  if (packed != nullptr && (must_be_bf16 || wanted.storage == Storage::kv_b)) {
    return unsupported(refuse(*packed, "INT4 is not supported for this tensor").message);
  }
  if (is_fp8 && must_be_bf16) {
    return unsupported(refuse(*plain, "FP8 is not supported for this tensor").message);
  }
  if (is_nvfp4 && wanted.storage != Storage::matrix) {
    return unsupported(refuse(*plain, "NVFP4 is not supported for this tensor").message);
  }
  if (is_nvfp4) {
    TRY_OK(resolve_nvfp4(&tensor));
  } else if (packed != nullptr) {
    TRY_OK(resolve_int4(&tensor));
  } else if (is_fp8) {
    TRY_OK(resolve_fp8(&tensor));
  } else {
    TRY_OK(check(*plain, Dtype::bf16, {wanted.n_out, wanted.n_in}));
  }
  return tensor;
}

Result<ResolvedTensor> Resolver::resolve(const WantedTensor& wanted) {
  switch (wanted.storage) {
    case Storage::bf16_rows:
    case Storage::bf16_vector:
    case Storage::f32_vector:
      return resolve_plain(wanted);
    case Storage::bf16_matrix:
    case Storage::matrix:
    case Storage::kv_b:
      return resolve_matrix(wanted);
  }
  CHECK(false);
  return ResolvedTensor{};
}

Status Resolver::check_all_read() const {
  for (const CheckpointTensor& tensor : checkpoint_.tensors()) {
    const std::string& name = tensor.entry.name;
    if (read_.contains(name) || is_unread_tensor(name, shape_, source_.naming)) continue;
    return refuse(tensor, "is not part of this architecture");
  }
  return {};
}

bool is_shared(Weight weight) {
  return weight == Weight::shared_gate || weight == Weight::shared_up ||
         weight == Weight::shared_down;
}

// The routed experts of a layer have one format, and so has the shared one: each is packed whole.
Status check_one_format(const Checkpoint& checkpoint, const std::vector<ResolvedTensor>& tensors) {
  const ResolvedTensor* routed = nullptr;
  const ResolvedTensor* shared = nullptr;
  for (const ResolvedTensor& tensor : tensors) {
    const bool is_of_shared = is_shared(tensor.wanted.weight);
    if (tensor.wanted.expert < 0 && !is_of_shared) continue;
    const ResolvedTensor*& first = is_of_shared ? shared : routed;
    if (first == nullptr || first->wanted.layer != tensor.wanted.layer) first = &tensor;
    if (tensor.format == first->format) continue;
    return unsupported(format("%s: experts of layer %lld differ in format: \"%s\" and \"%s\"",
                              checkpoint.dir().c_str(), static_cast<long long>(tensor.wanted.layer),
                              first->wanted.source.c_str(), tensor.wanted.source.c_str()));
  }
  return {};
}

}  // namespace

Result<std::vector<ResolvedTensor>> resolve_checkpoint(const Checkpoint& checkpoint,
                                                       const ModelShape& shape,
                                                       const WeightSource& source,
                                                       LayerScope scope) {
  Resolver resolver(checkpoint, shape, source);
  std::vector<ResolvedTensor> tensors;
  for (const WantedTensor& wanted : wanted_tensors(shape, source.naming, scope)) {
    tensors.push_back(TRY(resolver.resolve(wanted)));
  }
  TRY_OK(resolver.check_all_read());
  TRY_OK(check_one_format(checkpoint, tensors));
  return tensors;
}

LayerScope scope_of(const Checkpoint& checkpoint, const ModelShape& shape,
                    CheckpointNaming naming) {
  if (shape.n_predictors == 0) return LayerScope::decoder;
  for (const WantedTensor& wanted : wanted_tensors(shape, naming, LayerScope::with_predictors)) {
    if (wanted.weight != Weight::predictor_token_norm) continue;
    if (checkpoint.find(wanted.source) == nullptr) return LayerScope::decoder;
  }
  return LayerScope::with_predictors;
}

}  // namespace quire
