#include "cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/bytes.h"
#include "base/text.h"
#include "ops/kv_append.h"
#include "reference.h"

namespace quire::ops_test {

namespace {

// Close to N(0, 1): the sum of four uniforms, scaled to unit variance.
float normal(Rng& rng) {
  float sum = -2.0F;
  for (int i = 0; i < 4; ++i) sum += rng.next_float();
  return sum * 1.7320508F;
}

float draw(Rng& rng, Values values) {
  const float x = normal(rng);
  switch (values) {
    case Values::normal:
      return x;
    case Values::large:
      return x * 1e15F;
    case Values::denormal:
      return x * 0x1p-129F;
    case Values::outliers:
      return rng.next_below(50) == 0 ? x * 1000.0F : x;
    case Values::zero:
      return 0;
  }
  return 0;
}

}  // namespace

void fill(Rng& rng, Values values, std::span<Bf16> out) {
  for (Bf16& x : out) x = to_bf16(draw(rng, values));
}

void fill(Rng& rng, Values values, std::span<float> out) {
  for (float& x : out) x = draw(rng, values);
}

std::vector<RowsCase> rows_cases() {
  return {{0, 256, Values::normal},  {1, 1, Values::normal},      {1, 7168, Values::normal},
          {3, 17, Values::normal},   {16, 256, Values::normal},   {5, 512, Values::outliers},
          {7, 64, Values::denormal}, {4, 100, Values::large},     {130, 33, Values::normal},
          {2, 256, Values::zero},    {64, 1000, Values::outliers}};
}

std::vector<LinearCase> linear_cases() {
  std::vector<LinearCase> out;
  const auto each_format = [&](LinearCase c) {
    c.format = WeightFormat::bf16;
    out.push_back(c);
    c.format = WeightFormat::fp8_block128;
    out.push_back(c);
    c.activation = Activation::fp8_group128;
    out.push_back(c);
    c.activation = Activation::bf16;
    c.format = WeightFormat::int4_group;
    for (const int group : {32, 128}) {
      c.group = group;
      if (c.n_in % group == 0) out.push_back(c);
    }
  };
  const WeightFormat any = WeightFormat::bf16;
  each_format({0, 128, 64, any});
  each_format({1, 256, 64, any});
  each_format({1, 1, 1, any});
  each_format({2, 31, 5, any});
  each_format({3, 129, 130, any});
  each_format({4, 384, 257, any});
  each_format({16, 256, 128, any});
  each_format({67, 160, 33, any});
  each_format({130, 128, 16, any});
  each_format({1, 2048, 37, any});
  // Rows at 16 bytes, around 8, 16 and 64 tokens; sums that several blocks share.
  each_format({8, 1024, 130, any});
  each_format({12, 2048, 72, any});
  each_format({33, 1152, 200, any});
  each_format({64, 640, 65, any});
  each_format({1, 7168, 96, any});
  // More of a sum than a block's ring holds; several tiles of tokens.
  each_format({33, 7168, 16, any});
  each_format({260, 640, 24, any});
  // Few rows; as many blocks as a device has multiprocessors.
  out.push_back({20, 2048, 300, WeightFormat::bf16});
  out.push_back({17, 1152, 200, WeightFormat::bf16});
  out.push_back({24, 7168, 96, WeightFormat::bf16});
  out.push_back({25, 640, 130, WeightFormat::bf16});
  out.push_back({32, 1536, 72, WeightFormat::bf16});
  out.push_back({2, 7168, 2112, WeightFormat::bf16});
  // Of a decode step with many requests: tiles of 32 and 64 tokens, of few outputs and of more.
  out.push_back({26, 1096, 650, WeightFormat::bf16});
  out.push_back({32, 2048, 1000, WeightFormat::bf16});
  out.push_back({40, 1536, 776, WeightFormat::bf16});
  out.push_back({48, 3072, 384, WeightFormat::bf16});
  out.push_back({64, 7168, 2112, WeightFormat::bf16});
  for (const Values values : {Values::outliers, Values::denormal, Values::large, Values::zero}) {
    LinearCase c{5, 256, 19, any};
    c.values = values;
    each_format(c);
  }
  return out;
}

namespace {

const char* format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::bf16:
      return "bf16";
    case WeightFormat::fp8_block128:
      return "fp8";
    case WeightFormat::int4_group:
      return "int4";
  }
  return "";
}

}  // namespace

std::string describe(const LinearCase& c) {
  return format("%s group %d %s: %d tokens, %d in, %d out, values %d", format_name(c.format),
                c.group, c.activation == Activation::bf16 ? "bf16" : "fp8_group128",
                static_cast<int>(c.n_tokens), static_cast<int>(c.n_in), static_cast<int>(c.n_out),
                static_cast<int>(c.values));
}

std::unique_ptr<HostWeight> make_weight(Rng& rng, const LinearCase& c) {
  auto weight = std::make_unique<HostWeight>();
  WeightMatrix& m = weight->matrix;
  m.format = c.format;
  m.n_out = c.n_out;
  m.n_in = c.n_in;
  const float size = 1.0F / std::sqrt(static_cast<float>(c.n_in));
  switch (c.format) {
    case WeightFormat::bf16:
      weight->bf16 = HostArray<Bf16, 2>(c.n_out, c.n_in);
      for (Bf16& w : weight->bf16.values) w = to_bf16(normal(rng) * size);
      m.bf16 = std::as_const(weight->bf16).view();
      break;
    case WeightFormat::fp8_block128:
      weight->fp8 = HostArray<Fp8E4m3, 2>(c.n_out, c.n_in);
      weight->fp8_scale = HostArray<float, 2>(div_up(c.n_out, 128), div_up(c.n_in, 128));
      for (Fp8E4m3& w : weight->fp8.values) w = to_fp8_e4m3(normal(rng) * 100);
      for (float& s : weight->fp8_scale.values) s = size / 100 * (0.5F + rng.next_float());
      m.fp8 = std::as_const(weight->fp8).view();
      m.fp8_scale = std::as_const(weight->fp8_scale).view();
      break;
    case WeightFormat::int4_group:
      m.group = c.group;
      weight->int4 = HostArray<uint8_t, 2>(c.n_out, c.n_in / 2);
      weight->int4_scale = HostArray<Bf16, 2>(c.n_out, c.n_in / c.group);
      for (uint8_t& w : weight->int4.values) w = static_cast<uint8_t>(rng.next_below(256));
      for (Bf16& s : weight->int4_scale.values) {
        s = to_bf16(size / 4 * (0.5F + rng.next_float()));
      }
      m.int4 = std::as_const(weight->int4).view();
      m.int4_scale = std::as_const(weight->int4_scale).view();
      break;
  }
  return weight;
}

namespace {

template <class T>
View<const T, 2> upload(Backend& backend, View<const T, 2> from, std::vector<Buffer>* buffers) {
  if (from.data == nullptr) return {};
  const int64_t bytes = from.size() * static_cast<int64_t>(sizeof(T));
  buffers->push_back(allocate(backend, bytes, "a test weight").value());
  backend.copy_in(buffers->back().data(),
                  std::as_bytes(std::span(from.data, static_cast<size_t>(from.size()))));
  View<const T, 2> out = from;
  out.data = reinterpret_cast<const T*>(buffers->back().data());
  return out;
}

}  // namespace

DeviceWeight on(Backend& backend, const HostWeight& weight) {
  DeviceWeight out;
  out.matrix = weight.matrix;
  out.matrix.bf16 = upload(backend, weight.matrix.bf16, &out.buffers);
  out.matrix.fp8 = upload(backend, weight.matrix.fp8, &out.buffers);
  out.matrix.fp8_scale = upload(backend, weight.matrix.fp8_scale, &out.buffers);
  out.matrix.int4 = upload(backend, weight.matrix.int4, &out.buffers);
  out.matrix.int4_scale = upload(backend, weight.matrix.int4_scale, &out.buffers);
  return out;
}

std::vector<CacheCase> cache_cases() {
  std::vector<CacheCase> out;
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    out.push_back({format, 512, 64, 8, {}});
    out.push_back({format, 512, 64, 1, {{0, 1}}});
    out.push_back({format, 512, 64, 8, {{63, 64}, {64, 65}, {0, 3}, {127, 130}}});
    out.push_back({format, 512, 64, 64, {{60, 66}}});
    out.push_back({format, 512, 64, 3, {{200, 201}, {0, 70}}});
    // Long rows beside short ones: their pages are shared among blocks.
    out.push_back(
        {format, 512, 64, 8, {{2999, 3000}, {63, 64}, {1087, 1088}, {0, 1}, {4095, 4097}}});
    out.push_back({format, 512, 64, 16, {{1500, 1501}, {129, 130}}});
    out.push_back({format, 32, 16, 2, {{0, 129}, {5, 6}}});
    out.push_back({format, 24, 10, 5, {{100, 140}}});
    for (const Values values : {Values::outliers, Values::denormal, Values::zero}) {
      out.push_back({format, 512, 64, 4, {{61, 67}}, values});
    }
  }
  return out;
}

std::vector<CacheCase> chunk_cases() {
  std::vector<CacheCase> out;
  for (const KvFormat format : {KvFormat::bf16, KvFormat::fp8_e4m3_584}) {
    out.push_back({format, 512, 64, 8, {{0, 2}}});
    out.push_back({format, 512, 64, 8, {{60, 70}, {63, 64}, {7, 7}, {0, 130}, {200, 201}}});
    out.push_back({format, 512, 64, 8, {{99, 100}, {0, 1}, {300, 311}, {64, 65}}});
    out.push_back({format, 512, 64, 16, {{300, 333}, {0, 1}, {61, 130}}});
    out.push_back({format, 512, 64, 64, {{62, 67}, {128, 129}}});
    out.push_back({format, 512, 64, 70, {{62, 65}}});  // more heads than a tile has rows
    out.push_back({format, 512, 64, 3, {{200, 201}, {0, 70}}});
    out.push_back({format, 512, 64, 1, {{0, 150}}});
    out.push_back({format, 32, 16, 64, {{0, 270}}});  // enough tokens for no splits
    out.push_back({format, 24, 10, 5, {{100, 140}, {0, 9}}});
    for (const Values values : {Values::outliers, Values::denormal, Values::zero}) {
      out.push_back({format, 512, 64, 4, {{61, 67}}, values});
    }
  }
  return out;
}

std::string describe(const CacheCase& c) {
  std::string out =
      format("%s rank %d rope %d, %d heads, values %d:", std::string(name(c.format)).c_str(),
             c.rank, c.rope_dim, static_cast<int>(c.n_heads), static_cast<int>(c.values));
  for (const CacheCase::Row& row : c.rows) out += format(" [%d, %d)", row.begin, row.end);
  return out;
}

Cache::Cache(Rng& rng, const CacheCase& c)
    : layout(make_mla_layout(c.format, 2, c.rank, c.rope_dim)) {
  int64_t n_pages = 0;
  int64_t pages_max = 1;
  int64_t n_cached = 0;
  int64_t n_queries = 0;
  for (const CacheCase::Row& r : c.rows) {
    n_pages += div_up(r.end, kPageTokens);
    pages_max = std::max(pages_max, div_up(r.end, kPageTokens));
    n_cached += r.end;
    n_queries += r.end - r.begin;
  }
  std::vector<int32_t> free_pages(static_cast<size_t>(n_pages + 3));
  std::iota(free_pages.begin(), free_pages.end(), 0);
  for (size_t i = free_pages.size(); i > 1; --i) {
    std::swap(free_pages[i - 1], free_pages[rng.next_below(i)]);
  }
  pool.assign(free_pages.size() * static_cast<size_t>(layout.page_bytes), std::byte{0xff});
  table = HostArray<int32_t, 2>(static_cast<int64_t>(c.rows.size()), pages_max);
  std::fill(table.values.begin(), table.values.end(), -1);
  row = position = HostArray<int32_t, 1>(n_queries);
  row_begin = HostArray<int32_t, 1>(table[0] + 1);
  all_row = all_position = HostArray<int32_t, 1>(n_cached);
  size_t query = 0;
  size_t cached = 0;
  for (int32_t r = 0; r < static_cast<int32_t>(c.rows.size()); ++r) {
    const CacheCase::Row& range = c.rows[static_cast<size_t>(r)];
    for (int64_t page = 0; page < div_up(range.end, kPageTokens); ++page) {
      table.view()(r, page) = free_pages.back();
      free_pages.pop_back();
    }
    for (int32_t p = 0; p < range.end; ++p, ++cached) {
      all_row.values[cached] = r;
      all_position.values[cached] = p;
      if (p < range.begin) continue;
      row.values[query] = r;
      position.values[query++] = p;
    }
    row_begin.values[static_cast<size_t>(r) + 1] = static_cast<int32_t>(query);
  }
  latent = filled(rng, c.values, HostArray<Bf16, 2>(n_cached, c.rank));
  rope = filled(rng, c.values, HostArray<Bf16, 2>(n_cached, c.rope_dim));
}

TokenRows Cache::rows() const {
  return rows({.row = row.view(), .position = position.view(), .row_begin = row_begin.view()});
}

TokenRows Cache::rows(const TokenRows& copies) const {
  TokenRows out = copies;
  for (size_t r = 1; r < row_begin.values.size(); ++r) {
    const int32_t end = row_begin.values[r];
    const int32_t n = end - row_begin.values[r - 1];
    if (n > 0) out.count_row(n, position.values[static_cast<size_t>(end) - 1] + 1);
  }
  return out;
}

PagedKv Cache::host() {
  return {.pool = pool.data(),
          .n_pages = static_cast<int64_t>(pool.size()) / layout.page_bytes,
          .layout = &layout,
          .table = std::as_const(table).view()};
}

PagedKv Cache::on(Backend& backend) {
  pools_.push_back(allocate(backend, static_cast<int64_t>(pool.size()), "a test KV pool").value());
  backend.copy_in(pools_.back().data(), pool);
  tables_.emplace_back(backend, table);
  PagedKv out = host();
  out.pool = pools_.back().data();
  out.table = tables_.back().constant();
  return out;
}

std::vector<std::byte> Cache::pool_of(Backend& backend, const PagedKv& kv) const {
  std::vector<std::byte> out(pool.size());
  backend.copy_out(out, kv.pool);
  return out;
}

DeviceArray<TokenPlace, 1> places_on(Backend& backend, const PagedKv& kv, const TokenRows& tokens,
                                     const WriteGuard& guard) {
  auto places = DeviceArray<TokenPlace, 1>::poisoned(backend, {tokens.row[0]});
  ops::place_tokens(backend, {.out = places.view(), .kv = kv, .tokens = tokens, .guard = guard});
  backend.copy_out({}, nullptr);  // waits: append_latent may look at them ahead of its turn
  return places;
}

std::vector<MoeCase> moe_cases() {
  std::vector<MoeCase> out;
  const WeightFormat bf16 = WeightFormat::bf16;
  const WeightFormat fp8 = WeightFormat::fp8_block128;
  const WeightFormat int4 = WeightFormat::int4_group;
  const Activation rounded = Activation::fp8_group128;
  out.push_back({0, 64, 32, 4, 2, bf16});
  out.push_back({1, 256, 128, 16, 4, bf16});
  out.push_back({16, 256, 128, 16, 4, bf16, 0, Activation::bf16, 64});
  out.push_back({7, 33, 17, 5, 1, bf16, 0, Activation::bf16, 19});
  out.push_back({70, 64, 48, 3, 3, bf16});
  out.push_back({9, 128, 256, 6, 2, fp8});
  out.push_back({9, 128, 256, 6, 2, fp8, 0, rounded});
  out.push_back({5, 200, 72, 4, 2, fp8, 0, rounded, 40, bf16});
  out.push_back({5, 200, 72, 4, 2, fp8, 0, rounded, 136, fp8});
  out.push_back({9, 128, 128, 6, 2, int4, 32});
  out.push_back({9, 256, 128, 6, 2, int4, 128, Activation::bf16, 128, bf16});
  out.push_back({66, 256, 96, 6, 2, int4, 32, Activation::bf16, 96, int4});
  // The lengths of a rank of eight of Kimi K2, with few experts.
  out.push_back({2, 7168, 256, 3, 2, int4, 32, Activation::bf16, 256, bf16});
  out.push_back({1, 7168, 256, 3, 2, fp8, 0, rounded, 256, fp8});
  out.push_back({1, 7168, 256, 3, 2, int4, 32, Activation::bf16, 256, bf16});
  out.push_back({1, 7168, 256, 3, 2, fp8, 0, Activation::bf16, 256, fp8});
  // A handful of tokens: as many pairs as one launch takes, with more tiles than its blocks take at
  // once, and a shared expert with more.
  out.push_back({4, 1024, 64, 40, 8, int4, 32, Activation::bf16, 64, bf16});
  out.push_back({4, 64, 320, 70, 16, int4, 32, Activation::bf16, 0, bf16});
  out.push_back({3, 192, 48, 20, 7, fp8, 0, Activation::bf16, 1200, bf16});
  out.push_back({4, 320, 136, 12, 5, bf16, 0, Activation::bf16, 96, int4});
  out.push_back({5, 1024, 64, 40, 8, int4, 32, Activation::bf16, 64, bf16});
  out.push_back({6, 7168, 256, 3, 2, int4, 32, Activation::bf16, 256, bf16});
  out.push_back({8, 7168, 256, 3, 2, int4, 128, Activation::bf16, 256, bf16});
  out.push_back({8, 512, 256, 70, 8, int4, 32, Activation::bf16, 256, bf16});
  out.push_back({7, 192, 48, 20, 7, fp8, 0, Activation::bf16, 1200, bf16});
  out.push_back({8, 512, 256, 60, 8, fp8, 0, Activation::bf16, 256, fp8});
  out.push_back({8, 320, 136, 12, 5, bf16, 0, Activation::bf16, 96, int4});
  // Around the numbers of tokens at which kernels change.
  for (const int64_t n_tokens : {8, 17, 33, 64}) {
    out.push_back({n_tokens, 512, 64, 5, 2, int4, 32, Activation::bf16, 64, bf16});
  }
  // As many experts as make whole groups of tiles the pieces of a decode step, with few rows and
  // many.
  for (const int64_t n_tokens : {9, 30, 40, 64}) {
    out.push_back({n_tokens, 320, 256, 60, 8, int4, 32, Activation::bf16, 256, bf16});
    out.push_back({n_tokens, 320, 256, 60, 8, fp8, 0, Activation::bf16, 256, fp8});
    out.push_back({n_tokens, 320, 200, 60, 8, bf16, 0, Activation::bf16, 64, int4});
  }
  out.push_back({150, 320, 72, 3, 2, fp8, 0, rounded, 40, bf16});
  out.push_back({150, 320, 96, 3, 2, int4, 32, Activation::bf16, 40, fp8});
  out.push_back({150, 328, 72, 9, 2, bf16, 0, Activation::bf16, 64, bf16});
  // Prompts: many tokens an expert, few, and none.
  out.push_back({200, 320, 72, 3, 2, fp8, 0, rounded, 40, bf16});
  out.push_back({200, 320, 72, 3, 2, fp8, 0, Activation::bf16, 136, fp8});
  out.push_back({260, 320, 96, 40, 2, int4, 32, Activation::bf16, 40, fp8});
  out.push_back({230, 384, 256, 3, 2, int4, 128, Activation::bf16, 128, int4});
  out.push_back({200, 33, 17, 5, 1, bf16, 0, Activation::bf16, 19, bf16});
  return out;
}

std::string describe(const MoeCase& c) {
  return format("%s group %d %s: %d tokens, hidden %d, inner %d, %d of %d experts, shared %s %d",
                format_name(c.format), c.group,
                c.activation == Activation::bf16 ? "bf16" : "fp8_group128",
                static_cast<int>(c.n_tokens), static_cast<int>(c.hidden), static_cast<int>(c.inner),
                static_cast<int>(c.top_k), static_cast<int>(c.n_experts),
                format_name(c.shared_format), static_cast<int>(c.shared_inner));
}

Experts::Experts(Rng& rng, const MoeCase& c) : n_routed_(c.n_experts) {
  const int64_t n_all = c.n_experts + (c.shared_inner > 0 ? 1 : 0);
  for (int64_t e = 0; e < n_all; ++e) {
    const bool is_shared = e == c.n_experts;
    const int64_t inner = is_shared ? c.shared_inner : c.inner;
    std::array<WeightMatrix, 3> parts;
    for (const bool is_down : {false, false, true}) {
      weights_.push_back(make_weight(rng, {.n_tokens = 0,
                                           .n_in = is_down ? inner : c.hidden,
                                           .n_out = is_down ? c.hidden : inner,
                                           .format = is_shared ? c.shared_format : c.format,
                                           .group = is_shared ? 32 : c.group}));
      parts[(weights_.size() - 1) % 3] = weights_.back()->matrix;
    }
    host_.push_back({parts[0], parts[1], parts[2]});
  }
}

ops::ExpertTable Experts::host() const {
  const auto n = static_cast<size_t>(n_routed_);
  ops::ExpertTable table{.routed = std::span(host_).first(n), .shared = {}};
  if (host_.size() > n) table.shared = host_.back();
  return table;
}

std::unique_ptr<ops::ExpertBank> Experts::pack(Backend& backend) {
  std::vector<ops::ExpertWeights> all;
  for (size_t i = 0; i < weights_.size(); i += 3) {
    const size_t at = copies_.size();
    for (size_t part = 0; part < 3; ++part) copies_.push_back(on(backend, *weights_[i + part]));
    all.push_back({copies_[at].matrix, copies_[at + 1].matrix, copies_[at + 2].matrix});
  }
  ops::ExpertTable table = host();
  if (table.shared) table.shared = all.back();
  table.routed = std::span(all).first(table.routed.size());
  std::unique_ptr<ops::ExpertBank> bank = ops::pack_experts(backend, table).value();
  if (!backend.keeps_raw_experts()) {
    for (const DeviceWeight& copy : copies_) {
      for (const Buffer& raw : copy.buffers) backend.fill(raw.data(), raw.bytes(), std::byte{0xff});
    }
  }
  return bank;
}

}  // namespace quire::ops_test
