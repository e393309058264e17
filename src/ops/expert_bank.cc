#include "ops/expert_bank.h"

namespace quire::ops {

namespace {

void check_expert(const ExpertWeights& expert, const ExpertWeights& like) {
  const WeightMatrix& first = like.gate;
  CHECK(is_well_formed(expert.gate) && is_well_formed(expert.up) && is_well_formed(expert.down));
  for (const WeightMatrix* part : {&expert.gate, &expert.up, &expert.down}) {
    CHECK(part->format == first.format && part->group == first.group);
  }
  for (const WeightMatrix* part : {&expert.gate, &expert.up}) {
    CHECK(part->n_out == first.n_out && part->n_in == first.n_in);
  }
  CHECK(expert.down.n_in == first.n_out && expert.down.n_out == first.n_in);
}

}  // namespace

ExpertShape shape_of(const ExpertTable& table) {
  const WeightMatrix& gate = table.routed.front().gate;
  ExpertShape shape{.hidden = gate.n_in,
                    .n_experts = static_cast<int64_t>(table.routed.size()),
                    .inner = gate.n_out,
                    .format = gate.format,
                    .group = gate.group};
  if (table.shared) {
    shape.shared_inner = table.shared->gate.n_out;
    shape.shared_format = table.shared->gate.format;
    shape.shared_group = table.shared->gate.group;
  }
  return shape;
}

Result<std::unique_ptr<ExpertBank>> pack_experts(Backend& backend, const ExpertTable& table) {
  CHECK(!table.routed.empty());
  for (const ExpertWeights& expert : table.routed) check_expert(expert, table.routed.front());
  if (table.shared) {
    check_expert(*table.shared, *table.shared);
    CHECK(table.shared->gate.n_in == table.routed.front().gate.n_in);
  }
  return backend.pack_experts(table);
}

}  // namespace quire::ops
