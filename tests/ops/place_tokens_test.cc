// Where tokens are stored: by the table, whatever bits it and the tokens have, and only where a row
// may write.
#include "ops/place_tokens.h"

#include <gmock/gmock.h>

#include <limits>

#include "backends.h"
#include "cases.h"

namespace quire::ops_test {

namespace {

constexpr int32_t kPages = 40;

class PlaceTokensTest : public OpTest {
 protected:
  // Rows of three entries; a token is {row, position}.
  using Tokens = std::vector<std::pair<int32_t, int32_t>>;

  std::vector<TokenPlace> place(const std::vector<int32_t>& entries, const Tokens& tokens,
                                const WriteGuard& guard = {}) {
    HostArray<int32_t, 2> table(static_cast<int64_t>(entries.size()) / 3, int64_t{3});
    table.values = entries;
    HostArray<int32_t, 1> rows(static_cast<int64_t>(tokens.size()));
    HostArray<int32_t, 1> positions = rows;
    for (size_t t = 0; t < tokens.size(); ++t) {
      std::tie(rows.values[t], positions.values[t]) = tokens[t];
    }
    const DeviceArray<int32_t, 2> table_on(backend(), table);
    const DeviceArray<int32_t, 1> row(backend(), rows), position(backend(), positions);
    const PagedKv kv{.n_pages = kPages, .table = table_on.constant()};
    return places_on(backend(), kv, {.row = row.constant(), .position = position.constant()}, guard)
        .download(backend())
        .values;
  }
};

TEST_P(PlaceTokensTest, ATokenIsPlacedByItsRowsEntry) {
  Tokens tokens;
  std::vector<TokenPlace> expected;
  const std::vector<int32_t> table = {7, 0, 39, 5, -1, 6};
  for (int32_t position = 0; position < 192; position += 7) {
    for (int32_t row = 0; row < 2; ++row) {
      if (row == 1 && position / 64 == 1) continue;
      const int32_t page = table[static_cast<size_t>(3 * row + position / 64)];
      expected.push_back(place_of(static_cast<int64_t>(tokens.size()), page, position % 64));
      tokens.emplace_back(row, position);
    }
  }
  const std::vector<TokenPlace> found = place(table, tokens);
  EXPECT_EQ(found, expected);
  for (size_t t = 0; t < found.size(); ++t) {
    const auto token = static_cast<int64_t>(t);
    EXPECT_TRUE(is_stored(found[t], token));
    EXPECT_FALSE(is_stored(found[t], token + 1));
  }
}

TEST_P(PlaceTokensTest, WhatTheTableDoesNotHaveIsNoPlace) {
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::min();
  const Tokens tokens = {{0, 0},     {0, 64},     {0, 128},   {1, 0},   {1, 64},
                         {1, 128},   {0, 192},    {2, 0},     {-1, 0},  {0, -1},
                         {0, kMost}, {0, kLeast}, {kMost, 0}, {0, -64}, {kLeast, kLeast}};
  const std::vector<TokenPlace> found = place({-1, kPages, kMost, kLeast, -2, 9}, tokens);
  for (size_t t = 0; t < found.size(); ++t) {
    const auto token = static_cast<int64_t>(t);
    const bool is_there = tokens[t] == std::pair{1, 128};
    EXPECT_EQ(found[t], is_there ? place_of(token, 9, 0) : no_place(token)) << t;
    EXPECT_EQ(is_stored(found[t], token), is_there);
  }
}

// A guard counts what it leaves out, by row, also where there is no page to ask.
TEST_P(PlaceTokensTest, AGuardCountsWhatHasNoPlace) {
  HostArray<PageLife, 1> lives(int64_t{kPages});
  for (PageLife& life : lives.values) {
    life = {.tag = 3, .state = static_cast<uint64_t>(PageState::filling)};
  }
  lives.values[8].state = static_cast<uint64_t>(PageState::sealed);
  HostArray<PageTag, 2> tags(int64_t{2}, int64_t{3});
  tags.values = {3, 3, 3, 3, 4, 3};
  HostArray<PageCheck, 1> rows(int64_t{2});
  rows.values[1].dropped = 5;  // of an earlier call
  const DeviceArray<PageLife, 1> lives_on(backend(), lives);
  const DeviceArray<PageTag, 2> tags_on(backend(), tags);
  const DeviceArray<PageCheck, 1> rows_on(backend(), rows);
  const std::vector<TokenPlace> found = place(
      {7, 8, -1, 9, 10, kPages}, {{0, 3}, {0, 70}, {0, 130}, {1, 0}, {1, 64}, {1, 129}, {2, 0}},
      {.tags = tags_on.constant(), .lives = lives_on.constant(), .rows = rows_on.view()});
  EXPECT_THAT(found,
              testing::ElementsAre(place_of(0, 7, 3), no_place(1), no_place(2), place_of(3, 9, 0),
                                   no_place(4), no_place(5), no_place(6)));
  const std::vector<PageCheck> words = rows_on.download(backend()).values;
  EXPECT_EQ(words[0].dropped, 2);
  EXPECT_EQ(words[0].dropped_page, 8);
  EXPECT_EQ(words[1].dropped, 5 + 2);
  EXPECT_EQ(words[1].dropped_page, 10);
}

// No change of a place's words, and no other token's place, is taken for a place.
TEST(TokenPlaceTest, AMarkIsOfItsTokenPageAndSlotAlone) {
  const TokenPlace right = place_of(12, 345, 6);
  EXPECT_TRUE(is_stored(right, 12));
  for (int bit = 0; bit < 128; ++bit) {
    TokenPlace wrong = right;
    auto* const bytes = reinterpret_cast<unsigned char*>(&wrong);
    bytes[bit / 8] ^= static_cast<unsigned char>(1U << (bit % 8));
    EXPECT_FALSE(is_stored(wrong, 12)) << bit;
  }
  for (int64_t token = 0; token < 4096; ++token) {
    EXPECT_EQ(is_stored(right, token), token == 12);
    EXPECT_FALSE(is_stored(TokenPlace{0, 0, 0}, token));
    EXPECT_FALSE(is_stored(no_place(token), token));
  }
}

QUIRE_ON_EVERY_BACKEND(PlaceTokensTest);

}  // namespace

}  // namespace quire::ops_test
