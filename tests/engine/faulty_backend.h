// FaultyBackend: passes a step's ops on, and damages one step where a bug or a device would. Test
// code: no build that serves has it.
//
// A fault is planted once, in the first step after `arm` whose rows all decode, and concerns the
// row kVictimRow. It acts in the backend's memory, below everything that the engine and the
// executor look at.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "format/kv_page.h"
#include "ops/append_latent.h"
#include "ops/check_pages.h"
#include "ops/embed.h"
#include "ops/forwarding_backend.h"
#include "ops/open_step.h"
#include "ops/place_tokens.h"

namespace quire {

enum class DeviceFault : uint8_t {
  swapped_entries,      // two pages of the row change places in the table
  foreign_entry,        // an entry names a page of another row
  doubled_entry,        // an entry comes twice
  null_entry,           // an entry names the null page
  stale_tail,           // the entry behind the last names a page
  stale_tag,            // the row expects an earlier life of its page
  changed_mirror,       // the page has begun another life
  late_entry,           // an entry changes when the first check is over
  zombie_write,         // the row's token is placed in a page of another row
  foreign_place,        // its place becomes that of another row's token
  damaged_place,        // a word of its place changes
  misplaced_write,      // its place is another one of the right page
  lost_write,           // a store is not made
  overwritten_staging,  // the inputs change while they are copied
  no_first_check,       // the check before the step does not run
  no_second_check,      // the one after it
};

inline std::string_view name(DeviceFault fault) {
  constexpr std::string_view kNames[] = {
      "swapped_entries", "foreign_entry",       "doubled_entry",  "null_entry",
      "stale_tail",      "stale_tag",           "changed_mirror", "late_entry",
      "zombie_write",    "foreign_place",       "damaged_place",  "misplaced_write",
      "lost_write",      "overwritten_staging", "no_first_check", "no_second_check"};
  return kNames[static_cast<size_t>(fault)];
}

class FaultyBackend final : public ForwardingBackend {
 public:
  static constexpr int64_t kVictimRow = 1;

  explicit FaultyBackend(Backend& to) : ForwardingBackend(to) {}

  void arm(DeviceFault fault) {
    fault_ = fault;
    state_ = State::armed;
  }
  bool is_planted() const { return state_ == State::planted; }

  void open_step(const ops::OpenStep& args) override {
    const StepShape& shape = args.inputs.shape;
    const bool decodes = shape.n_tokens == shape.n_rows && shape.n_rows > kVictimRow + 1;
    if (state_ == State::armed && decodes) state_ = State::acting;
    if (acts(DeviceFault::overwritten_staging)) {
      change(&args.inputs.positions(kVictimRow), [](int32_t position) { return position - 1; });
    }
    inner().open_step(args);
  }

  void check_pages(const ops::CheckPages& args) override {
    const bool is_first = args.time == ops::CheckTime::before;
    if (is_first) damage_table(args);
    const bool is_left_out =
        acts(is_first ? DeviceFault::no_first_check : DeviceFault::no_second_check);
    if (!is_left_out) inner().check_pages(args);
    if (is_first && acts(DeviceFault::late_entry)) set_entry(args.inputs, 0, entry(args.inputs, 1));
    if (!is_first && state_ == State::acting) state_ = State::planted;
  }

  void place_tokens(const ops::PlaceTokens& args) override {
    if (acts(DeviceFault::zombie_write)) return place_elsewhere(args);
    inner().place_tokens(args);
    if (state_ != State::acting) return;
    TokenPlace* const place = &args.out(kVictimRow);  // a row has one token
    const auto next_slot = [](const TokenPlace& now) { return (now.slot + 1) % kPageTokens; };
    if (fault_ == DeviceFault::foreign_place) write(place, read(&args.out(kVictimRow + 1)));
    if (fault_ == DeviceFault::damaged_place) {
      change(place, [&](TokenPlace now) { return TokenPlace{now.page, next_slot(now), now.mark}; });
    }
    if (fault_ == DeviceFault::misplaced_write) {
      change(place, [&](TokenPlace now) { return place_of(kVictimRow, now.page, next_slot(now)); });
    }
  }

  void append_latent(const ops::AppendLatent& args) override {
    inner().append_latent(args);
    if (args.layer == 0 && acts(DeviceFault::lost_write)) take_back_store(args);
  }

 private:
  enum class State : uint8_t { idle, armed, acting, planted };

  bool acts(DeviceFault fault) const { return state_ == State::acting && fault_ == fault; }

  template <class T>
  T read(const T* at) {
    T value;
    copy_out(std::as_writable_bytes(std::span(&value, 1)), reinterpret_cast<const std::byte*>(at));
    return value;
  }
  template <class T>
  void write(T* at, const T& value) {
    copy_in(reinterpret_cast<std::byte*>(at), std::as_bytes(std::span(&value, 1)));
  }
  template <class T, class Change>
  void change(T* at, Change how) {
    write(at, how(read(at)));
  }

  int32_t entry(const StepInputs& in, int64_t place, int64_t row = kVictimRow) {
    return read(&in.table(row, place));
  }
  void set_entry(const StepInputs& in, int64_t place, int32_t page) {
    write(&in.table(kVictimRow, place), page);
  }

  void damage_table(const ops::CheckPages& args) {
    // Inputs that were refused name the null page alone.
    if (state_ != State::acting || fault_ == DeviceFault::overwritten_staging) return;
    const StepInputs& in = args.inputs;
    const int32_t first = entry(in, 0);
    const int32_t second = entry(in, 1);
    CHECK(second > 0);  // victims have two pages and more
    switch (fault_) {
      case DeviceFault::swapped_entries:
        set_entry(in, 0, second);
        set_entry(in, 1, first);
        return;
      case DeviceFault::foreign_entry:
        return set_entry(in, 0, entry(in, 0, kVictimRow + 1));
      case DeviceFault::doubled_entry:
        return set_entry(in, 1, first);
      case DeviceFault::null_entry:
        return set_entry(in, 0, 0);
      case DeviceFault::stale_tail: {
        int64_t end = 0;
        while (end < in.shape.table_width && entry(in, end) > 0) ++end;
        CHECK(end < in.shape.table_width);
        return set_entry(in, end, first);
      }
      case DeviceFault::stale_tag:
        return change(&in.tags(kVictimRow, 1), [](PageTag tag) { return tag - 1; });
      case DeviceFault::changed_mirror: {
        auto* const life = const_cast<PageLife*>(&args.lives(second));
        return change(life, [](PageLife now) { return PageLife{now.tag + 1, now.state}; });
      }
      case DeviceFault::late_entry:
      case DeviceFault::zombie_write:
      case DeviceFault::foreign_place:
      case DeviceFault::damaged_place:
      case DeviceFault::misplaced_write:
      case DeviceFault::lost_write:
      case DeviceFault::overwritten_staging:
      case DeviceFault::no_first_check:
      case DeviceFault::no_second_check:
        return;
    }
  }

  // The entry is another row's while the tokens are placed, and at no other time.
  void place_elsewhere(const ops::PlaceTokens& args) {
    const int32_t logical = read(&args.tokens.position(kVictimRow)) / kPageTokens;
    auto* const at = const_cast<int32_t*>(&args.kv.table(kVictimRow, logical));
    const int32_t right = read(at);
    write(at, read(&args.kv.table(kVictimRow + 1, 0)));
    inner().place_tokens(args);
    write(at, right);
  }

  void take_back_store(const ops::AppendLatent& args) {
    const KvPageLayout& layout = *args.kv.layout;
    const TokenPlace place = read(&args.places(kVictimRow));
    std::byte* const block =
        args.kv.pool + place.page * layout.page_bytes + layout.blocks[0].offset;
    fill(block + layout.row_offset(place.slot), layout.row_offset(1), std::byte{0xff});
  }

  DeviceFault fault_ = DeviceFault::swapped_entries;
  State state_ = State::idle;
};

}  // namespace quire
