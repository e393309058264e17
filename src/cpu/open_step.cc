#include <algorithm>

#include "cpu/kernels.h"

namespace quire::cpu {

namespace {

bool is_genuine(const StepInputs& in, uint64_t step) {
  const SlotHeader& header = in.header(0);
  const int64_t held = in.fixed_words() + in.extra[0];
  if (header.n_words < kSlotHeaderWords || header.n_words > held) return false;
  const auto* words = reinterpret_cast<const uint32_t*>(in.header.data);
  uint64_t hash = 0;
  for (uint32_t i = kSlotHeaderWords; i < header.n_words; ++i) hash += slot_word_hash(i, words[i]);
  uint64_t nonce_sum = 0;
  for (int64_t r = 0; r < in.nonces[0]; ++r) nonce_sum += in.nonces(r);
  return hash == header.hash && nonce_sum == header.nonce_sum && step == header.step &&
         int64_t{header.n_rows} <= in.nonces[0];
}

// Step 4 of the contract.
void make_harmless(const StepInputs& in) {
  std::fill_n(in.samplers.data, in.samplers.size(), SamplerRow{});
  std::fill_n(in.ids.data, in.ids.size(), 0);
  std::fill_n(in.positions.data, in.positions.size(), 0);
  std::fill_n(in.logit_rows.data, in.logit_rows.size(), 0);
  std::fill_n(in.table.data, in.table.size(), 0);
  const int64_t last = in.shape.n_rows - 1;
  for (int64_t t = 0; t < in.rows[0]; ++t) in.rows(t) = static_cast<int32_t>(std::min(t, last));
  for (int64_t r = 0; r <= last; ++r) in.row_begin(r) = static_cast<int32_t>(r);
  in.row_begin(last + 1) = static_cast<int32_t>(in.shape.n_tokens);
}

// Step 5. Slices of inputs that match are within them; pages are looked at all the same.
void update_mirror(const StepInputs& in, const View<PageLife, 1>& lives) {
  const WordSlice changes = in.changes(0);
  for (int64_t at = changes.begin; at + kPageChangeWords <= changes.end; at += kPageChangeWords) {
    const PageChange change = change_in(&in.extra(at));
    if (change.page >= 0 && change.page < lives[0]) lives(change.page) = life_of(change);
  }
}

}  // namespace

void open_step(const ops::OpenStep& args) {
  const StepInputs& in = args.inputs;
  const uint64_t step = ++args.state(0);
  const bool is_good = is_genuine(in, step);
  args.out(0) = {.step = step, .is_good = is_good ? uint64_t{1} : uint64_t{0}};
  if (!is_good) return make_harmless(in);
  if (args.lives[0] > 0) update_mirror(in, args.lives);
  for (int64_t t = 0; t < in.ids[0]; ++t) {
    int32_t& id = in.ids(t);
    if (id >= 0) continue;
    const int64_t place = recent_place(id);
    id = place < args.recent.size() ? std::max(args.recent.data[place], 0) : 0;
  }
}

}  // namespace quire::cpu
