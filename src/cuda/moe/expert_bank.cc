#include "cuda/moe/expert_bank.h"

#include <vector>

#include "base/bytes.h"
#include "cuda/common/cuda_must.h"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

std::array<const WeightMatrix*, 3> parts_of(const ops::ExpertWeights& expert) {
  return {&expert.gate, &expert.up, &expert.down};
}

// Rows of a part of a matrix: what is copied as it stands.
struct Rows {
  const void* data;
  int64_t n_rows, row_bytes, stride_bytes;
};

template <class T>
Rows rows_of(const View<const T, 2>& view) {
  const auto size = static_cast<int64_t>(sizeof(T));
  return {view.data, view[0], view[1] * size, view.stride[0] * size};
}

std::array<Rows, 2> arrays_of(const WeightMatrix& weight) {
  switch (weight.format) {
    case WeightFormat::bf16:
      return {rows_of(weight.bf16), Rows{}};
    case WeightFormat::fp8_block128:
      return {rows_of(weight.fp8), rows_of(weight.fp8_scale)};
    case WeightFormat::int4_group:
      return {rows_of(weight.int4), rows_of(weight.int4_scale)};
  }
  CHECK(false);
  return {};
}

int64_t bytes_of(const Rows& rows) {
  return round_up(rows.n_rows * rows.row_bytes, kBufferAlignment);
}
int64_t bytes_of(const ops::ExpertWeights& expert) {
  int64_t bytes = 0;
  for (const WeightMatrix* part : parts_of(expert)) {
    for (const Rows& rows : arrays_of(*part)) bytes += bytes_of(rows);
  }
  return bytes;
}

// Copies a matrix to `*to`, which moves on, and says where it is now.
WeightRef copy(const Context& context, const WeightMatrix& weight, std::byte** to) {
  WeightRef ref = ref_of(weight);
  const std::array<Rows, 2> arrays = arrays_of(weight);
  ref.values = *to;
  ref.value_stride = arrays[0].row_bytes;
  ref.scales = *to + bytes_of(arrays[0]);
  if (weight.format == WeightFormat::fp8_block128) ref.scale_stride = weight.fp8_scale[1];
  if (weight.format == WeightFormat::int4_group) ref.scale_stride = weight.int4_scale[1];
  for (const Rows& rows : arrays) {
    if (rows.n_rows == 0) continue;
    const auto width = static_cast<size_t>(rows.row_bytes);
    CUDA_MUST(cudaMemcpy2DAsync(*to, width, rows.data, static_cast<size_t>(rows.stride_bytes),
                                width, static_cast<size_t>(rows.n_rows), cudaMemcpyDeviceToDevice,
                                context.stream));
    *to += bytes_of(rows);
  }
  return ref;
}

}  // namespace

Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const Context& context, DeviceMemory* memory,
                                                      const ops::ExpertTable& table) {
  constexpr size_t kParts = DeviceExpertBank::kParts;
  const auto n_experts = static_cast<int64_t>(table.routed.size());
  int64_t bytes = static_cast<int64_t>(kParts) * Workspace::bytes_of<WeightRef>(n_experts) +
                  n_experts * bytes_of(table.routed.front());
  if (table.shared) bytes += bytes_of(*table.shared);
  std::byte* data = memory->allocate(bytes);
  if (data == nullptr) return resource_exhausted("no memory on cuda for a layer of experts");
  auto bank = std::make_unique<DeviceExpertBank>(ops::shape_of(table), Buffer(memory, data, bytes));
  std::array<std::vector<WeightRef>, kParts> refs;
  for (WeightRef*& part : bank->tables) {
    part = reinterpret_cast<WeightRef*>(data);
    data += Workspace::bytes_of<WeightRef>(n_experts);
  }
  const auto place = [&](const WeightMatrix& part) {
    const WeightRef ref = copy(context, part, &data);
    bank->is_aligned = bank->is_aligned && ref.value_stride % 16 == 0;
    return ref;
  };
  for (const ops::ExpertWeights& expert : table.routed) {
    for (size_t i = 0; i < kParts; ++i) refs[i].push_back(place(*parts_of(expert)[i]));
  }
  for (size_t i = 0; table.shared && i < kParts; ++i) {
    bank->shared[i] = place(*parts_of(*table.shared)[i]);
  }
  for (size_t i = 0; i < kParts; ++i) {
    context.staging->send(reinterpret_cast<std::byte*>(bank->tables[i]),
                          std::as_bytes(std::span(refs[i])));
  }
  return std::unique_ptr<ops::ExpertBank>(std::move(bank));
}

}  // namespace quire::cuda
