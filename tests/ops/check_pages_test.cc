// check_pages, and the mirror that open_step keeps for it: rows of every kind against a directory,
// what is found of each, and that a row with a wrong entry reads and writes nobody's pages.
#include "ops/check_pages.h"

#include <limits>
#include <optional>

#include "backends.h"
#include "base/rng.h"
#include "cases.h"
#include "ops/open_step.h"

namespace quire::ops_test {

namespace {

constexpr int32_t kPages = 4000;
constexpr uint64_t kStep = 77;

// The inputs of a step and a directory, whose entries are all right until a test changes them.
class CheckPagesTest : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    lives_ = HostArray<PageLife, 1>(int64_t{kPages});
    for (int64_t p = 0; p < kPages; ++p) {
      lives_.values[static_cast<size_t>(p)] = {.tag = tag_of(p), .state = state_of(p)};
    }
    // The null page is nobody's.
    lives_.values[0] = {.tag = kNoTag, .state = static_cast<uint64_t>(PageState::quarantined)};
  }

  static PageTag tag_of(int64_t page) { return mix64(static_cast<uint64_t>(page)) | 1; }
  static uint64_t state_of(int64_t page) {
    constexpr PageState kCurrent[] = {PageState::reserved, PageState::filling, PageState::sealed};
    return static_cast<uint64_t>(kCurrent[page % 3]);
  }

  // Row r has as many pages as it says, all right; its other entries name no page.
  void fill(const std::vector<int32_t>& pages_of_rows, int64_t width) {
    n_pages_ = pages_of_rows;
    shape_ = {.n_rows = static_cast<int64_t>(pages_of_rows.size()),
              .n_tokens = static_cast<int64_t>(pages_of_rows.size()),
              .n_logits = 0,
              .table_width = width,
              .tag_width = width};
    bytes_.assign(static_cast<size_t>(step_inputs_bytes(shape_)), std::byte{0xff});
    const StepInputs in = inputs();
    Rng rng(5);
    for (int64_t r = 0; r < shape_.n_rows; ++r) {
      in.nonces(r) = mix64(static_cast<uint64_t>(r) + 1000);
      for (int64_t k = 0; k < width; ++k) {
        const bool is_used = k < n_pages_[static_cast<size_t>(r)];
        const auto page = static_cast<int32_t>(1 + rng.next_below(kPages - 1));
        in.table(r, k) = is_used ? page : -1;
        in.tags(r, k) = is_used ? tag_of(page) : kNoTag;
      }
    }
  }

  StepInputs inputs() { return step_inputs_in(bytes_, shape_); }

  // Checks what stands there, once or twice, and takes back what it left.
  std::vector<PageCheck> check(const std::vector<ops::CheckTime>& times) {
    HostArray<std::byte, 1> host(static_cast<int64_t>(bytes_.size()));
    host.values = bytes_;
    HostArray<uint64_t, 1> step(int64_t{1});
    step.values[0] = kStep;
    const DeviceArray<std::byte, 1> there(backend(), host);
    const DeviceArray<PageLife, 1> lives(backend(), lives_);
    const DeviceArray<uint64_t, 1> count(backend(), step);
    const auto out = DeviceArray<PageCheck, 1>::poisoned(backend(), {shape_.n_rows});
    const DeviceArray<TokenPlace, 1> places(backend(), places_);
    for (const ops::CheckTime time : times) {
      ops::check_pages(backend(),
                       {.out = out.view(),
                        .inputs = step_inputs_in({there.view().data, bytes_.size()}, shape_),
                        .lives = lives.constant(),
                        .step = count.constant(),
                        .places = places.constant(),
                        .time = time});
    }
    bytes_ = there.download(backend()).values;
    EXPECT_TRUE(same_bits(lives.download(backend()), lives_));
    return out.download(backend()).values;
  }

  std::vector<PageCheck> check_before() { return check({ops::CheckTime::before}); }

  std::vector<int32_t> n_pages_;
  StepShape shape_;
  std::vector<std::byte> bytes_;
  HostArray<PageLife, 1> lives_;
  HostArray<TokenPlace, 1> places_{int64_t{0}};  // of all tokens, or of none
};

TEST_P(CheckPagesTest, RightRowsAreCountedAndLeftAlone) {
  for (const int64_t width : {1, 31, 513, 2500}) {
    const auto n = static_cast<int32_t>(width);
    fill({n, 1, n / 2, 0, n}, width);
    const std::vector<std::byte> before = bytes_;
    const std::vector<PageCheck> found = check({ops::CheckTime::before, ops::CheckTime::after});
    EXPECT_EQ(bytes_, before);
    for (size_t r = 0; r < found.size(); ++r) {
      EXPECT_EQ(found[r].step, kStep);
      EXPECT_EQ(found[r].nonce, inputs().nonces(static_cast<int64_t>(r)));
      EXPECT_EQ(found[r].compared, 2 * n_pages_[r]);
      EXPECT_EQ(found[r].failed, 0);
      EXPECT_EQ(found[r].first, -1);
      EXPECT_EQ(found[r].dropped, 0);
      EXPECT_EQ(found[r].dropped_page, -1);
    }
  }
}

// Each way in which an entry can be wrong, in a row between others.
TEST_P(CheckPagesTest, AWrongEntryIsFoundAndItsRowMadeHarmless) {
  constexpr int64_t kWidth = 700;
  constexpr int64_t kPlace = 613;
  const auto life = [this](int64_t page) -> PageLife& {
    return lives_.values[static_cast<size_t>(page)];
  };
  const std::vector<std::pair<std::string, std::function<void(const StepInputs&)>>> wrongs = {
      {"a page of another row", [](const StepInputs& in) { in.table(1, kPlace) = in.table(2, 3); }},
      {"a page twice", [](const StepInputs& in) { in.table(1, kPlace) = in.table(1, 3); }},
      {"the null page", [](const StepInputs& in) { in.table(1, kPlace) = 0; }},
      {"no page", [](const StepInputs& in) { in.table(1, kPlace) = -1; }},
      {"a page past the pool", [](const StepInputs& in) { in.table(1, kPlace) = kPages; }},
      {"a page below the pool", [](const StepInputs& in) { in.table(1, kPlace) = -7; }},
      {"a tag of another life", [](const StepInputs& in) { in.tags(1, kPlace) += 1; }},
      {"a page where the row has none", [](const StepInputs& in) { in.table(1, kWidth - 1) = 9; }},
      {"a tag that was lost", [](const StepInputs& in) { in.tags(1, kPlace) = kNoTag; }},
      {"a page that began another life",
       [&](const StepInputs& in) { life(in.table(1, kPlace)).tag += 2; }},
      {"a free page",
       [&](const StepInputs& in) {
         life(in.table(1, kPlace)).state = static_cast<uint64_t>(PageState::free);
       }},
      {"a page that drains",
       [&](const StepInputs& in) {
         life(in.table(1, kPlace)).state = static_cast<uint64_t>(PageState::draining);
       }},
      {"a page in quarantine",
       [&](const StepInputs& in) {
         life(in.table(1, kPlace)).state = static_cast<uint64_t>(PageState::quarantined);
       }},
  };
  const HostArray<PageLife, 1> good_lives = lives_;
  for (const auto& [what, make_wrong] : wrongs) {
    SCOPED_TRACE(what);
    lives_ = good_lives;
    fill({5, 650, 650}, kWidth);
    const std::vector<std::byte> good = bytes_;
    make_wrong(inputs());
    const int64_t place = what == "a page where the row has none" ? kWidth - 1 : kPlace;
    const int32_t page = inputs().table(1, place);
    const bool is_inside = page > 0 && page < kPages;
    const std::vector<PageCheck> found = check_before();
    // A page whose life has changed may be another row's, too.
    EXPECT_EQ(found[1].first, place);
    EXPECT_EQ(found[1].page, page);
    EXPECT_GE(found[1].failed, 1);
    EXPECT_EQ(found[1].found_tag, is_inside ? life(page).tag : kNoTag);
    EXPECT_EQ(found[1].compared, what == "a tag that was lost" ? 649 : 650);
    const StepInputs left = inputs();
    for (int64_t k = 0; k < kWidth; ++k) ASSERT_EQ(left.table(1, k), 0);
    const StepInputs expected =
        step_inputs_in({const_cast<std::byte*>(good.data()), good.size()}, shape_);
    for (const int64_t row : {0, 2}) {
      if (found[static_cast<size_t>(row)].failed > 0) continue;
      for (int64_t k = 0; k < kWidth; ++k) ASSERT_EQ(left.table(row, k), expected.table(row, k));
    }
  }
}

TEST_P(CheckPagesTest, ARowThatFailedKeepsFailingAndWhatWasFoundFirstStays) {
  fill({40, 40}, 64);
  inputs().table(1, 7) = 0;
  const std::vector<PageCheck> found = check({ops::CheckTime::before, ops::CheckTime::after});
  EXPECT_EQ(found[0].failed, 0);
  EXPECT_EQ(found[1].first, 7);
  EXPECT_EQ(found[1].page, 0);
  EXPECT_EQ(found[1].failed, 1 + 40);  // then all of it names the null page
  EXPECT_EQ(found[1].compared, 80);
}

TEST_P(CheckPagesTest, TheSecondPassAloneSaysWhatItFindsAndChangesNothing) {
  fill({40, 40}, 64);
  const std::vector<std::byte> good = bytes_;
  HostArray<std::byte, 1> host(static_cast<int64_t>(bytes_.size()));
  inputs().table(1, 9) = -1;
  const std::vector<std::byte> wrong = bytes_;
  const std::vector<PageCheck> found = check({ops::CheckTime::after});
  EXPECT_EQ(bytes_, wrong);
  // On top of poison: only what was added can be said.
  EXPECT_EQ(found[0].compared, -1 + 40);
  EXPECT_EQ(found[1].failed, -1 + 1);
}

// Rows of 1, 1,500 and 3 tokens, some of whose places are not what the table says.
TEST_P(CheckPagesTest, APlaceThatIsNotByTheTableIsAStoreThatWasNotMade) {
  const std::vector<int32_t> n_tokens = {1, 1500, 3};
  fill({2, 24, 3}, 24);
  std::vector<std::byte> narrow = bytes_;
  const StepInputs from = step_inputs_in(narrow, shape_);
  shape_.n_tokens = 1504;
  bytes_.assign(static_cast<size_t>(step_inputs_bytes(shape_)), std::byte{0});
  const StepInputs in = inputs();
  std::copy_n(from.nonces.data, 3, in.nonces.data);
  std::copy_n(from.table.data, in.table.size(), in.table.data);
  std::copy_n(from.tags.data, in.tags.size(), in.tags.data);
  places_ = HostArray<TokenPlace, 1>(shape_.n_tokens);
  int32_t token = 0;
  for (int32_t r = 0; r < 3; ++r) {
    in.row_begin(r) = token;
    for (int32_t position = 60; position < 60 + n_tokens[static_cast<size_t>(r)]; ++position) {
      in.rows(token) = r;
      in.positions(token) = position;
      places_.values[static_cast<size_t>(token)] =
          place_by_table(in.table, kPages, token, r, position);
      ++token;
    }
  }
  in.row_begin(3) = token;
  const auto both = {ops::CheckTime::before, ops::CheckTime::after};
  for (const PageCheck& row : check(both)) {
    EXPECT_EQ(row.failed, 0);
    EXPECT_EQ(row.dropped, 0);
    EXPECT_EQ(row.dropped_page, -1);
  }
  const auto place = [&](size_t t) -> TokenPlace& { return places_.values[t]; };
  place(1) = no_place(1);
  place(700).slot ^= 1;
  place(1500) = place_of(1500, place(1500).page + 1, place(1500).slot);
  place(1502) = place(1503);
  const std::vector<PageCheck> found = check(both);
  EXPECT_EQ(found[0].dropped, 0);
  EXPECT_EQ(found[1].dropped, 3);
  int32_t largest = 0;
  for (const int32_t position : {60, 759, 1559}) {
    largest = std::max(largest, inputs().table(1, position / kPageTokens));
  }
  EXPECT_EQ(found[1].dropped_page, largest);
  EXPECT_EQ(found[2].dropped, 1);
  for (const PageCheck& row : found) EXPECT_EQ(row.failed, 0);
  // Row_begin and positions of any bits: only their own row is said to be wrong.
  inputs().row_begin(3) = std::numeric_limits<int32_t>::max();
  inputs().positions(1503) = -5;
  inputs().positions(1502) = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(check(both)[2].dropped, 2);
}

TEST_P(CheckPagesTest, PaddingMayNameTheNullPageAlone) {
  fill({3, 0, 0}, 16);
  const StepInputs in = inputs();
  for (int64_t k = 0; k < 16; ++k) in.table(1, k) = in.table(2, k) = 0;
  in.table(2, 4) = 12;
  const std::vector<PageCheck> found = check_before();
  EXPECT_EQ(found[1].failed, 0);
  EXPECT_EQ(found[1].compared, 0);
  EXPECT_EQ(found[2].failed, 1);
  EXPECT_EQ(found[2].first, 4);
}

QUIRE_ON_EVERY_BACKEND(CheckPagesTest);

// The mirror of the directory that open_step keeps.
class MirrorTest : public OpTest {
 protected:
  struct Opened {
    ops::StepOpening opening;
    std::vector<PageLife> lives;
  };

  Opened open(const std::vector<PageChange>& changes, uint64_t step, bool is_damaged) {
    const StepShape shape{
        .n_rows = 1, .n_tokens = 1, .n_logits = 0, .table_width = 2, .tag_width = 2};
    const auto n_extra = static_cast<int64_t>(changes.size()) * kPageChangeWords + 3;
    HostArray<std::byte, 1> host(step_inputs_bytes(shape) + 4 * n_extra);
    const StepInputs in = step_inputs_in(host.values, shape);
    in.changes(0) = {.begin = 3, .end = static_cast<int32_t>(n_extra)};
    if (!changes.empty()) {  // a vector without elements may have no data
      std::memcpy(&in.extra(3), changes.data(), changes.size() * sizeof(PageChange));
    }
    close_step_inputs(in, step, 1, n_extra);
    if (is_damaged) in.ids(0) ^= 4;
    const DeviceArray<std::byte, 1> there(backend(), host);
    const HostArray<int32_t, 2> recent(int64_t{4}, int64_t{1});
    const DeviceArray<int32_t, 2> kept(backend(), recent);
    HostArray<uint64_t, 1> state(int64_t{ops::kStepStateWords});
    state.values[0] = step - 1;
    const DeviceArray<uint64_t, 1> counter(backend(), state);
    const DeviceArray<PageLife, 1> lives(backend(), lives_);
    const auto out = DeviceArray<ops::StepOpening, 1>::poisoned(backend(), {1});
    ops::open_step(backend(),
                   {.out = out.view(),
                    .state = counter.view(),
                    .inputs = step_inputs_in({there.view().data, host.values.size()}, shape),
                    .recent = kept.constant(),
                    .lives = lives.view()});
    return {out.download(backend()).values[0], lives.download(backend()).values};
  }

  HostArray<PageLife, 1> lives_{int64_t{kPages}};
};

TEST_P(MirrorTest, LearnsWhatAStepBringsAndNothingFromOneThatIsRefused) {
  std::vector<PageChange> changes;
  std::vector<PageLife> expected = lives_.values;
  for (int32_t page = 2; page < kPages; page += 3) {
    const PageEntry entry{.tag = mix64(static_cast<uint64_t>(page)), .state = PageState::sealed};
    changes.push_back(change_of(page, entry));
    expected[static_cast<size_t>(page)] = life_of(entry);
  }
  const Opened refused = open(changes, 9, true);
  EXPECT_EQ(refused.opening.is_good, 0U);
  EXPECT_EQ(refused.lives, lives_.values);
  const Opened opened = open(changes, 9, false);
  EXPECT_EQ(opened.opening.is_good, 1U);
  EXPECT_EQ(opened.lives, expected);
  EXPECT_EQ(open({}, 9, false).lives, lives_.values);
}

TEST_P(MirrorTest, IgnoresPagesThatThePoolDoesNotHave) {
  const PageEntry entry{.tag = 5, .state = PageState::filling};
  const Opened opened = open({change_of(kPages, entry), change_of(-1, entry)}, 1, false);
  EXPECT_EQ(opened.opening.is_good, 1U);
  EXPECT_EQ(opened.lives, lives_.values);
}

QUIRE_ON_EVERY_BACKEND(MirrorTest);

}  // namespace

}  // namespace quire::ops_test
