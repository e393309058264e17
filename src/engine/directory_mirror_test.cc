#include "engine/directory_mirror.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire {
namespace {

// What a backend would have, when steps are carried out in order and one now and then is lost.
class MirrorTest : public testing::Test {
 protected:
  static constexpr int32_t kPages = 40;

  void change(int32_t page) {
    directory_[static_cast<size_t>(page)].tag = ++tag_;
    const PageId changed{page};
    mirror_.note({&changed, 1});
  }
  void send(uint64_t step) {
    const auto changes = mirror_.begin_step(step);
    sent_.emplace_back(changes.begin(), changes.end());
  }
  void carry_out(uint64_t step, DirectoryMirror::Inputs inputs) {
    const std::vector<PageChange> changes = std::move(sent_.front());
    sent_.erase(sent_.begin());
    for (const PageChange& change : changes) {
      if (inputs == DirectoryMirror::Inputs::lost) continue;
      copy_[static_cast<size_t>(change.page)] = life_of(change);
    }
    mirror_.end_step(step, inputs);
  }
  bool is_equal() const {
    for (size_t p = 0; p < kPages; ++p) {
      if (copy_[p] != life_of(directory_[p])) return false;
    }
    return true;
  }

  DirectoryMirror mirror_{kPages};
  std::vector<PageEntry> directory_{kPages};
  std::vector<PageLife> copy_{kPages, PageLife{.tag = 999}};
  std::vector<std::vector<PageChange>> sent_;
  PageTag tag_ = 0;
};

TEST_F(MirrorTest, TheFirstStepBringsAllAndTheNextOnlyWhatChanged) {
  mirror_.watch(directory_);
  send(1);
  EXPECT_EQ(sent_.back().size(), size_t{kPages});
  carry_out(1, DirectoryMirror::Inputs::arrived);
  EXPECT_TRUE(is_equal());
  change(7);
  change(7);
  send(2);
  ASSERT_EQ(sent_.back().size(), 1U);
  EXPECT_EQ(sent_.back()[0].page, 7);
  carry_out(2, DirectoryMirror::Inputs::arrived);
  send(3);
  EXPECT_TRUE(sent_.back().empty());
  mirror_.watch(directory_);
  send(4);
  EXPECT_EQ(sent_.back().size(), size_t{kPages});
}

// Each change is brought until a step that brought it has been carried out, and not for ever.
TEST_F(MirrorTest, StepsInFlightBringAChangeTwice) {
  mirror_.watch(directory_);
  send(1);
  carry_out(1, DirectoryMirror::Inputs::arrived);
  change(3);
  send(2);
  change(4);
  send(3);
  EXPECT_EQ(sent_.back().size(), 2U);
  carry_out(2, DirectoryMirror::Inputs::arrived);
  send(4);
  EXPECT_EQ(sent_.back().size(), 1U);
  carry_out(3, DirectoryMirror::Inputs::arrived);
  send(5);
  EXPECT_TRUE(sent_.back().empty());
}

TEST_F(MirrorTest, AStepThatIsLostCostsTheNextOneNothing) {
  mirror_.watch(directory_);
  Rng rng(1);
  uint64_t sent = 0;
  uint64_t done = 0;
  for (int i = 0; i < 20'000; ++i) {
    for (uint64_t n = rng.next_below(4); n > 0; --n) {
      change(static_cast<int32_t>(rng.next_below(kPages)));
    }
    send(++sent);
    // As many as two are open.
    while (sent - done > rng.next_below(3)) {
      ++done;
      const bool is_lost = rng.next_below(5) == 0;
      const bool is_last = done == sent;
      carry_out(done, is_lost ? DirectoryMirror::Inputs::lost : DirectoryMirror::Inputs::arrived);
      if (is_last && !is_lost) {
        ASSERT_TRUE(is_equal()) << "step " << done;
      }
    }
  }
}

}  // namespace
}  // namespace quire
