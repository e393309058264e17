// OpBench: times single ops on a backend, caches cold, beside the bytes they have to move.
//
// A row is a call that is made over and over with a number that says which copy of its data to use:
// rows keep enough copies that none is still in a cache when its turn comes again. Calls are
// recorded and replayed, so that the time is the device's and not that of submitting. Arrays hold
// random values; never zeros, which some hardware multiplies faster.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "ops/backend.h"
#include "ops/weight_matrix.h"
#include "tensor/buffer.h"

namespace quire {

class OpBench {
 public:
  // What an array is full of. `zero` is for results and for indices that are written later.
  enum class Fill : uint8_t { bf16, fp8, int4, zero };

  struct Options {
    std::optional<double> bytes_per_second;  // the read ceiling: no floors without it
    std::string filter;                      // only rows whose name contains it
    bool prints = true;                      // rows, as they come
  };

  OpBench(Backend& backend, Options options);

  Backend& backend() { return backend_; }

  // Memory of the rows that come; `forget` gives it back.
  std::byte* make(int64_t bytes, Fill fill);
  void forget() { buffers_.clear(); }
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
  WeightMatrix weight(WeightFormat format, int64_t n_out, int64_t n_in);

  // Whether a row of this name is wanted: asked before its data is made.
  bool wants(const std::string& name) const;
  // Whether a row whose name begins with `prefix` may be wanted.
  bool wants_any(const std::string& prefix) const;
  // Times `call`, which moves `bytes`. Its argument counts calls; it says which copies to use.
  void time(const std::string& name, double bytes, const std::function<void(int)>& call);

  // {"op", "mb", "us", "us_min", "us_max"} and, with a ceiling, "floor_us" and "share".
  const Json& rows() const { return rows_; }

 private:
  std::vector<double> measure(const std::function<void(int)>& call);

  Backend& backend_;
  const Options options_;
  std::vector<std::byte> blocks_[3];  // random values to fill with, by Fill
  std::vector<Buffer> buffers_;
  std::unique_ptr<Stopwatch> stopwatch_;
  Json rows_ = Json::array();
};

// The table: every op at the shapes of one of eight tensor-parallel ranks of Kimi K2 (hidden 7168,
// 8 heads, 384 experts of 256), 1 to 64 tokens as in decode and a chunk as in prefill.
void bench_ops(OpBench& bench);

}  // namespace quire
