// The cases of every op, in one place: shapes (ragged, odd, empty, at page boundaries) and the
// values they are filled with. Seeded: a case is the same on every machine and backend.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/rng.h"
#include "ops/moe.h"
#include "ops/place_tokens.h"

namespace quire::ops_test {

enum class Values {
  normal,    // about N(0, 1)
  large,     // about 1e15: squares stay within float32
  denormal,  // below 2^-126
  outliers,  // mostly N(0, 1), one value in 50 a thousand times that
  zero,
};

void fill(Rng& rng, Values values, std::span<Bf16> out);
void fill(Rng& rng, Values values, std::span<float> out);

template <class T, int Rank>
HostArray<T, Rank> filled(Rng& rng, Values values, HostArray<T, Rank> array) {
  fill(rng, values, array.values);
  return array;
}

// Ops on rows of one array.
struct RowsCase {
  int64_t n_tokens;
  int64_t dim;
  Values values;
};
std::vector<RowsCase> rows_cases();

struct LinearCase {
  int64_t n_tokens;
  int64_t n_in;
  int64_t n_out;
  WeightFormat format;
  int group = 0;
  Activation activation = Activation::bf16;
  Values values = Values::normal;
};
std::vector<LinearCase> linear_cases();
std::string describe(const LinearCase& c);

// The bytes of a weight and the views on them, on the host; `on` gives the views on a backend.
struct HostWeight {
  WeightMatrix matrix;  // host views; valid as long as this object stays where it is
  HostArray<Bf16, 2> bf16, int4_scale;
  HostArray<Fp8E4m3, 2> fp8;
  HostArray<float, 2> fp8_scale;
  HostArray<uint8_t, 2> int4;
};
std::unique_ptr<HostWeight> make_weight(Rng& rng, const LinearCase& c);

struct DeviceWeight {
  WeightMatrix matrix;
  std::vector<Buffer> buffers;
};
DeviceWeight on(Backend& backend, const HostWeight& weight);

// A pool with sequences in it, their pages scattered. Everything that holds no token is 0xff: NaN
// in every format.
struct CacheCase {
  KvFormat format;
  int32_t rank;
  int32_t rope_dim;
  int64_t n_heads;
  // Rows of the step: tokens [begin, end) of each sequence are its queries; [0, end) is cached.
  struct Row {
    int32_t begin;
    int32_t end;
  };
  std::vector<Row> rows;
  Values values = Values::normal;
};
std::vector<CacheCase> cache_cases();
// Steps with rows of several tokens.
std::vector<CacheCase> chunk_cases();
std::string describe(const CacheCase& c);

class Cache {
 public:
  Cache(Rng& rng, const CacheCase& c);

  PagedKv host();
  PagedKv on(Backend& backend);  // a copy; the last one is kept alive by this
  // The rows of the step, as the views and the host's knowledge of them.
  TokenRows rows() const;
  // The same of copies on a backend: row, position and row_begin are theirs.
  TokenRows rows(const TokenRows& copies) const;
  // What a copy on `backend` holds now.
  std::vector<std::byte> pool_of(Backend& backend, const PagedKv& kv) const;

  KvPageLayout layout;
  int32_t layer = 1;            // of two
  std::vector<std::byte> pool;  // 0xff everywhere: append_reference fills it
  HostArray<int32_t, 2> table;
  HostArray<int32_t, 1> row, position;          // of the queries
  HostArray<int32_t, 1> row_begin;              // where each row's queries begin, and their count
  HostArray<int32_t, 1> all_row, all_position;  // of every cached token
  HostArray<Bf16, 2> latent, rope;              // of every cached token

 private:
  std::vector<Buffer> pools_;
  std::vector<DeviceArray<int32_t, 2>> tables_;
};

// Where the tokens are stored, as ops::place_tokens finds it on a backend.
DeviceArray<TokenPlace, 1> places_on(Backend& backend, const PagedKv& kv, const TokenRows& tokens,
                                     const WriteGuard& guard = {});

struct MoeCase {
  int64_t n_tokens;
  int64_t hidden;
  int64_t inner;
  int64_t n_experts;
  int64_t top_k;
  WeightFormat format;
  int group = 0;
  Activation activation = Activation::bf16;
  int64_t shared_inner = 0;  // 0: no shared expert
  WeightFormat shared_format = WeightFormat::bf16;
};
std::vector<MoeCase> moe_cases();
std::string describe(const MoeCase& c);

// The experts of a case: their matrices on the host, and copies of them on backends.
class Experts {
 public:
  Experts(Rng& rng, const MoeCase& c);

  ops::ExpertTable host() const;
  // The raw copies are kept alive by this.
  std::unique_ptr<ops::ExpertBank> pack(Backend& backend);

 private:
  std::vector<std::unique_ptr<HostWeight>> weights_;  // gate, up, down of each; the shared last
  std::vector<ops::ExpertWeights> host_;
  int64_t n_routed_;
  std::vector<DeviceWeight> copies_;
};

}  // namespace quire::ops_test
