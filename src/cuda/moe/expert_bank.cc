#include "cuda/moe/expert_bank.h"

#include <vector>

#include "base/bytes.h"
#include "base/text.h"
#include "cuda/kernels.h"

namespace quire::cuda {

namespace {

RawMatrix raw(const WeightMatrix& weight) {
  switch (weight.format) {
    case WeightFormat::bf16:
      return {weight.bf16.data, nullptr, weight.bf16.stride[0] * 2, 0};
    case WeightFormat::fp8_block128:
      return {weight.fp8.data, weight.fp8_scale.data, weight.fp8.stride[0],
              weight.fp8_scale.stride[0]};
    case WeightFormat::int4_group:
      return {weight.int4.data, weight.int4_scale.data, weight.int4.stride[0],
              weight.int4_scale.stride[0]};
  }
  CHECK(false);
  return {};
}

// Where `n_experts` matrices of this many tiles lie, from `offset` of the bank's memory on.
PackedMatrix matrix_at(int64_t n_experts, WeightFormat format, int64_t n_tiles, int64_t n_in,
                       int64_t* offset) {
  PackedMatrix m{.data = nullptr,
                 .n_experts = n_experts,
                 .expert_bytes = 0,
                 .format = format,
                 .step_bytes = step_bytes(format),
                 .step_inputs = step_inputs(format),
                 .n_groups = static_cast<int>(round_up(div_up(n_tiles, kGroupTiles), kWholeGroups)),
                 .n_steps = static_cast<int>(round_up(n_in, kWholeInputs) / step_inputs(format))};
  m.expert_bytes = int64_t{m.n_groups} * m.n_steps * kGroupTiles * step_bytes(format);
  // An offset until there is memory.
  m.data = reinterpret_cast<const std::byte*>(*offset);
  *offset += round_up(n_experts * m.expert_bytes, kBufferAlignment);
  return m;
}

PackedExperts experts_at(int64_t n_experts, const ops::ExpertWeights& like, int64_t* offset) {
  const WeightMatrix& gate = like.gate;
  PackedExperts out;
  out.gate_up =
      matrix_at(n_experts, gate.format, div_up(gate.n_out, kTileRows / 2), gate.n_in, offset);
  out.down = matrix_at(n_experts, gate.format, div_up(gate.n_in, kTileRows), gate.n_out, offset);
  return out;
}

void move_to(const std::byte* memory, PackedExperts* experts) {
  for (PackedMatrix* m : {&experts->gate_up, &experts->down}) {
    m->data = memory + reinterpret_cast<intptr_t>(m->data);
  }
}

void pack(const Context& context, std::span<const ops::ExpertWeights> from,
          const PackedExperts& to) {
  const WeightMatrix& like = from.front().gate;
  std::vector<RawMatrix> gates_and_ups;
  std::vector<RawMatrix> downs;
  for (const ops::ExpertWeights& expert : from) {
    gates_and_ups.push_back(raw(expert.gate));
    gates_and_ups.push_back(raw(expert.up));
    downs.push_back(raw(expert.down));
  }
  const auto n = static_cast<int64_t>(from.size());
  Workspace& workspace = *context.workspace;
  workspace.begin(Workspace::bytes_of<RawMatrix>(2 * n) + Workspace::bytes_of<RawMatrix>(n));
  const auto send = [&](const std::vector<RawMatrix>& sources) {
    auto* on_device = workspace.take<RawMatrix>(static_cast<int64_t>(sources.size()));
    context.staging->send(reinterpret_cast<std::byte*>(on_device),
                          std::as_bytes(std::span(sources)));
    return on_device;
  };
  pack_matrices(context, {.to = to.gate_up,
                          .sources = send(gates_and_ups),
                          .n_sources = 2,
                          .scale_inputs = like.group,
                          .n_out = like.n_out,
                          .n_in = like.n_in});
  pack_matrices(context, {.to = to.down,
                          .sources = send(downs),
                          .n_sources = 1,
                          .scale_inputs = like.group,
                          .n_out = like.n_in,
                          .n_in = like.n_out});
}

}  // namespace

Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const Context& context, DeviceMemory* memory,
                                                      const ops::ExpertTable& table) {
  int64_t bytes = 0;
  PackedExperts routed =
      experts_at(static_cast<int64_t>(table.routed.size()), table.routed.front(), &bytes);
  PackedExperts shared{};
  if (table.shared) shared = experts_at(1, *table.shared, &bytes);
  std::byte* data = memory->allocate(bytes);
  if (data == nullptr) {
    return resource_exhausted(
        format("no memory on cuda for a layer of experts: %s asked", human_bytes(bytes).c_str()));
  }
  move_to(data, &routed);
  pack(context, table.routed, routed);
  if (table.shared) {
    move_to(data, &shared);
    pack(context, std::span(&*table.shared, 1), shared);
  }
  return std::unique_ptr<ops::ExpertBank>(std::make_unique<DeviceExpertBank>(
      ops::shape_of(table), Buffer(memory, data, bytes), routed, shared));
}

}  // namespace quire::cuda
