// Faults planted in a backend's memory, below the engine: the request that they concern is stopped
// before an unverified token leaves, every other one gets the bytes that it gets without, and what
// is damaged is quarantined. On the CPU here, and on a device where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "cpu/cpu_backend.h"
#include "engine/forwarding_executor.h"
#include "engine/test_requests.h"
#include "tests/engine/faulty_backend.h"
#include "tests/engine/tiny_model.h"
#ifdef QUIRE_FAULTS_ON_CUDA
#include "cuda/cuda_backend.h"
#endif

namespace quire {
namespace {

// Batches must not show in a request's bytes: others are compared to the bit.
std::unique_ptr<Backend> make_backend() {
#ifdef QUIRE_FAULTS_ON_CUDA
  Result<std::unique_ptr<Backend>> made = make_cuda_backend({.deterministic = Deterministic::yes});
  return made.ok() ? std::move(made).value() : nullptr;
#else
  return make_cpu_backend(1);
#endif
}

// Keeps the directory within sight, for damage to pages that are in a certain state.
class DirectoryWatch final : public ForwardingExecutor {
 public:
  using ForwardingExecutor::ForwardingExecutor;
  void watch_directory(std::span<const PageEntry> directory, StepChecks checks) override {
    directory_ = directory;
    ForwardingExecutor::watch_directory(directory, checks);
  }
  std::vector<PageId> pages_in(PageState state) const {
    std::vector<PageId> pages;
    for (size_t p = 0; p < directory_.size(); ++p) {
      if (directory_[p].state == state) pages.push_back(PageId{static_cast<int32_t>(p)});
    }
    return pages;
  }

 private:
  std::span<const PageEntry> directory_;
};

struct Setting {
  KvFormat format;
  Overlap overlap;
};

class FaultsTest : public testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    std::unique_ptr<Backend> backend = make_backend();
    if (backend == nullptr) GTEST_SKIP() << "no device here";
    tiny_ = load_tiny_model("bf16", std::move(backend));
  }

  EngineConfig config() const {
    return {.n_pages = 60,
            .vocab_size = static_cast<int32_t>(tiny_.config.shape.vocab_size),
            .context_tokens = 400,
            .running_requests_max = 8,
            .queued_requests_max = 16,
            .chunked_prefill_tokens = 512,
            .overlap = GetParam().overlap,
            .integrity = integrity_config(IntegrityLevel::full),
            .domain = {.kv_format = GetParam().format}};
  }

  // An engine over a backend that can be damaged.
  struct World {
    World(const TinyModel& tiny, const EngineConfig& config, const Clock& clock, Log& log)
        : faulty(*tiny.backend),
          executor(make_tiny_executor(tiny, faulty, config, RecordSteps::no)),
          watch(*executor.executor),
          engine(config, watch, clock, log) {}
    FaultyBackend faulty;
    TinyExecutor executor;
    DirectoryWatch watch;
    Engine engine;
  };

  std::vector<GenerateRequest> requests() const {
    std::vector<GenerateRequest> out;
    for (int32_t i = 0; i < 5; ++i) {
      GenerateRequest request{.prompt = counting_prompt(3 * i, 70 + 20 * i, config().vocab_size),
                              .max_new_tokens = 30};
      request.sampling = {.temperature = 0.8F, .seed = static_cast<uint64_t>(i) + 1};
      out.push_back(std::move(request));
    }
    return out;
  }

  static void expect_same(const Heard& found, const Heard& expected) {
    ASSERT_EQ(found.ids(), expected.ids());
    for (size_t i = 0; i < found.tokens.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(found.tokens[i].logprob),
                std::bit_cast<uint32_t>(expected.tokens[i].logprob));
    }
  }
  // What a request got until it was stopped is what it would have got.
  static void expect_begin_of(const Heard& found, const Heard& expected) {
    const std::vector<Token> ids = found.ids();
    const std::vector<Token> whole = expected.ids();
    ASSERT_LT(ids.size(), whole.size());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), whole.begin()));
  }

  struct Outcome {
    std::vector<Heard> heard;
    EngineStats stats;
    bool is_planted = false;
  };
  Outcome run(std::optional<DeviceFault> fault) {
    World world(tiny_, config(), clock_, log_);
    const std::vector<GenerateRequest> asked = requests();
    Outcome out{.heard = std::vector<Heard>(asked.size())};
    for (size_t i = 0; i < asked.size(); ++i) {
      EXPECT_TRUE(world.engine.add(asked[i], hear(out.heard[i])).ok());
    }
    for (int i = 0; i < 6; ++i) world.engine.step();
    if (fault) world.faulty.arm(*fault);
    while (world.engine.step()) continue;
    EXPECT_TRUE(world.engine.audit().ok());
    out.stats = world.engine.stats();
    out.is_planted = world.faulty.is_planted();
    return out;
  }

  SteadyClock clock_;
  Log log_{LogLevel::silent, LogFormat::text};
  TinyModel tiny_;
};

struct Expected {
  DeviceFault fault;
  IntegrityCheck check;  // that finds it
};

// Row 1 of a step is the second request.
constexpr Expected kOfOneRow[] = {
    {DeviceFault::swapped_entries, IntegrityCheck::tags},
    {DeviceFault::foreign_entry, IntegrityCheck::tags},
    {DeviceFault::doubled_entry, IntegrityCheck::tags},
    {DeviceFault::null_entry, IntegrityCheck::tags},
    {DeviceFault::stale_tail, IntegrityCheck::tags},
    {DeviceFault::stale_tag, IntegrityCheck::tags},
    {DeviceFault::changed_mirror, IntegrityCheck::tags},
    {DeviceFault::late_entry, IntegrityCheck::tags},
    {DeviceFault::zombie_write, IntegrityCheck::writes},
    {DeviceFault::foreign_place, IntegrityCheck::writes},
    {DeviceFault::damaged_place, IntegrityCheck::writes},
    {DeviceFault::misplaced_write, IntegrityCheck::writes},
    {DeviceFault::lost_write, IntegrityCheck::numbers},
};

TEST_P(FaultsTest, AFaultOfARowStopsItsRequestAndNoOther) {
  const Outcome clean = run({});
  EXPECT_EQ(clean.stats.requests_failed, 0U);
  EXPECT_EQ(clean.stats.integrity_found.total(), 0U);
  for (const auto& [fault, check] : kOfOneRow) {
    SCOPED_TRACE(name(fault));
    const Outcome found = run(fault);
    ASSERT_TRUE(found.is_planted);
    EXPECT_EQ(found.stats.integrity_found[check], 1U);
    EXPECT_EQ(found.stats.integrity_found.total(), 1U);
    EXPECT_EQ(found.stats.requests_failed, 1U);
    for (size_t i = 0; i < found.heard.size(); ++i) {
      if (static_cast<int64_t>(i) != FaultyBackend::kVictimRow) {
        expect_same(found.heard[i], clean.heard[i]);
        continue;
      }
      expect_begin_of(found.heard[i], clean.heard[i]);
      EXPECT_EQ(found.heard[i].last().finish, FinishReason::failed);
      EXPECT_EQ(found.heard[i].last().failure,
                check == IntegrityCheck::numbers ? FailureKind::numerical : FailureKind::integrity);
    }
  }
}

// A step whose inputs are not what was sent, or whose pages nobody compared, gives no token to any
// of its rows.
TEST_P(FaultsTest, AFaultOfAStepStopsAllItsRequests) {
  const Outcome clean = run({});
  for (const auto& [fault, check] :
       {Expected{DeviceFault::overwritten_staging, IntegrityCheck::header},
        Expected{DeviceFault::no_first_check, IntegrityCheck::coverage},
        Expected{DeviceFault::no_second_check, IntegrityCheck::coverage}}) {
    SCOPED_TRACE(name(fault));
    const Outcome found = run(fault);
    ASSERT_TRUE(found.is_planted);
    EXPECT_EQ(found.stats.integrity_found[check], found.heard.size());
    EXPECT_EQ(found.stats.integrity_found.total(), found.heard.size());
    for (size_t i = 0; i < found.heard.size(); ++i) {
      EXPECT_EQ(found.heard[i].last().failure, FailureKind::integrity);
      expect_begin_of(found.heard[i], clean.heard[i]);
    }
  }
}

// The engine goes on after such a step: those who come later are served, from the pages of those
// who were stopped, which the mirror knows again.
TEST_P(FaultsTest, LaterRequestsAreServedAfterAStepWasLost) {
  const Outcome clean = run({});
  World world(tiny_, config(), clock_, log_);
  const std::vector<GenerateRequest> asked = requests();
  std::vector<Heard> heard(2 * asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_TRUE(world.engine.add(asked[i], hear(heard[i])).ok());
  }
  for (int i = 0; i < 6; ++i) world.engine.step();
  world.faulty.arm(DeviceFault::overwritten_staging);
  while (!world.faulty.is_planted()) ASSERT_TRUE(world.engine.step());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_TRUE(world.engine.add(asked[i], hear(heard[asked.size() + i])).ok());
  }
  while (world.engine.step()) continue;
  EXPECT_EQ(world.engine.stats().requests_failed, asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    expect_same(heard[asked.size() + i], clean.heard[i]);
  }
}

// Flips `bits` in every sealed page, at a byte of its second layer, and asks again.
TEST_P(FaultsTest, APageThatChangedAfterItWasSealedIsNotUsedAgain) {
  const Outcome clean = run({});
  const KvPageLayout layout = tiny_.config.kv_layout(GetParam().format);
  std::vector<int64_t> places = {0, layout.blocks[1].offset + layout.row_offset(17) + 5,
                                 layout.blocks.back().offset + layout.blocks.back().bytes - 1};
  if (GetParam().format == KvFormat::fp8_e4m3_584) {
    places.push_back(layout.blocks[1].offset + layout.scale_offset(40) + 2);  // of a scale
  }
  for (const int64_t place : places) {
    SCOPED_TRACE(place);
    EngineConfig without_scrub = config();
    without_scrub.integrity.scrub_pages = 0;
    World world(tiny_, without_scrub, clock_, log_);
    const GenerateRequest asked = requests()[3];  // 130 tokens: two pages and a bit
    Heard first;
    Heard second;
    EXPECT_TRUE(world.engine.add(asked, hear(first)).ok());
    while (world.engine.step()) continue;
    const std::vector<PageId> sealed = world.watch.pages_in(PageState::sealed);
    ASSERT_FALSE(sealed.empty());
    for (const PageId page : sealed) {
      std::byte* const at =
          world.executor.executor->pool() + page.value * layout.page_bytes + place;
      std::byte value{};
      world.faulty.copy_out({&value, 1}, at);
      value ^= std::byte{0x10};
      world.faulty.copy_in(at, {&value, 1});
      world.faulty.copy_out({&value, 1}, at);  // a seal waits for no copy
    }
    EXPECT_TRUE(world.engine.add(asked, hear(second)).ok());
    while (world.engine.step()) continue;
    const EngineStats stats = world.engine.stats();
    EXPECT_EQ(stats.integrity_found[IntegrityCheck::seals], 1U);
    EXPECT_EQ(stats.pages_quarantined, 1);
    EXPECT_EQ(stats.requests_failed, 0U);
    expect_same(first, clean.heard[3]);
    expect_same(second, clean.heard[3]);
  }
}

// The scrub meets a page that nobody asks for, and one that somebody reads.
TEST_P(FaultsTest, TheScrubFindsAPageThatChangedAndStopsWhoReadsIt) {
  const KvPageLayout layout = tiny_.config.kv_layout(GetParam().format);
  World world(tiny_, config(), clock_, log_);
  const std::vector<GenerateRequest> asked = requests();
  std::vector<Heard> heard(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_TRUE(world.engine.add(asked[i], hear(heard[i])).ok());
  }
  while (world.watch.pages_in(PageState::sealed).empty()) ASSERT_TRUE(world.engine.step());
  const PageId damaged = world.watch.pages_in(PageState::sealed).front();
  std::byte* const at = world.executor.executor->pool() + damaged.value * layout.page_bytes + 99;
  std::byte value{};
  world.faulty.copy_out({&value, 1}, at);
  value ^= std::byte{2};
  world.faulty.copy_in(at, {&value, 1});
  while (world.engine.step()) continue;
  const EngineStats stats = world.engine.stats();
  EXPECT_EQ(stats.integrity_found[IntegrityCheck::seals], 1U);
  EXPECT_EQ(stats.requests_failed, 1U);
  EXPECT_EQ(stats.pages_quarantined, 1);
}

// Not a number in a row's own cache stops that row alone.
TEST_P(FaultsTest, NotANumberInACacheStopsItsRequest) {
  const Outcome clean = run({});
  const KvPageLayout layout = tiny_.config.kv_layout(GetParam().format);
  World world(tiny_, config(), clock_, log_);
  const std::vector<GenerateRequest> asked = requests();
  std::vector<Heard> heard(asked.size());
  for (size_t i = 0; i < asked.size(); ++i) {
    EXPECT_TRUE(world.engine.add(asked[i], hear(heard[i])).ok());
  }
  for (int i = 0; i < 6; ++i) world.engine.step();
  const PageId page = world.watch.pages_in(PageState::filling).front();
  world.faulty.fill(world.executor.executor->pool() + page.value * layout.page_bytes,
                    layout.row_offset(1), std::byte{0xff});
  while (world.engine.step()) continue;
  EXPECT_EQ(world.engine.stats().integrity_found[IntegrityCheck::numbers], 1U);
  EXPECT_EQ(world.engine.stats().requests_failed, 1U);
  for (size_t i = 0; i < heard.size(); ++i) {
    if (heard[i].last().finish == FinishReason::failed) {
      EXPECT_EQ(heard[i].last().failure, FailureKind::numerical);
      expect_begin_of(heard[i], clean.heard[i]);
    } else {
      expect_same(heard[i], clean.heard[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, FaultsTest,
                         testing::Values(Setting{KvFormat::bf16, Overlap::off},
                                         Setting{KvFormat::bf16, Overlap::on},
                                         Setting{KvFormat::fp8_e4m3_584, Overlap::off},
                                         Setting{KvFormat::fp8_e4m3_584, Overlap::on}),
                         [](const auto& setting) {
                           return std::string(name(setting.param.format)) +
                                  (setting.param.overlap == Overlap::on ? "_overlapped" : "");
                         });

}  // namespace
}  // namespace quire
