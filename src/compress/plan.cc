#include "compress/plan.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/text.h"
#include "compress/group_fit.h"
#include "ops/weight_matrix.h"

namespace quire {

namespace {

constexpr int64_t kNibblesPerWord = 8;

bool matches_any(const std::vector<NamePattern>& patterns, const std::string& module) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const NamePattern& pattern) { return pattern.matches(module); });
}

bool is_linear(const WantedTensor& wanted) {
  switch (wanted.storage) {
    case Storage::matrix:
    case Storage::kv_b:
    case Storage::bf16_matrix:
      return true;
    case Storage::bf16_rows:
    case Storage::bf16_vector:
    case Storage::f32_vector:
      return false;
  }
  CHECK(false);
  return false;
}

// Whether a reader of the format takes it for this tensor at all.
bool can_be(TargetFormat format, const WantedTensor& wanted) {
  return wanted.storage == Storage::matrix ||
         (wanted.storage == Storage::kv_b && format == TargetFormat::fp8);
}

bool is_default(TargetFormat format, const WantedTensor& wanted) {
  switch (format) {
    case TargetFormat::int4:
    case TargetFormat::nvfp4:
      return wanted.expert >= 0;
    case TargetFormat::fp8:
      return can_be(format, wanted) && wanted.weight != Weight::lm_head;
  }
  CHECK(false);
  return false;
}

TensorEntry entry_of(std::string name, Dtype dtype, std::vector<int64_t> shape) {
  int64_t bytes = size_of(dtype);
  for (const int64_t extent : shape) bytes *= extent;
  return {.name = std::move(name), .dtype = dtype, .shape = std::move(shape), .bytes = bytes};
}

// The arrays of a linear map in a format, the values first.
std::vector<TensorEntry> arrays_of(const WantedTensor& wanted, Conversion conversion, int group) {
  const std::string& name = wanted.source;
  const int64_t n_out = wanted.n_out;
  const int64_t n_in = wanted.n_in;
  switch (conversion) {
    case Conversion::copy:
      break;
    case Conversion::to_bf16:
      return {entry_of(name + ".weight", Dtype::bf16, {n_out, n_in})};
    case Conversion::to_int4:
      return {entry_of(name + ".weight_packed", Dtype::i32, {n_out, n_in / kNibblesPerWord}),
              entry_of(name + ".weight_scale", Dtype::bf16, {n_out, n_in / group}),
              entry_of(name + ".weight_shape", Dtype::i64, {2})};
    case Conversion::to_fp8:
      return {entry_of(name + ".weight", Dtype::f8_e4m3, {n_out, n_in}),
              entry_of(name + ".weight_scale_inv", Dtype::f32,
                       {div_up(n_out, kFp8Block), div_up(n_in, kFp8Block)})};
    case Conversion::to_nvfp4:
      return {entry_of(name + ".weight", Dtype::u8, {n_out, n_in / 2}),
              entry_of(name + ".weight_scale", Dtype::f8_e4m3, {n_out, n_in / kNvfp4Group}),
              entry_of(name + ".weight_scale_2", Dtype::f32, {}),
              entry_of(name + ".input_scale", Dtype::f32, {})};
  }
  CHECK(false);
  return {};
}

StoredMatrix stored_matrix(const ResolvedTensor& tensor) {
  return {.values = tensor.values,
          .scales = tensor.scales,
          .n_out = tensor.wanted.n_out,
          .n_in = tensor.wanted.n_in};
}

class Planner {
 public:
  Planner(const Checkpoint& input, const CompressOptions& options,
          const std::vector<ResolvedTensor>& tensors)
      : input_(input), options_(options), tensors_(tensors) {}

  Result<CompressPlan> plan();

 private:
  // A job and the arrays that it writes, before it has a shard.
  struct Draft {
    CompressJob job;
    std::vector<TensorEntry> arrays;
  };

  bool is_selected(const WantedTensor& wanted) const {
    if (matches_any(options_.exclude, wanted.module)) return false;
    return is_default(options_.format, wanted) || matches_any(options_.include, wanted.module);
  }
  Error refuse(const CheckpointTensor& tensor, const std::string& what) const {
    return invalid_argument(format("%s: tensor \"%s\": %s", input_.shard_path(tensor).c_str(),
                                   excerpt(tensor.entry.name).c_str(), what.c_str()));
  }

  Status check_patterns() const;
  std::optional<ExpertInput> input_of(const ResolvedTensor& tensor) const;
  Result<Conversion> conversion_of(const ResolvedTensor& tensor) const;
  void add_copy(const CheckpointTensor& tensor);
  Status add(const ResolvedTensor& tensor);
  void fill_shards();
  void close_shard(OutputShard* shard);

  const Checkpoint& input_;
  const CompressOptions& options_;
  const std::vector<ResolvedTensor>& tensors_;  // in the order of the table
  std::vector<Draft> drafts_;
  std::set<std::string_view> used_;
  CompressPlan plan_;
};

// A pattern that matches nothing is a misspelt one, and would be found out days later.
Status Planner::check_patterns() const {
  const size_t n_include = options_.include.size();
  for (size_t i = 0; i < n_include + options_.exclude.size(); ++i) {
    const NamePattern& pattern =
        i < n_include ? options_.include[i] : options_.exclude[i - n_include];
    const bool is_used = std::any_of(tensors_.begin(), tensors_.end(), [&](const auto& tensor) {
      return is_linear(tensor.wanted) && pattern.matches(tensor.wanted.module);
    });
    if (!is_used) {
      return invalid_argument(options_.pattern_texts[i] + " matches no linear map of the model");
    }
  }
  return {};
}

Result<Conversion> Planner::conversion_of(const ResolvedTensor& tensor) const {
  const WantedTensor& wanted = tensor.wanted;
  const bool is_fp8 = tensor.format == StoredFormat::fp8_block128;
  if (tensor.format != StoredFormat::bf16 && !is_fp8) {
    return unsupported(
        refuse(*tensor.values, "is packed already: the input has to be BF16 or FP8").message);
  }
  if (!is_linear(wanted) || !is_selected(wanted)) {
    return is_fp8 && options_.format != TargetFormat::fp8 ? Conversion::to_bf16 : Conversion::copy;
  }
  if (!can_be(options_.format, wanted)) {
    return refuse(*tensor.values, "cannot be " + std::string(name(options_.format)));
  }
  const auto whole_groups = [&](int64_t group) -> Status {
    if (wanted.n_in % group == 0) return {};
    return refuse(*tensor.values,
                  format("%lld inputs are not whole groups of %lld",
                         static_cast<long long>(wanted.n_in), static_cast<long long>(group)));
  };
  switch (options_.format) {
    case TargetFormat::int4:
      TRY_OK(whole_groups(options_.group));
      return Conversion::to_int4;
    case TargetFormat::fp8:
      return is_fp8 ? Conversion::copy : Conversion::to_fp8;
    case TargetFormat::nvfp4:
      TRY_OK(whole_groups(kNvfp4Group));
      return Conversion::to_nvfp4;
  }
  CHECK(false);
  return Conversion::copy;
}

std::optional<ExpertInput> Planner::input_of(const ResolvedTensor& tensor) const {
  const WantedTensor& wanted = tensor.wanted;
  if (options_.method != Method::gptq || wanted.expert < 0) return std::nullopt;
  ExpertInput out{.layer = wanted.layer, .expert = wanted.expert};
  if (wanted.weight != Weight::expert_down) return out;
  // An expert's maps stand together in the table.
  for (const ResolvedTensor* other = &tensor; other != tensors_.data();) {
    --other;
    if (other->wanted.layer != wanted.layer || other->wanted.expert != wanted.expert) break;
    if (other->wanted.weight == Weight::expert_gate) out.gate = stored_matrix(*other);
    if (other->wanted.weight == Weight::expert_up) out.up = stored_matrix(*other);
  }
  CHECK(out.gate.values != nullptr && out.up.values != nullptr);
  return out;
}

void Planner::add_copy(const CheckpointTensor& tensor) {
  drafts_.push_back({.job = {.matrix = {.values = &tensor}}, .arrays = {tensor.entry}});
}

Status Planner::add(const ResolvedTensor& tensor) {
  const WantedTensor& wanted = tensor.wanted;
  const Conversion conversion = TRY(conversion_of(tensor));
  used_.insert(tensor.values->entry.name);
  if (tensor.scales != nullptr) used_.insert(tensor.scales->entry.name);
  const bool stays_fp8 =
      conversion == Conversion::copy && tensor.format == StoredFormat::fp8_block128;
  if (is_linear(wanted)) {
    const bool is_kept =
        !stays_fp8 && (conversion == Conversion::copy || conversion == Conversion::to_bf16);
    (is_kept ? plan_.kept : plan_.quantised).push_back(wanted.module);
  }
  if (conversion == Conversion::copy) {
    add_copy(*tensor.values);
    if (tensor.scales != nullptr) add_copy(*tensor.scales);
    return {};
  }
  drafts_.push_back({.job = {.conversion = conversion,
                             .matrix = stored_matrix(tensor),
                             .input = input_of(tensor)},
                     .arrays = arrays_of(wanted, conversion, options_.group)});
  return {};
}

// Arrays of wide elements first, so that each begins at a multiple of its element: readers that
// map the file need no copy.
void Planner::close_shard(OutputShard* shard) {
  std::vector<size_t> order(shard->arrays.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return size_of(shard->arrays[a].dtype) > size_of(shard->arrays[b].dtype);
  });
  std::vector<TensorEntry> sorted;
  std::vector<size_t> place(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(std::move(shard->arrays[order[i]]));
  }
  auto offset = static_cast<int64_t>(safetensors_header(sorted).size());
  for (TensorEntry& entry : sorted) {
    entry.offset = offset;
    offset += entry.bytes;
    plan_.bytes_out += entry.bytes;
  }
  for (CompressJob& job : shard->jobs) {
    plan_.bytes_in += job.bytes_in();
    for (size_t& array : job.arrays) array = place[array];
  }
  shard->arrays = std::move(sorted);
  shard->bytes = offset;
  plan_.shards.push_back(std::move(*shard));
  *shard = {};
}

void Planner::fill_shards() {
  // In the order in which the input's bytes lie, so that a disk reads forward.
  std::stable_sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) {
    const CheckpointTensor& x = *a.job.matrix.values;
    const CheckpointTensor& y = *b.job.matrix.values;
    return x.shard != y.shard ? x.shard < y.shard : x.entry.offset < y.entry.offset;
  });
  OutputShard shard;
  int64_t bytes = 0;
  for (Draft& draft : drafts_) {
    int64_t more = 0;
    for (const TensorEntry& array : draft.arrays) more += array.bytes;
    if (!shard.jobs.empty() && bytes + more > options_.shard_bytes) {
      close_shard(&shard);
      bytes = 0;
    }
    bytes += more;
    for (TensorEntry& array : draft.arrays) {
      draft.job.arrays.push_back(shard.arrays.size());
      shard.arrays.push_back(std::move(array));
    }
    shard.jobs.push_back(std::move(draft.job));
  }
  close_shard(&shard);
  const size_t n = plan_.shards.size();
  for (size_t i = 0; i < n; ++i) {
    plan_.shards[i].file_name = format("model-%05zu-of-%05zu.safetensors", i + 1, n);
  }
}

Result<CompressPlan> Planner::plan() {
  plan_.options = options_;
  TRY_OK(check_patterns());
  for (const ResolvedTensor& tensor : tensors_) TRY_OK(add(tensor));
  // What a text model leaves unread: the vision tower and the like.
  for (const CheckpointTensor& tensor : input_.tensors()) {
    if (!used_.contains(tensor.entry.name)) add_copy(tensor);
  }
  if (plan_.quantised.empty()) return invalid_argument("nothing is left to quantise");
  fill_shards();
  return std::move(plan_);
}

}  // namespace

Result<TargetFormat> parse_target_format(std::string_view text) {
  for (const TargetFormat format : {TargetFormat::int4, TargetFormat::fp8, TargetFormat::nvfp4}) {
    if (text == name(format)) return format;
  }
  return invalid_argument(
      format("format \"%s\": expected int4, fp8 or nvfp4", excerpt(text).c_str()));
}

std::string_view name(TargetFormat format) {
  switch (format) {
    case TargetFormat::int4:
      return "int4";
    case TargetFormat::fp8:
      return "fp8";
    case TargetFormat::nvfp4:
      return "nvfp4";
  }
  CHECK(false);
  return {};
}

Result<CompressPlan> plan_compression(const Checkpoint& input, const ModelShape& shape,
                                      const WeightSource& source, const CompressOptions& options) {
  const LayerScope scope = scope_of(input, shape, source.naming);
  const std::vector<ResolvedTensor> tensors = TRY(resolve_checkpoint(input, shape, source, scope));
  return Planner(input, options, tensors).plan();
}

Checkpoint planned_checkpoint(const CompressPlan& plan, const std::string& dir) {
  std::vector<TensorEntry> entries;
  for (const OutputShard& shard : plan.shards) {
    entries.insert(entries.end(), shard.arrays.begin(), shard.arrays.end());
  }
  return Checkpoint::without_data(dir, std::move(entries));
}

}  // namespace quire
