// ModelExecutor by itself: what it refuses, what it checks, and its page operations.
#include "engine/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/check_pages.h"
#include "ops/forwarding_backend.h"
#include "ops/open_step.h"
#include "ops/place_tokens.h"
#include "tests/engine/tiny_model.h"

namespace quire {
namespace {

using testing::HasSubstr;

// Counts what the ops of a step are asked to do for the checks.
class CheckCount final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void open_step(const ops::OpenStep& args) override {
    mirrors += args.lives[0] > 0 ? 1 : 0;
    tagged += args.inputs.shape.tag_width > 0 ? 1 : 0;
    ForwardingBackend::open_step(args);
  }
  void check_pages(const ops::CheckPages& args) override {
    ++comparisons;
    ForwardingBackend::check_pages(args);
  }
  void place_tokens(const ops::PlaceTokens& args) override {
    guards += args.guard.tags.data != nullptr ? 1 : 0;
    ForwardingBackend::place_tokens(args);
  }

  int mirrors = 0;      // steps that bring one up to date
  int tagged = 0;       // steps whose inputs have tags
  int comparisons = 0;  // launches of them
  int guards = 0;       // steps that store under one
};

class RunnerTest : public testing::Test {
 protected:
  void SetUp() override {
    config_.vocab_size = static_cast<int32_t>(tiny_model_.config.shape.vocab_size);
    tiny_ = make_tiny_executor(tiny_model_, config_);
    directory_.resize(static_cast<size_t>(config_.n_pages));
    for (size_t p = 1; p < directory_.size(); ++p) {
      directory_[p].tag = 100 + p;
      directory_[p].state = PageState::filling;
    }
    tiny_.executor->watch_directory(directory_, StepChecks::pages);
  }

  static TaggedPage page(int32_t p) {
    return {.page = PageId{p}, .tag = 100 + static_cast<PageTag>(p)};
  }
  static StepRow row_of(uint64_t request, const std::vector<Token>& tokens, TaggedPage held) {
    StepRow row{
        .request = RequestId{request}, .nonce = request * 1000, .n_logits = 1, .pages = {held}};
    for (const Token token : tokens) row.tokens.push_back({.literal = token});
    row.sampler.settings.temperature = 0;
    return row;
  }
  StepPlan next_plan(std::vector<StepRow> rows) {
    return {.step = ++step_, .rows = std::move(rows)};
  }
  StepResult run(const StepPlan& plan) {
    const Result<TicketId> ticket = tiny_.executor->submit(plan, make_header(plan));
    EXPECT_TRUE(ticket.ok());
    return tiny_.executor->collect_step(ticket.value());
  }
  std::string refusal(const StepPlan& plan) {
    const Result<TicketId> ticket = tiny_.executor->submit(plan, make_header(plan));
    EXPECT_FALSE(ticket.ok());
    return ticket.ok() ? std::string() : ticket.error().message;
  }

  const TinyModel tiny_model_ = load_tiny_model("bf16", 1);
  EngineConfig config_{
      .n_pages = 6, .context_tokens = 128, .running_requests_max = 2, .chunked_prefill_tokens = 30};
  TinyExecutor tiny_;
  std::vector<PageEntry> directory_;
  uint64_t step_ = 0;
};

TEST_F(RunnerTest, PlansThatBreakTheSeamAreRefused) {
  const StepRow good = row_of(1, {1, 2, 3}, page(1));
  const auto with = [&](auto&& change) {
    StepRow row = good;
    change(row);
    return StepPlan{.step = 1, .rows = {row}};
  };
  EXPECT_THAT(refusal(with([](StepRow& row) { row.tokens.clear(); })), HasSubstr("0 tokens"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.tokens[0].literal = 1000; })),
              HasSubstr("token 1000"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.tokens[0].literal = -1; })),
              HasSubstr("token -1"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.first_position = 62; })),
              HasSubstr("1 pages for 65 tokens"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.first_position = -1; })),
              HasSubstr("position -1"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.pages[0].page = PageId{6}; })),
              HasSubstr("page 6"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.pages.assign(3, row.pages[0]); })),
              HasSubstr("3 pages"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.n_logits = 4; })), HasSubstr("4 logit rows"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.n_logits = 2; })), HasSubstr("more than one"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.targets = {1, 2, 3}; })), HasSubstr("3 targets"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.targets = {1, -1}; })), HasSubstr("target -1"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.target_tops = kTopLogprobsMax + 1; })),
              HasSubstr("alternatives"));
  EXPECT_THAT(refusal(with([](StepRow& row) { row.tokens[2] = {.ticket = TicketId{9}}; })),
              HasSubstr("a step that gave none"));
  EXPECT_THAT(refusal({.step = 1, .rows = {good, good, good}}), HasSubstr("3 rows"));
  StepRow wide = row_of(1, std::vector<Token>(33, 1), page(1));
  EXPECT_THAT(refusal({.step = 1, .rows = {wide}}), HasSubstr("33 tokens"));
}

TEST_F(RunnerTest, ATokenMayBeWhatAnEarlierStepSampled) {
  const StepPlan first = next_plan({row_of(1, {1, 2, 3}, page(1)), row_of(2, {7, 8}, page(2))});
  const Result<TicketId> ticket = tiny_.executor->submit(first, make_header(first));
  ASSERT_TRUE(ticket.ok());
  // Submitted before the first step's tokens are read.
  StepRow second = row_of(2, {0}, page(2));
  second.first_position = second.committed = 2;
  second.tokens[0] = {.ticket = ticket.value(), .row = 1};
  const StepResult by_ticket = run(next_plan({second}));
  const StepResult of_first = tiny_.executor->collect_step(ticket.value());
  second.tokens[0] = {.literal = of_first.rows[1].tokens[0].token};
  const StepResult by_literal = run(next_plan({second}));
  ASSERT_EQ(by_ticket.rows[0].verdict, RowVerdict::ok);
  EXPECT_EQ(by_ticket.rows[0].tokens[0].token, by_literal.rows[0].tokens[0].token);
  EXPECT_EQ(by_ticket.rows[0].tokens[0].logprob, by_literal.rows[0].tokens[0].logprob);
}

TEST_F(RunnerTest, ATokenOfARowThatFailedIsNoToken) {
  StepRow bad = row_of(1, {1, 2, 3}, page(1));
  bad.sampler.mask.assign(token_mask_words(config_.vocab_size), 0);
  const StepPlan first = next_plan({bad, row_of(2, {7, 8}, page(2))});
  const Result<TicketId> ticket = tiny_.executor->submit(first, make_header(first));
  ASSERT_TRUE(ticket.ok());
  StepRow after = row_of(1, {0}, page(1));
  after.first_position = 3;
  after.tokens[0] = {.ticket = ticket.value(), .row = 0};
  StepRow neighbour = row_of(2, {0}, page(2));
  neighbour.first_position = 2;
  neighbour.tokens[0] = {.ticket = ticket.value(), .row = 1};
  const StepResult result = run(next_plan({after, neighbour}));
  EXPECT_EQ(result.rows[0].verdict, RowVerdict::no_token);
  EXPECT_TRUE(result.rows[0].tokens.empty());
  EXPECT_EQ(result.rows[1].verdict, RowVerdict::ok);
  EXPECT_EQ(tiny_.executor->collect_step(ticket.value()).rows[0].verdict, RowVerdict::dead_end);
}

// 17 rows run as a recorded step of 20.
TEST_F(RunnerTest, PaddingChangesNoByte) {
  EngineConfig config = config_;
  config.n_pages = 30;
  config.running_requests_max = 20;
  std::vector<PageEntry> directory(30);
  for (size_t p = 1; p < directory.size(); ++p) {
    directory[p] = {.tag = 100 + p, .state = PageState::filling};
  }
  std::vector<StepResult> results;
  std::vector<std::vector<std::byte>> bytes;
  for (const RecordSteps record : {RecordSteps::no, RecordSteps::yes}) {
    const TinyExecutor tiny = make_tiny_executor(tiny_model_, config, record);
    EXPECT_EQ(tiny.executor->n_recordings(), record == RecordSteps::yes ? 17U : 0U);
    tiny.executor->watch_directory(directory, StepChecks::pages);
    StepPlan plan{.step = 1};
    std::vector<PageId> pages;
    for (int32_t r = 1; r <= 17; ++r) {
      plan.rows.push_back(row_of(static_cast<uint64_t>(r), {r, r + 1}, page(r)));
      pages.push_back(PageId{r});
    }
    tiny.executor->fill_pages(pages, std::byte{0});
    plan.rows[3].sampler.mask.assign(token_mask_words(config.vocab_size), ~uint64_t{7});
    const TicketId prompts = tiny.executor->submit(plan, make_header(plan)).value();
    plan.step = 2;
    for (int32_t r = 0; r < 17; ++r) {
      StepRow& row = plan.rows[static_cast<size_t>(r)];
      row.first_position = 2;
      row.tokens = {{.ticket = prompts, .row = r}};
    }
    const TicketId decodes = tiny.executor->submit(plan, make_header(plan)).value();
    tiny.executor->wait(decodes);
    EXPECT_TRUE(tiny.executor->is_done(decodes));
    results.push_back(tiny.executor->collect_step(prompts));
    results.push_back(tiny.executor->collect_step(decodes));
    bytes.push_back(tiny.executor->collect_bytes(tiny.executor->export_pages(pages)));
  }
  EXPECT_EQ(bytes[0], bytes[1]);
  for (size_t step = 0; step < 2; ++step) {
    for (size_t r = 0; r < 17; ++r) {
      const StepRowResult& plain = results[step].rows[r];
      const StepRowResult& padded = results[step + 2].rows[r];
      ASSERT_EQ(plain.verdict, RowVerdict::ok);
      ASSERT_EQ(padded.verdict, RowVerdict::ok);
      EXPECT_EQ(plain.tokens[0].token, padded.tokens[0].token);
      EXPECT_EQ(plain.tokens[0].logprob, padded.tokens[0].logprob);
    }
  }
}

TEST_F(RunnerTest, AStaleRowIsNeitherReadNorWrittenAndTheOthersGoOn) {
  const StepResult alone = run(next_plan({row_of(2, {7, 8}, page(2))}));
  const auto bytes_of = [&](int32_t p) {
    const PageId pages[] = {PageId{p}};
    return tiny_.executor->collect_bytes(tiny_.executor->export_pages(pages));
  };
  const std::vector<std::byte> before = bytes_of(1);
  TaggedPage stale = page(1);
  stale.tag += 1;
  const StepResult result =
      run(next_plan({row_of(1, {1, 2, 3}, stale), row_of(2, {7, 8}, page(2))}));
  EXPECT_EQ(result.rows[0].verdict, RowVerdict::stale_page);
  EXPECT_EQ(result.rows[0].page, PageId{1});
  EXPECT_EQ(result.rows[0].found_tag, 101U);
  EXPECT_TRUE(result.rows[0].tokens.empty());
  EXPECT_EQ(bytes_of(1), before);
  EXPECT_EQ(result.rows[1].verdict, RowVerdict::ok);
  EXPECT_EQ(result.rows[1].tokens[0].token, alone.rows[0].tokens[0].token);
  EXPECT_EQ(result.rows[1].tokens[0].logprob, alone.rows[0].tokens[0].logprob);
  EXPECT_EQ(result.rows[1].pages_checked, 2);  // before the pass and after it
}

TEST_F(RunnerTest, APageInNoLivingStateIsStale) {
  for (const PageState state : {PageState::free, PageState::draining, PageState::quarantined}) {
    directory_[1].state = state;
    const StepResult result = run(next_plan({row_of(1, {1, 2}, page(1))}));
    EXPECT_EQ(result.rows[0].verdict, RowVerdict::stale_page);
  }
}

TEST_F(RunnerTest, AHeaderOfAnotherPlanOrStepGivesNoToken) {
  const StepPlan plan = next_plan({row_of(1, {1, 2}, page(1))});
  StepHeader header = make_header(plan);
  header.nonce_sum ^= 1;
  StepResult result = tiny_.executor->collect_step(tiny_.executor->submit(plan, header).value());
  EXPECT_EQ(result.rows[0].verdict, RowVerdict::bad_header);
  EXPECT_TRUE(result.rows[0].tokens.empty());
  // The same plan once more: its number has passed.
  result = tiny_.executor->collect_step(tiny_.executor->submit(plan, make_header(plan)).value());
  EXPECT_EQ(result.rows[0].verdict, RowVerdict::bad_header);
}

TEST_F(RunnerTest, AMaskThatAdmitsNothingIsADeadEnd) {
  StepRow row = row_of(1, {1, 2}, page(1));
  row.sampler.mask.assign(token_mask_words(config_.vocab_size), 0);
  EXPECT_EQ(run(next_plan({row})).rows[0].verdict, RowVerdict::dead_end);
  row.sampler.mask[0] = 1 << 9;
  EXPECT_EQ(run(next_plan({row})).rows[0].tokens[0].token, 9);
}

// Nine positions of a row, two rows of logits at a time: the same numbers as of nine prompts that
// end there, and the token after the row is the same, too.
TEST_F(RunnerTest, TargetsAreScoredByTheLogitsOfTheirPosition) {
  const std::vector<Token> tokens = {3, 1, 4, 1, 5, 9, 2, 6, 5, 35};
  StepRow row = row_of(1, tokens, page(1));
  row.target_tops = 5;
  std::vector<SampledLogprob> expected;
  for (size_t n = 1; n < tokens.size(); ++n) {
    StepRow prefix =
        row_of(2, {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n)}, page(2));
    prefix.sampler.settings.top_logprobs = 5;
    expected.push_back(run(next_plan({prefix})).rows[0].tokens[0]);
    // Not the likeliest, nor always of the same rank: any token may be asked for.
    row.targets.push_back(expected.back().top[n % 5].first);
  }
  const StepResult alone = run(next_plan({row_of(1, tokens, page(1))}));
  const StepResult result = run(next_plan({row, row_of(2, {7, 8}, page(2))}));
  ASSERT_EQ(result.rows[0].verdict, RowVerdict::ok);
  ASSERT_EQ(result.rows[0].scores.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const SampledLogprob& score = result.rows[0].scores[i];
    EXPECT_EQ(score.token, row.targets[i]) << i;
    EXPECT_EQ(score.logprob, expected[i].top[(i + 1) % 5].second) << i;
    EXPECT_EQ(score.top, expected[i].top) << i;
  }
  EXPECT_EQ(result.rows[0].tokens[0].token, alone.rows[0].tokens[0].token);
  EXPECT_EQ(result.rows[0].tokens[0].logprob, alone.rows[0].tokens[0].logprob);
  EXPECT_TRUE(result.rows[1].scores.empty());
  // And what was sampled beside them can be named by the next step.
  StepRow next = row_of(1, {0}, page(1));
  next.first_position = 10;
  next.tokens[0] = {.literal = alone.rows[0].tokens[0].token};
  const StepPlan again = next_plan({row, row_of(2, {7, 8}, page(2))});
  const TicketId ticket = tiny_.executor->submit(again, make_header(again)).value();
  StepRow by_ticket = next;
  by_ticket.tokens[0] = {.ticket = ticket, .row = 0};
  const StepResult named = run(next_plan({by_ticket}));
  tiny_.executor->collect_step(ticket);
  const StepResult known = run(next_plan({next}));
  EXPECT_EQ(named.rows[0].tokens[0].logprob, known.rows[0].tokens[0].logprob);
}

// `off` is a step in which no op knows of a check: the others have theirs, which are all there are.
TEST_F(RunnerTest, OffAsksNothingOfAnyOp) {
  CheckCount count(*tiny_model_.backend);
  const TinyExecutor tiny = make_tiny_executor(tiny_model_, count, config_, RecordSteps::no);
  const auto run_with = [&](StepChecks checks) {
    tiny.executor->watch_directory(
        checks == StepChecks::none ? std::span<const PageEntry>() : directory_, checks);
    const StepPlan plan = next_plan({row_of(1, {1, 2, 3}, page(1))});
    tiny.executor->collect_step(tiny.executor->submit(plan, make_header(plan)).value());
    return std::vector{std::exchange(count.mirrors, 0), std::exchange(count.tagged, 0),
                       std::exchange(count.comparisons, 0), std::exchange(count.guards, 0)};
  };
  EXPECT_EQ(run_with(StepChecks::none), (std::vector{0, 0, 0, 0}));
  EXPECT_EQ(run_with(StepChecks::pages), (std::vector{1, 1, 2, 0}));
  EXPECT_EQ(run_with(StepChecks::pages_and_writes), (std::vector{1, 1, 2, 1}));
}

TEST_F(RunnerTest, PagesAreSealedVerifiedCopiedAndMoved) {
  run(next_plan({row_of(1, {1, 2, 3}, page(1))}));
  Executor& executor = *tiny_.executor;
  const SealTarget target[] = {{.page = PageId{1}, .logical = 0}};
  const std::vector<PageSeal> seal = executor.collect_seals(executor.seal_pages(target));
  const auto verify = [&](SealTarget found) {
    return executor.collect_verdicts(executor.verify_pages({&found, 1}, seal))[0];
  };
  EXPECT_EQ(verify({.page = PageId{1}, .logical = 0}), PageVerdict::ok);
  EXPECT_EQ(verify({.page = PageId{1}, .logical = 1}), PageVerdict::mismatch);
  EXPECT_EQ(verify({.page = PageId{2}, .logical = 0}), PageVerdict::mismatch);

  const PageId from[] = {PageId{1}};
  const PageId copy[] = {PageId{2}};
  executor.wait(executor.copy_pages(from, copy));
  EXPECT_EQ(verify({.page = PageId{2}, .logical = 0}), PageVerdict::ok);

  const std::vector<std::byte> bytes = executor.collect_bytes(executor.export_pages(from));
  const PageId moved[] = {PageId{3}};
  executor.wait(executor.import_pages(moved, bytes));
  EXPECT_EQ(verify({.page = PageId{3}, .logical = 0}), PageVerdict::ok);

  executor.wait(executor.fill_pages(from, std::byte{0xff}));
  EXPECT_EQ(verify({.page = PageId{1}, .logical = 0}), PageVerdict::mismatch);
  EXPECT_EQ(verify({.page = PageId{3}, .logical = 0}), PageVerdict::ok);
}

}  // namespace
}  // namespace quire
