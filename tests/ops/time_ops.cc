// time_ops [cpu|cuda [family]]: a table of what each op takes at the shapes of one of eight
// tensor-parallel ranks of Kimi K2 (hidden 7168, 8 heads, 384 experts of 256), beside the bytes it
// has to move.
//
// Times are of calls one after another, launches and host work included, the median of five rounds.
// Not a test: nothing is compared. Weights are larger than the caches, or rotate among copies.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "backends.h"
#include "base/bytes.h"
#include "base/rng.h"
#include "base/text.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/mla_attention.h"
#include "ops/mla_prefill_attention.h"
#include "ops/moe.h"
#include "ops/rms_norm.h"
#include "ops/sample.h"

namespace quire::ops_test {

namespace {

constexpr double kReadBytesPerSecond = 4.66e12;  // measured read ceiling of one H200
constexpr int64_t kHidden = 7168;
constexpr int64_t kHeads = 8;
constexpr int64_t kRank = 512;
constexpr int64_t kRope = 64;

enum class Fill { bf16, fp8, int4, zero };

class Bench {
 public:
  explicit Bench(Backend& backend) : backend_(backend) {
    Rng rng(1);
    for (Fill fill : {Fill::bf16, Fill::fp8, Fill::int4}) {
      std::vector<std::byte>& block = blocks_[static_cast<size_t>(fill)];
      block.resize(kBlockBytes);
      for (size_t i = 0; i < block.size(); i += 2) {
        const float x = rng.next_float() - 0.5F;
        if (fill == Fill::bf16) {
          store_le(block, i, to_bf16(x * 0.1F).bits);
        } else if (fill == Fill::fp8) {
          block[i] = static_cast<std::byte>(to_fp8_e4m3(x).bits);
          block[i + 1] = static_cast<std::byte>(to_fp8_e4m3(-x).bits);
        } else {
          store_le(block, i, static_cast<uint16_t>(rng.next_u64()));
        }
      }
    }
  }

  std::byte* make(int64_t bytes, Fill fill) {
    buffers_.push_back(allocate(backend_, bytes, "a timed op").value());
    std::byte* data = buffers_.back().data();
    if (fill == Fill::zero) {
      backend_.fill(data, bytes, std::byte{0});
      return data;
    }
    const std::vector<std::byte>& block = blocks_[static_cast<size_t>(fill)];
    for (int64_t at = 0; at < bytes; at += kBlockBytes) {
      backend_.copy_in(
          data + at,
          std::span(block).first(static_cast<size_t>(std::min(bytes - at, int64_t{kBlockBytes}))));
    }
    return data;
  }
  template <class T, class... Size>
  View<T, int{sizeof...(Size)}> array(Fill fill, Size... size) {
    const int64_t bytes = (int64_t{sizeof(T)} * ... * int64_t{size});
    return view_of(reinterpret_cast<T*>(make(bytes, fill)), int64_t{size}...);
  }
  template <class T, class... Size>
  View<T, int{sizeof...(Size)}> upload(const std::vector<T>& values, Size... size) {
    const auto out = array<T>(Fill::zero, size...);
    backend_.copy_in(reinterpret_cast<std::byte*>(out.data), std::as_bytes(std::span(values)));
    return out;
  }
  WeightMatrix weight(WeightFormat format, int64_t n_out, int64_t n_in) {
    WeightMatrix w{.format = format, .n_out = n_out, .n_in = n_in};
    switch (format) {
      case WeightFormat::bf16:
        w.bf16 = array<Bf16>(Fill::bf16, n_out, n_in);
        break;
      case WeightFormat::fp8_block128: {
        w.fp8 = array<Fp8E4m3>(Fill::fp8, n_out, n_in);
        const std::vector<float> scales(static_cast<size_t>(div_up(n_out, 128) * div_up(n_in, 128)),
                                        0.1F);
        w.fp8_scale = upload(scales, div_up(n_out, 128), div_up(n_in, 128));
        break;
      }
      case WeightFormat::int4_group:
        w.group = 32;
        w.int4 = array<uint8_t>(Fill::int4, n_out, n_in / 2);
        w.int4_scale = array<Bf16>(Fill::bf16, n_out, n_in / 32);
        break;
    }
    return w;
  }

  // `call` i of a round; rotate by i where the caches could hold the data.
  void time(const std::string& name, double bytes, const std::function<void(int)>& call) {
    const auto round = [&](int n) {
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < n; ++i) call(i);
      backend_.copy_out({}, nullptr);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    round(4);
    const double guess = round(4) / 4;
    const int n = std::clamp(static_cast<int>(0.02 / guess), 4, 400);
    std::vector<double> seconds;
    for (int i = 0; i < 5; ++i) seconds.push_back(round(n) / n);
    std::sort(seconds.begin(), seconds.end());
    const double floor = bytes / kReadBytesPerSecond;
    std::printf("%-52s %9.2f MB %9.1f us %9.1f us %5.1f %%\n", name.c_str(), bytes / 1e6,
                floor * 1e6, seconds[2] * 1e6, 100 * floor / seconds[2]);
  }

  Backend& backend() { return backend_; }
  void forget() { buffers_.clear(); }

 private:
  static constexpr int64_t kBlockBytes = int64_t{16} << 20;

  Backend& backend_;
  std::vector<std::byte> blocks_[3];
  std::vector<Buffer> buffers_;
};

double bytes_of(const WeightMatrix& w) {
  const auto n = static_cast<double>(w.n_out * w.n_in);
  switch (w.format) {
    case WeightFormat::bf16:
      return 2 * n;
    case WeightFormat::fp8_block128:
      return n;
    case WeightFormat::int4_group:
      return n / 2 + 2 * n / w.group;
  }
  return 0;
}

const char* name_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::fp8_block128:
      return "fp8";
    case WeightFormat::int4_group:
      return "int4 g32";
  }
  return "";
}

constexpr WeightFormat kFormats[] = {WeightFormat::bf16, WeightFormat::fp8_block128,
                                     WeightFormat::int4_group};

void time_rows(Bench& b) {
  const auto x = b.array<Bf16>(Fill::bf16, int64_t{64}, kHidden);
  const auto weight = b.array<Bf16>(Fill::bf16, kHidden);
  b.time("rms_norm 64 x 7168", 4.0 * 64 * kHidden, [&](int) {
    ops::rms_norm(b.backend(), {.out = x, .x = x, .weight = weight, .eps = 1e-6F});
  });
  b.forget();
}

void time_linear(Bench& b) {
  for (const WeightFormat stored : kFormats) {
    for (const int64_t n_tokens : {1, 16, 64, 2048}) {
      std::vector<WeightMatrix> weights;
      for (int i = 0; i < 8; ++i) weights.push_back(b.weight(stored, 2112, kHidden));
      const auto x = b.array<Bf16>(Fill::bf16, n_tokens, kHidden);
      const auto out = b.array<Bf16>(Fill::zero, n_tokens, int64_t{2112});
      const double moved = bytes_of(weights[0]) + static_cast<double>(n_tokens * 2 * (7168 + 2112));
      b.time(
          format("linear %s 2112 x 7168, %d tokens", name_of(stored), static_cast<int>(n_tokens)),
          moved, [&](int i) {
            ops::linear(
                b.backend(),
                {.out = out, .out_f32 = {}, .x = x, .weight = weights[static_cast<size_t>(i % 8)]});
          });
      b.forget();
    }
  }
}

// A pool of `n` sequences of n_tokens each, their pages scattered, every row written by kv_append
// from the same 4,096 random ones.
PagedKv filled_pool(Bench& b, const KvPageLayout& layout, int32_t n, int32_t n_tokens) {
  constexpr int32_t kChunk = 4096;
  const int32_t pages_each = n_tokens / kPageTokens;
  PagedKv kv{.n_pages = int64_t{n} * pages_each, .layout = &layout};
  kv.pool = b.make(kv.n_pages * layout.page_bytes, Fill::zero);
  std::vector<int32_t> pages(static_cast<size_t>(kv.n_pages));
  std::iota(pages.begin(), pages.end(), 0);
  Rng rng(4);
  for (size_t i = pages.size(); i > 1; --i) std::swap(pages[i - 1], pages[rng.next_below(i)]);
  kv.table = b.upload(pages, int64_t{n}, int64_t{pages_each});
  const auto latent = b.array<Bf16>(Fill::bf16, kChunk, kRank);
  const auto rope = b.array<Bf16>(Fill::bf16, kChunk, kRope);
  const auto row = b.array<int32_t>(Fill::zero, kChunk);
  const auto position = b.array<int32_t>(Fill::zero, kChunk);
  for (int64_t first = 0; first < int64_t{n} * n_tokens; first += kChunk) {
    const int64_t count = std::min<int64_t>(kChunk, int64_t{n} * n_tokens - first);
    std::vector<int32_t> rows;
    std::vector<int32_t> positions;
    for (int64_t i = first; i < first + count; ++i) {
      rows.push_back(static_cast<int32_t>(i / n_tokens));
      positions.push_back(static_cast<int32_t>(i % n_tokens));
    }
    b.backend().copy_in(reinterpret_cast<std::byte*>(row.data), std::as_bytes(std::span(rows)));
    b.backend().copy_in(reinterpret_cast<std::byte*>(position.data),
                        std::as_bytes(std::span(positions)));
    const TokenRows tokens{.row = row.rows(0, count), .position = position.rows(0, count)};
    for (int32_t layer = 0; layer < static_cast<int32_t>(layout.blocks.size()); ++layer) {
      ops::kv_append(b.backend(), {.kv = kv,
                                   .tokens = tokens,
                                   .layer = layer,
                                   .latent = latent.rows(0, count),
                                   .rope = rope.rows(0, count)});
    }
  }
  return kv;
}

void time_decode(Bench& b, KvFormat stored, int32_t n, int32_t n_tokens) {
  // Layers keep the caches cold.
  const int64_t layer_bytes =
      int64_t{n} * n_tokens * (stored == KvFormat::bf16 ? 2 * (kRank + kRope) : kRank + kRope + 8);
  const auto n_layers =
      static_cast<int32_t>(std::clamp<int64_t>((int64_t{240} << 20) / layer_bytes, 2, 128));
  const KvPageLayout layout = make_mla_layout(stored, n_layers, kRank, kRope);
  const PagedKv kv = filled_pool(b, layout, n, n_tokens);
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<int32_t> positions(rows.size(), n_tokens - 1);
  const TokenRows tokens{.row = b.upload(rows, int64_t{n}),
                         .position = b.upload(positions, int64_t{n})};
  const auto q_latent = b.array<Bf16>(Fill::bf16, int64_t{n}, kHeads, kRank);
  const auto q_rope = b.array<Bf16>(Fill::bf16, int64_t{n}, kHeads, kRope);
  const auto out = b.array<Bf16>(Fill::zero, int64_t{n}, kHeads, kRank);
  b.time(
      format("mla_attention %s, 8 heads, %d x %d", std::string(name(stored)).c_str(), n, n_tokens),
      static_cast<double>(layer_bytes + int64_t{2} * n * kHeads * (2 * kRank + kRope)), [&](int i) {
        ops::mla_attention(b.backend(), {.out = out,
                                         .q_latent = q_latent,
                                         .q_rope = q_rope,
                                         .kv = kv,
                                         .tokens = tokens,
                                         .layer = i % n_layers,
                                         .scale = 0.1F});
      });
  b.forget();
}

void time_attention(Bench& b) {
  for (const int32_t n_tokens : {1024, 8192, 21504}) {
    for (const int32_t n : {1, 8, 32, 64}) {
      for (const KvFormat stored : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
        time_decode(b, stored, n, n_tokens);
      }
    }
  }
}

// The last `n` tokens of one sequence of `end`.
void time_chunk(Bench& b, KvFormat stored, int32_t n, int32_t end) {
  const int32_t n_pages = end / kPageTokens;
  const KvPageLayout layout = make_mla_layout(stored, 2, kRank, kRope);
  PagedKv kv{.n_pages = n_pages, .layout = &layout};
  kv.pool = b.make(kv.n_pages * layout.page_bytes, Fill::bf16);
  std::vector<int32_t> pages(static_cast<size_t>(n_pages));
  for (size_t i = 0; i < pages.size(); ++i) {
    pages[i] = static_cast<int32_t>((i * 37) % pages.size());
  }
  kv.table = b.upload(pages, int64_t{1}, int64_t{n_pages});
  std::vector<int32_t> positions;
  for (int32_t i = end - n; i < end; ++i) positions.push_back(i);
  const TokenRows tokens{
      .row = b.upload(std::vector<int32_t>(static_cast<size_t>(n), 0), int64_t{n}),
      .position = b.upload(positions, int64_t{n}),
      .row_begin = b.upload(std::vector<int32_t>{0, n}, int64_t{2}),
      .row_tokens_max = n};
  const auto q_latent = b.array<Bf16>(Fill::bf16, int64_t{n}, kHeads, kRank);
  const auto q_rope = b.array<Bf16>(Fill::bf16, int64_t{n}, kHeads, kRope);
  const auto out = b.array<Bf16>(Fill::zero, int64_t{n}, kHeads, kRank);
  b.time(format("mla_attention %s, 8 heads, tokens %d to %d", std::string(name(stored)).c_str(),
                end - n, end),
         static_cast<double>(kv.n_pages * layout.blocks[0].bytes + int64_t{4} * n * kHeads * 576),
         [&](int i) {
           ops::mla_attention(b.backend(), {.out = out,
                                            .q_latent = q_latent,
                                            .q_rope = q_rope,
                                            .kv = kv,
                                            .tokens = tokens,
                                            .layer = i % 2,
                                            .scale = 0.1F});
         });
  TokenRows chunk = tokens;
  chunk.count_row(n, end);
  constexpr int64_t kNope = 128;
  constexpr int64_t kValue = 128;
  const auto q = b.array<Bf16>(Fill::bf16, int64_t{n}, kHeads, kNope + kRope);
  const auto w_uk = b.array<Bf16>(Fill::bf16, kHeads, kNope, kRank);
  const auto w_uv = b.array<Bf16>(Fill::bf16, kHeads, kValue, kRank);
  const auto by_head = b.array<Bf16>(Fill::zero, int64_t{n}, kHeads, kValue);
  b.time(format("mla_prefill_attention %s, 8 heads, tokens %d to %d",
                std::string(name(stored)).c_str(), end - n, end),
         static_cast<double>(kv.n_pages * layout.blocks[0].bytes + int64_t{2} * n * kHeads * 320),
         [&](int i) {
           ops::mla_prefill_attention(b.backend(), {.out = by_head,
                                                    .q_nope = q.columns(0, kNope),
                                                    .q_rope = q.columns(kNope, kRope),
                                                    .w_uk = w_uk,
                                                    .w_uv = w_uv,
                                                    .kv = kv,
                                                    .tokens = chunk,
                                                    .layer = i % 2,
                                                    .scale = 0.07F});
         });
  b.forget();
}

void time_chunks(Bench& b) {
  for (const KvFormat stored : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    time_chunk(b, stored, 8192, 8192);
    time_chunk(b, stored, 2048, 32768);
    time_chunk(b, stored, 256, 8192);
    time_chunk(b, stored, 64, 8192);
  }
}

void time_experts(Bench& b, WeightFormat stored) {
  constexpr int64_t kExperts = 384;
  constexpr int64_t kInner = 256;
  constexpr int64_t kTopK = 8;
  std::vector<ops::ExpertWeights> table;
  for (int64_t e = 0; e < kExperts; ++e) {
    table.push_back({b.weight(stored, kInner, kHidden), b.weight(stored, kInner, kHidden),
                     b.weight(stored, kHidden, kInner)});
  }
  const auto bank = ops::pack_experts(b.backend(), {.routed = table, .shared = {}}).value();
  Rng rng(2);
  for (const int64_t n : {1, 8, 64, 1024}) {
    std::vector<int32_t> experts;
    std::vector<bool> is_used(kExperts);
    for (int64_t i = 0; i < n * kTopK; ++i) {
      experts.push_back(static_cast<int32_t>(rng.next_below(kExperts)));
      is_used[static_cast<size_t>(experts.back())] = true;
    }
    const auto n_used = static_cast<double>(std::count(is_used.begin(), is_used.end(), true));
    const auto chosen = b.upload(experts, n, kTopK);
    const auto weights =
        b.upload(std::vector<float>(static_cast<size_t>(n * kTopK), 0.1F), n, kTopK);
    const auto x = b.array<Bf16>(Fill::bf16, n, kHidden);
    const auto out = b.array<Bf16>(Fill::zero, n, kHidden);
    const double expert_bytes = 2 * bytes_of(table[0].gate) + bytes_of(table[0].down);
    b.time(format("moe_experts %s, %d tokens (%.0f experts)", name_of(stored), static_cast<int>(n),
                  n_used),
           n_used * expert_bytes + 4.0 * static_cast<double>(n) * kHidden, [&](int) {
             ops::moe_experts(
                 b.backend(),
                 {.out = out, .x = x, .experts = chosen, .weights = weights, .bank = bank.get()});
           });
  }
  b.forget();
}

void time_routing(Bench& b) {
  const auto scores = b.array<float>(Fill::zero, int64_t{64}, int64_t{384});
  const auto bias = b.array<float>(Fill::zero, int64_t{384});
  const auto experts = b.array<int32_t>(Fill::zero, int64_t{64}, int64_t{8});
  const auto weights = b.array<float>(Fill::zero, int64_t{64}, int64_t{8});
  b.time("moe_route 64 x 384, top 8", 4.0 * 64 * 384, [&](int) {
    ops::moe_route(
        b.backend(),
        {.experts = experts, .weights = weights, .scores = scores, .bias = bias, .scaling = 2.5F});
  });
  b.forget();
}

void time_sampling(Bench& b) {
  constexpr int64_t kVocab = 163840;
  Rng rng(3);
  std::vector<float> values(static_cast<size_t>(64 * kVocab));
  for (float& x : values) x = 8 * rng.next_float();
  const auto logits = b.upload(values, int64_t{64}, kVocab);
  const auto out = b.array<ops::SampledRow>(Fill::zero, int64_t{64});
  const auto recent = b.array<int32_t>(Fill::zero, int64_t{4}, int64_t{64});
  const auto step = b.array<uint64_t>(Fill::zero, int64_t{1});
  const auto words = b.array<int32_t>(Fill::zero, int64_t{1});
  for (const float top_p : {0.0F, 1.0F, 0.95F}) {
    const SamplerRow row{
        .uniform = 0.5, .temperature = top_p > 0 ? 1.0F : 0.0F, .top_p = top_p > 0 ? top_p : 1.0F};
    const auto rows = b.upload(std::vector<SamplerRow>(64, row), int64_t{64});
    b.time(format("sample 64 x 163840, %s", top_p == 0   ? "greedy"
                                            : top_p == 1 ? "temperature 1"
                                                         : "top-p 0.95"),
           4.0 * 64 * kVocab, [&](int) {
             ops::sample(b.backend(), {.out = out,
                                       .logits = logits,
                                       .rows = rows,
                                       .words = words,
                                       .recent = recent,
                                       .step = step});
           });
  }
  b.forget();
}

void time_moe(Bench& b) {
  time_routing(b);
  for (const WeightFormat stored : kFormats) time_experts(b, stored);
}

struct Family {
  const char* name;
  void (*time)(Bench&);
};
constexpr Family kFamilies[] = {
    {"rows", time_rows},     {"linear", time_linear}, {"attention", time_attention},
    {"chunks", time_chunks}, {"moe", time_moe},       {"sample", time_sampling}};

std::unique_ptr<Backend> make_backend(const std::string& wanted) {
  for (const BackendFactory& factory : backends()) {
    if (factory.name.starts_with(wanted)) return factory.make();
  }
  return nullptr;
}

}  // namespace

}  // namespace quire::ops_test

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "cuda";
  const std::string family = argc > 2 ? argv[2] : "";
  const auto backend = quire::ops_test::make_backend(wanted);
  if (backend == nullptr) {
    std::fprintf(stderr, "time_ops: no backend '%s' here\n", wanted.c_str());
    return 1;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a crash leaves what came before it
  std::printf("%-52s %12s %12s %12s %7s\n", "op", "bytes", "floor", "time", "share");
  quire::ops_test::Bench bench(*backend);
  for (const quire::ops_test::Family& each : quire::ops_test::kFamilies) {
    if (family.empty() || family == each.name) each.time(bench);
  }
  return 0;
}
