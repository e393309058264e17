// Tensor-parallel ranks: a checkpoint cut for 2, 4 and 8 of them, each rank a model of its own with
// its part of the weights, their sums taken by a collective of the test. Together they give the
// logits of the whole model; so what one rank loads is what a rank really holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "base/temp_folder.h"
#include "cpu/cpu_backend.h"
#include "format/checkpoint.h"
#include "model/model.h"
#include "model/single_sequence.h"
#include "ops/collective.h"
#include "weights/dummy.h"
#include "weights/loader.h"
#include "weights/shard_writer.h"

namespace quire {
namespace {

// Ranks that are threads of one process and meet at every sum. Sums are taken in order of rank, so
// that nothing depends on who comes first.
class Ranks {
 public:
  // The summands of rank `left_out` are dropped, but for the embedding's; -1: of none.
  Ranks(int32_t n, int32_t left_out)
      : n_(n),
        left_out_(left_out),
        bf16_(static_cast<size_t>(n)),
        f32_(static_cast<size_t>(n)),
        meet_(n) {}

  class Member final : public Collective {
   public:
    Member(Ranks& ranks, int32_t rank) : ranks_(ranks), rank_{rank} {}
    Rank rank() const override { return rank_; }
    int32_t n_ranks() const override { return ranks_.n_; }
    void sum(View<Bf16, 2> x) override { ranks_.sum(rank_.value, x); }
    void gather_columns(View<float, 2> out, View<const float, 2> x) override {
      ranks_.gather(rank_.value, out, x);
    }

   private:
    Ranks& ranks_;
    Rank rank_;
  };

  int32_t sums() const { return sums_; }

 private:
  void sum(int32_t rank, const View<Bf16, 2>& x) {
    bf16_[static_cast<size_t>(rank)] = x;
    meet_.arrive_and_wait();
    if (rank == 0) {
      ++sums_;
      for (int64_t t = 0; t < x[0]; ++t) {
        for (int64_t i = 0; i < x[1]; ++i) {
          float total = 0;
          for (int32_t r = 0; r < n_; ++r) {
            if (r != left_out_ || sums_ == 1)
              total += to_float(bf16_[static_cast<size_t>(r)](t, i));
          }
          for (const View<Bf16, 2>& part : bf16_) part(t, i) = to_bf16(total);
        }
      }
    }
    meet_.arrive_and_wait();
  }

  void gather(int32_t rank, const View<float, 2>& out, const View<const float, 2>& x) {
    f32_[static_cast<size_t>(rank)] = x;
    meet_.arrive_and_wait();
    for (int64_t r = 0; r < n_; ++r) {
      const View<const float, 2>& part = f32_[static_cast<size_t>(r)];
      for (int64_t t = 0; t < x[0]; ++t) {
        std::copy_n(part.row(t).data, x[1], out.row(t).data + r * x[1]);
      }
    }
    meet_.arrive_and_wait();
  }

  const int32_t n_;
  const int32_t left_out_;
  std::vector<View<Bf16, 2>> bf16_;        // [n]
  std::vector<View<const float, 2>> f32_;  // [n]
  std::barrier<> meet_;
  int32_t sums_ = 0;  // rank 0's
};

struct Subject {
  ModelConfig config;
  std::string dir;  // of the checkpoint; empty: dummy weights

  Checkpoint checkpoint() const {
    return dir.empty() ? dummy_checkpoint("dummy", config.shape, config.weights)
                       : Checkpoint::open(dir).value();
  }
};

// The logits of every token, as `partition` of the model gives them.
std::vector<float> run(const Subject& subject, const Partition& partition, Collective* collective,
                       const std::vector<Token>& ids) {
  const std::unique_ptr<Backend> backend = make_cpu_backend(1);
  const auto weights = load_weights({.checkpoint = subject.checkpoint(),
                                     .shape = subject.config.shape,
                                     .source = subject.config.weights,
                                     .partition = partition},
                                    *backend, nullptr)
                           .value();
  ModelConfig config = subject.config;
  config.shape = weights->shape;
  const auto n = static_cast<int64_t>(ids.size());
  const auto model = make_model(config, *weights, *backend, {.tokens_max = n, .logits_max = n},
                                {.collective = collective})
                         .value();
  return SingleSequence::make(*model, *backend, n, n).value().feed(ids, n);
}

std::vector<float> run_ranks(const Subject& subject, int32_t n, const std::vector<Token>& ids,
                             int32_t left_out = -1) {
  Ranks ranks(n, left_out);
  std::vector<std::vector<float>> found(static_cast<size_t>(n));
  {
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < n; ++rank) {
      threads.emplace_back([&, rank] {
        Ranks::Member member(ranks, rank);
        found[static_cast<size_t>(rank)] = run(subject, {rank, n}, &member, ids);
      });
    }
  }
  // After the embedding, and after both blocks of each layer.
  EXPECT_EQ(ranks.sums(), 1 + 2 * subject.config.shape.n_layers);
  for (const std::vector<float>& logits : found) {
    EXPECT_EQ(logits, found[0]) << "every rank has the same logits";
  }
  return found[0];
}

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - expected[i];
    error += difference * difference;
    norm += static_cast<double>(expected[i]) * expected[i];
  }
  return std::sqrt(error / norm);
}

// Ranks round their summands where one device rounds the sum: n summands of size n^-1/2 carry
// together what one rounding does, so each run is as far from float32 as golden_test.cc allows, and
// the two are sqrt(2) of that apart at most.
void expect_ranks_give_the_whole(const Subject& subject, const std::vector<int32_t>& counts) {
  std::vector<Token> ids;
  Rng rng(11);
  for (int i = 0; i < 70; ++i) {
    ids.push_back(
        static_cast<Token>(rng.next_below(static_cast<uint64_t>(subject.config.shape.vocab_size))));
  }
  const std::vector<float> whole = run(subject, {}, nullptr, ids);
  const auto n_layers = static_cast<double>(subject.config.shape.n_layers);
  const double bound = std::sqrt(2.0) * 2 * std::sqrt(24 * n_layers) * 0x1p-9 / std::sqrt(3.0);
  for (const int32_t n : counts) {
    const std::vector<float> found = run_ranks(subject, n, ids);
    ASSERT_EQ(found.size(), whole.size());
    const double relative = relative_error(found, whole);
    std::printf("%d ranks: relative error %.5f of %.5f\n", n, relative, bound);
    EXPECT_LE(relative, bound) << n << " ranks";
  }
  const int32_t most = counts.back();
  const double without = relative_error(run_ranks(subject, most, ids, most - 1), whole);
  std::printf("%d ranks, the last left out: relative error %.5f\n", most, without);
  EXPECT_GT(without, bound) << "the bound can fail";
}

// Every expert works on every token: no tie of a router decides which.
Subject dummy_subject(const WeightSource& source) {
  Subject out{.config =
                  read_model_config(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/bf16").value()};
  out.config.shape = {.vocab_size = 96,
                      .hidden_size = 128,
                      .n_layers = 3,
                      .n_dense_layers = 1,
                      .n_heads = 8,
                      .q_lora_rank = 128,
                      .kv_lora_rank = 64,
                      .nope_dim = 112,
                      .rope_dim = 16,
                      .v_dim = 128,
                      .dense_inner = 1024,
                      .expert_inner = 1024,
                      .n_experts = 4,
                      .top_k = 4,
                      .n_shared_experts = 1};
  out.config.weights = source;
  return out;
}

TEST(Ranks, Bf16) { expect_ranks_give_the_whole(dummy_subject({}), {2, 4, 8}); }

TEST(Ranks, Int4) {
  expect_ranks_give_the_whole(
      dummy_subject({.scheme = WeightScheme::int4_group, .scheme_text = "int4", .group = 32}),
      {2, 4, 8});
}

TEST(Ranks, Fp8) {
  Subject subject = dummy_subject({.scheme = WeightScheme::fp8_block128, .scheme_text = "fp8"});
  subject.config.shape.nope_dim = 128;  // a head's keys and values are whole blocks
  subject.config.shape.rope_dim = 128;
  expect_ranks_give_the_whole(subject, {2, 4, 8});
}

TEST(Ranks, CheckpointsOfTheGoldens) {
  for (const char* name : {"bf16", "q_direct"}) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(QUIRE_SOURCE_DIR) + "/tests/golden/" + name;
    expect_ranks_give_the_whole({.config = read_model_config(dir).value(), .dir = dir}, {2});
  }
}

// A rank's folder, written by `quire shard`, gives the bits that cutting the whole gives.
TEST(Ranks, AWrittenPartGivesTheSameBits) {
  const std::vector<Token> ids = {1, 5, 9, 2, 7};
  const std::vector<WeightSource> sources = {
      {}, {.scheme = WeightScheme::int4_group, .scheme_text = "int4", .group = 32}};
  for (const WeightSource& source : sources) {
    const TempFolder folder;
    const std::string& dir = folder.path();
    const Subject whole = dummy_subject(source);
    const Partition part{.rank = 1, .n_ranks = 4};
    const auto written = write_shard({.checkpoint = whole.checkpoint(),
                                      .shape = whole.config.shape,
                                      .source = source,
                                      .partition = part,
                                      .n_threads = 2},
                                     dir, "{}", nullptr);
    ASSERT_TRUE(written.ok()) << written.error().message;
    const auto found = read_partition(dir);
    ASSERT_TRUE(found.ok() && found.value());
    EXPECT_EQ(found.value()->rank, 1);
    EXPECT_EQ(found.value()->n_ranks, 4);
    Subject rank{.config = whole.config, .dir = dir};
    rank.config.shape = shape_of_rank(whole.config.shape, part).value();
    EXPECT_EQ(run(rank, {}, nullptr, ids), run(whole, part, nullptr, ids));
  }
  EXPECT_FALSE(read_partition(std::string(QUIRE_SOURCE_DIR) + "/tests/golden/bf16").value());
}

// Tokens that differ go to experts as if those were drawn at random: of N experts, k a token, B
// tokens see N (1 - (1 - k / N)^B), in every format and however deep. A layer is off by 4 % of that
// now and then, their mean by 1 %.
TEST(DummyWeights, SpreadTokensOverExperts) {
  const std::vector<WeightSource> sources = {
      {},
      {.scheme = WeightScheme::fp8_block128, .scheme_text = "fp8"},
      {.scheme = WeightScheme::int4_group, .scheme_text = "int4", .group = 32}};
  std::vector<Token> ids(32);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<Token>(3 * i);
  const auto n = static_cast<int64_t>(ids.size());
  for (const WeightSource& source : sources) {
    Subject subject = dummy_subject(source);
    ModelShape& shape = subject.config.shape;
    shape.hidden_size = 512;
    shape.n_layers = 13;
    shape.expert_inner = 256;
    shape.n_experts = 64;
    const std::unique_ptr<Backend> backend = make_cpu_backend(2);
    const auto weights =
        load_weights({.checkpoint = subject.checkpoint(), .shape = shape, .source = source},
                     *backend, nullptr)
            .value();
    const auto model =
        make_model(subject.config, *weights, *backend, {.tokens_max = n, .logits_max = 1}, {})
            .value();
    SingleSequence::make(*model, *backend, n, n).value().feed(ids, 1);
    const View<const int32_t, 3> routed = model->routed_experts(n);
    ASSERT_EQ(routed[0], 12);
    double distinct = 0;
    for (int64_t layer = 0; layer < routed[0]; ++layer) {
      std::set<int32_t> chosen;
      for (int64_t i = 0; i < n * shape.top_k; ++i) chosen.insert(routed.row(layer).data[i]);
      distinct += static_cast<double>(chosen.size()) / static_cast<double>(routed[0]);
    }
    const double expected = 64 * (1 - std::pow(1 - 4.0 / 64, n));
    std::printf("%s: %.1f experts a layer of %.1f\n", source.scheme_text.c_str(), distinct,
                expected);
    EXPECT_NEAR(distinct, expected, 0.05 * expected) << source.scheme_text;
  }
}

// Without a collective a rank's share is a model of its own: finite, and not the whole model's.
TEST(Ranks, AShareRunsAlone) {
  const std::vector<Token> ids = {1, 5, 9, 2, 7};
  const Subject subject = dummy_subject({});
  const std::vector<float> logits = run(subject, {1, 4}, nullptr, ids);
  EXPECT_EQ(logits.size(), ids.size() * 96 / 4);
  EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float x) { return std::isfinite(x); }));
}

}  // namespace
}  // namespace quire
