// kimi-nano through the engine on a device: the answers are transformers' (the goldens that
// tests/golden/nano_test.cc describes), recorded and overlapped steps change none, and nothing is
// allocated on the device after the start. Prints what a decode step takes.
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "cuda/cuda_backend.h"
#include "engine/engine.h"
#include "engine/runner.h"
#include "engine/test_requests.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "tests/engine/tiny_model.h"
#include "weights/loader.h"

namespace quire {
namespace {

// A greedy token may differ where the two largest logits are closer than rounding moves them.
constexpr double kCloseLogits = 0.25;

std::string nano_dir() { return std::string(QUIRE_SOURCE_DIR) + "/models/kimi-nano"; }

struct Golden {
  std::vector<Token> ids, greedy;
  std::vector<double> margins;
};

std::vector<Golden> read_goldens() {
  std::vector<Golden> goldens;
  std::ifstream file(nano_dir() + "/eval/golden_logits.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json json = parse_json(line).value();
    goldens.push_back({json.at("ids").get<std::vector<Token>>(),
                       json.at("greedy").get<std::vector<Token>>(),
                       json.at("margins").get<std::vector<double>>()});
  }
  return goldens;
}

struct Driving {
  Overlap overlap = Overlap::off;
  RecordSteps record = RecordSteps::no;
  IntegrityLevel integrity = IntegrityLevel::off;
};
constexpr Driving kPlain;
constexpr Driving kFast{Overlap::on, RecordSteps::yes, IntegrityLevel::full};

class DeviceTest : public testing::TestWithParam<KvFormat> {
 protected:
  void load(Deterministic deterministic) {
    Result<std::unique_ptr<Backend>> made = make_cuda_backend({.deterministic = deterministic});
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    model_.reset();
    weights_.reset();
    backend_ = std::move(made).value();
    config_ = read_model_config(nano_dir()).value();
    weights_ = load_weights({.checkpoint = Checkpoint::open(nano_dir()).value(),
                             .shape = config_.shape,
                             .source = config_.weights},
                            *backend_, {})
                   .value();
  }

  // The engine's and the executor's lives.
  struct Running {
    std::unique_ptr<ModelExecutor> executor;
    std::unique_ptr<Engine> engine;
  };
  Running start(const Driving& driving) {
    const EngineConfig config{.n_pages = 400,
                              .vocab_size = static_cast<int32_t>(config_.shape.vocab_size),
                              .context_tokens = 4096,
                              .running_requests_max = 64,
                              .queued_requests_max = 64,
                              .chunked_prefill_tokens = 2048,
                              .prefix_cache = false,
                              .overlap = driving.overlap,
                              .integrity = integrity_config(driving.integrity),
                              .domain = {.kv_format = GetParam()}};
    const PlanLimits limits = executor_limits(config);
    model_ = make_model(config_, *weights_, *backend_,
                        {.tokens_max = limits.tokens_max, .logits_max = limits.rows_max},
                        {.kv_format = GetParam()})
                 .value();
    Running out;
    const ExecutorOptions options{.record = driving.record,
                                  .checks = {step_checks(config.integrity)}};
    out.executor = ModelExecutor::make(*backend_, *model_, limits, options).value();
    out.engine = std::make_unique<Engine>(config, *out.executor, clock_, log_);
    return out;
  }

  std::vector<Heard> answer(Engine& engine, const std::vector<GenerateRequest>& requests) {
    std::vector<Heard> heard(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(engine.add(requests[i], hear(heard[i])).ok());
    }
    while (engine.step()) continue;
    EXPECT_TRUE(engine.audit().ok());
    EXPECT_EQ(engine.stats().requests_failed, 0U);
    EXPECT_EQ(engine.stats().integrity_found.total(), 0U);
    return heard;
  }

  // Requests of many lengths, half of them sampled with everything on.
  std::vector<GenerateRequest> mixed_requests(int32_t n) const {
    std::vector<GenerateRequest> requests;
    for (Token i = 0; i < n; ++i) {
      const auto vocab = static_cast<int32_t>(config_.shape.vocab_size);
      GenerateRequest request{.prompt = counting_prompt(11 * i, 5 + 9 * i, vocab),
                              .max_new_tokens = 20 + i % 7};
      request.sampling.temperature = 0;
      if (i % 2 == 1) {
        request.sampling = {.temperature = 0.9F,
                            .top_p = 0.95F,
                            .frequency_penalty = 0.2F,
                            .repetition_penalty = 1.05F,
                            .seed = static_cast<uint64_t>(i),
                            .top_logprobs = 2,
                            .logit_bias = {{5, 0.5F}}};
      }
      requests.push_back(std::move(request));
    }
    return requests;
  }

  SteadyClock clock_;
  Log log_{LogLevel::error, LogFormat::text};
  std::unique_ptr<Backend> backend_;
  ModelConfig config_;
  std::unique_ptr<ModelWeights> weights_;
  std::unique_ptr<Model> model_;
};

TEST_P(DeviceTest, GreedyAnswersAreThoseOfTransformers) {
  ASSERT_NO_FATAL_FAILURE(load(Deterministic::no));
  if (IsSkipped()) return;
  const std::vector<Golden> goldens = read_goldens();
  ASSERT_FALSE(goldens.empty());
  std::vector<GenerateRequest> requests;
  for (const Golden& golden : goldens) {
    requests.push_back(
        {.prompt = golden.ids, .max_new_tokens = static_cast<int32_t>(golden.greedy.size())});
    requests.back().sampling.temperature = 0;
  }
  for (const Driving& driving : {kPlain, kFast}) {
    const Running running = start(driving);
    EXPECT_EQ(running.executor->n_recordings() > 0, driving.record == RecordSteps::yes);
    const std::vector<Heard> heard = answer(*running.engine, requests);
    if (driving.record == RecordSteps::yes) {
      EXPECT_EQ(running.engine->stats().device_allocations, 0U);
    }
    size_t compared = 0;
    for (size_t line = 0; line < goldens.size(); ++line) {
      const Golden& golden = goldens[line];
      const std::vector<Token> ids = heard[line].ids();
      ASSERT_EQ(ids.size(), golden.greedy.size());
      // Behind the first difference the two go on from different texts.
      for (size_t i = 0; i < ids.size(); ++i, ++compared) {
        if (ids[i] == golden.greedy[i]) continue;
        EXPECT_LT(golden.margins[i], kCloseLogits) << "line " << line + 1 << ", token " << i;
        break;
      }
    }
    std::printf("%s: %zu greedy tokens as expected\n",
                driving.record == RecordSteps::yes ? "recorded, overlapped" : "plain", compared);
    EXPECT_GT(compared, 4 * goldens.size());
  }
}

TEST_P(DeviceTest, RecordingAndOverlapChangeNoByte) {
  ASSERT_NO_FATAL_FAILURE(load(Deterministic::yes));
  if (IsSkipped()) return;
  const std::vector<GenerateRequest> requests = mixed_requests(37);
  std::vector<std::vector<Heard>> answers;
  for (const Driving& driving : {kPlain, kFast}) {
    const Running running = start(driving);
    answers.push_back(answer(*running.engine, requests));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_EQ(answers[0][i].ids(), answers[1][i].ids()) << "request " << i;
    for (size_t t = 0; t < answers[0][i].tokens.size(); ++t) {
      EXPECT_EQ(std::bit_cast<uint32_t>(answers[0][i].tokens[t].logprob),
                std::bit_cast<uint32_t>(answers[1][i].tokens[t].logprob));
    }
  }
}

TEST_P(DeviceTest, TheSameScheduleGivesTheSameBytes) {
  ASSERT_NO_FATAL_FAILURE(load(Deterministic::no));
  if (IsSkipped()) return;
  const std::vector<GenerateRequest> requests = mixed_requests(20);
  std::vector<std::vector<Heard>> answers;
  for (int i = 0; i < 2; ++i) {
    const Running running = start(kFast);
    answers.push_back(answer(*running.engine, requests));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(answers[0][i].ids(), answers[1][i].ids()) << "request " << i;
  }
}

// Steps of every bucket are recorded at the start, so that each choice of kernels is made.
TEST(RecordedStepsTest, OfManyRowsInEveryWeightFormat) {
  for (const char* const checkpoint : {"bf16", "fp8_block128", "int4_group32", "int4_group128"}) {
    Result<std::unique_ptr<Backend>> made = make_cuda_backend({});
    if (!made.ok()) GTEST_SKIP() << made.error().message;
    const TinyModel tiny_model = load_tiny_model(checkpoint, std::move(made).value());
    constexpr int32_t kRequests = 200;
    const EngineConfig config{
        .n_pages = 2 * kRequests + 1,
        .vocab_size = static_cast<int32_t>(tiny_model.config.shape.vocab_size),
        .context_tokens = 100,
        .running_requests_max = kRequests,
        .queued_requests_max = kRequests,
        .chunked_prefill_tokens = 2048,
        .integrity = integrity_config(IntegrityLevel::full)};
    const TinyExecutor tiny = make_tiny_executor(tiny_model, config, RecordSteps::yes);
    SteadyClock clock;
    Log log{LogLevel::error, LogFormat::text};
    Engine engine(config, *tiny.executor, clock, log);
    std::vector<Heard> heard(kRequests);
    for (Token i = 0; i < kRequests; ++i) {
      GenerateRequest request{.prompt = counting_prompt(i, 9, config.vocab_size),
                              .max_new_tokens = 1 + i / 4};
      request.sampling.temperature = 0;
      ASSERT_TRUE(engine.add(std::move(request), hear(heard[static_cast<size_t>(i)])).ok());
    }
    while (engine.step()) continue;
    for (const Heard& one : heard) EXPECT_EQ(one.last().finish, FinishReason::length) << checkpoint;
    EXPECT_EQ(engine.stats().integrity_found.total(), 0U);
  }
}

// With checks a recorded step has the two comparisons more. Tokens are placed and stored by as many
// launches at every level.
TEST_P(DeviceTest, ChecksAreTwoLaunchesMore) {
  ASSERT_NO_FATAL_FAILURE(load(Deterministic::no));
  if (IsSkipped()) return;
  std::vector<int64_t> nodes;
  for (const IntegrityLevel level :
       {IntegrityLevel::off, IntegrityLevel::tags, IntegrityLevel::full}) {
    const Running running = start({Overlap::on, RecordSteps::yes, level});
    nodes.push_back(running.executor->recorded_nodes(step_checks(integrity_config(level)), 8));
  }
  std::printf("a step of 8 rows: %lld, %lld and %lld nodes\n", static_cast<long long>(nodes[0]),
              static_cast<long long>(nodes[1]), static_cast<long long>(nodes[2]));
  EXPECT_GT(nodes[0], 0);
  EXPECT_EQ(nodes[1], nodes[0] + 2);
  EXPECT_EQ(nodes[2], nodes[1]);
}

// Not a bound: what the host and the launches cost where the model is next to nothing.
TEST_P(DeviceTest, PrintsStepTimes) {
  ASSERT_NO_FATAL_FAILURE(load(Deterministic::no));
  if (IsSkipped()) return;
  constexpr int kSteps = 200;
  for (const int32_t n_rows : {1, 8, 13, 64}) {
    std::printf("%2d rows:", n_rows);
    for (const Driving& driving :
         {kPlain, Driving{Overlap::off, RecordSteps::yes}, Driving{Overlap::on, RecordSteps::yes},
          Driving{Overlap::on, RecordSteps::yes, IntegrityLevel::tags}, kFast}) {
      const auto begin_start = std::chrono::steady_clock::now();
      const Running running = start(driving);
      const std::chrono::duration<double, std::milli> started =
          std::chrono::steady_clock::now() - begin_start;
      std::vector<Heard> heard(static_cast<size_t>(n_rows));
      for (int32_t i = 0; i < n_rows; ++i) {
        GenerateRequest request{.prompt = counting_prompt(7 * i, 20, 4000),
                                .max_new_tokens = kSteps + 40};
        request.sampling.temperature = 0;
        EXPECT_TRUE(running.engine->add(request, hear(heard[static_cast<size_t>(i)])).ok());
      }
      for (int i = 0; i < 20; ++i) running.engine->step();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kSteps; ++i) running.engine->step();
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      std::printf("  %s%s, %s: %.0f us a step (start %.0f ms)",
                  driving.record == RecordSteps::yes ? "recorded" : "plain",
                  driving.overlap == Overlap::on ? ", overlapped" : "",
                  std::string(name(driving.integrity)).c_str(), took.count() / kSteps,
                  started.count());
      running.engine->abort_all();
    }
    std::printf("\n");
  }
}

INSTANTIATE_TEST_SUITE_P(, DeviceTest, testing::Values(KvFormat::bf16, KvFormat::fp8_e4m3_584),
                         [](const auto& format) { return std::string(name(format.param)); });

}  // namespace
}  // namespace quire
