// Backend: a machine that computes ops. The seam between the model and a device.
//
// Nothing above this header names a device. Each op has a contract in a header of its own
// (ops/rms_norm.h ...); ops::foo(backend, args) checks the arguments and calls the virtual below,
// which may trust them. Calls are made by one thread, run in order, and on a device return before
// the work is done; `copy_out` waits. Views in arguments are in the backend's memory unless the
// contract says host. A backend has no model state.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "ops/stopwatch.h"
#include "ops/upload.h"
#include "tensor/buffer.h"

namespace quire {

class PageSealer;
struct KvPageLayout;

namespace ops {
struct Embed;
struct RmsNorm;
struct AddRmsNorm;
struct Linear;
struct LinearPair;
struct Add;
struct SiluMul;
struct Rope;
struct KvAppend;
struct AppendLatent;
struct AbsorbQuery;
struct ExpandValue;
struct MlaAttention;
struct MlaPrefillAttention;
struct MoeExperts;
struct ExpertTable;
class ExpertBank;
struct GatherRows;
struct OpenStep;
struct CheckPages;
struct PlaceTokens;
struct Sample;
struct RandomFill;
}  // namespace ops

// Bytes of a backend's memory.
struct MemoryInfo {
  int64_t free = 0;   // what can be allocated now
  int64_t total = 0;  // what the device, or the machine, has
};

// All pages of a KV pool, in a backend's memory.
struct PoolPages {
  std::byte* data = nullptr;  // [n_pages, layout->page_bytes]
  int64_t n_pages = 0;
  const KvPageLayout* layout = nullptr;  // host; outlives what is made for the pool
};

// A point in the order of a backend's calls, which the host may ask about.
class Fence {
 public:
  virtual ~Fence() = default;
  // Behind every call so far; no longer where it was before.
  virtual void set() = 0;
  // Whether everything before it is done; so it is before the first set().
  virtual bool is_passed() const = 0;
  virtual void wait() const = 0;
};

// Names calls that a backend has recorded.
struct RecordingId {
  int32_t value = -1;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;

  // Memory that this backend's ops can read and write. Outlives every Buffer made from it.
  virtual Memory& memory() = 0;
  virtual MemoryInfo memory_info() = 0;
  // True when ops read ordinary host memory too, so that weights need not be copied out of a mapped
  // file. Such memory is aligned to its elements only, not to kBufferAlignment.
  virtual bool reads_host_memory() const { return false; }
  // Ordered with the ops around it.
  virtual void copy_in(std::byte* to, std::span<const std::byte> from_host) = 0;
  // Waits for all earlier work, then copies.
  virtual void copy_out(std::span<std::byte> to_host, const std::byte* from) = 0;
  virtual void fill(std::byte* to, int64_t bytes, std::byte value) = 0;
  // Reads host memory with up to `n_threads` threads, where the backend has use for them; does not
  // outlive the backend.
  virtual std::unique_ptr<Upload> start_upload(int n_threads);
  virtual void random_fill(const ops::RandomFill& args) = 0;

  // With room for `n_marks` > 0. Inside work that is recorded, a mark is taken anew each time the
  // recording runs. Does not outlive the backend. By default the host's clock, which is right
  // where calls return when their work is done.
  virtual std::unique_ptr<Stopwatch> make_stopwatch(int32_t n_marks);

  // True when an ExpertBank reads the matrices that it was made from, which must then outlive it.
  virtual bool keeps_raw_experts() const { return false; }
  virtual Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable& table) = 0;

  // True when calls return before their work is done: the host does well to give the next step
  // before it asks for the results of this one.
  virtual bool is_asynchronous() const { return false; }
  // Host memory that `send` and `fetch` copy from and to. Outlives every Buffer made from it.
  virtual Memory& host_memory() { return memory(); }
  // copy_in from host_memory(), straight: `from_host` stays as it is until a fence set afterwards
  // has been passed.
  virtual void send(std::byte* to, std::span<const std::byte> from_host) { copy_in(to, from_host); }
  // copy_out to host_memory() without waiting: complete when a fence set afterwards has been
  // passed.
  virtual void fetch(std::span<std::byte> to_host, const std::byte* from) {
    copy_out(to_host, from);
  }
  // copy_out to host_memory() of bytes that no unfinished call writes: waits for none of them.
  virtual void copy_out_settled(std::span<std::byte> to_host, const std::byte* from) {
    copy_out(to_host, from);
  }
  virtual std::unique_ptr<Fence> make_fence();
  // For pages of `pool`, which outlives it, as the backend does. By default the host hashes.
  // Errors: resource_exhausted.
  virtual Result<std::unique_ptr<PageSealer>> make_page_sealer(const PoolPages& pool);
  // Keeps what `calls` asks of this backend, so that `replay` asks the same again, on the same
  // memory, at the cost of one call. Whether it is also carried out now is not said: the same calls
  // were made once before, and what they write does not matter. Only ops, `fill` and copies within
  // the device can be recorded. Errors: unsupported.
  virtual Result<RecordingId> record(const std::function<void()>& calls);
  virtual void replay(RecordingId recording);
  // What a recording has a device do: kernels, copies and fills, one by one. 0 where there is none.
  virtual int64_t recorded_nodes(RecordingId /*recording*/) const { return 0; }

  virtual void embed(const ops::Embed& args) = 0;
  virtual void rms_norm(const ops::RmsNorm& args) = 0;
  virtual void add_rms_norm(const ops::AddRmsNorm& args) = 0;
  virtual void linear(const ops::Linear& args) = 0;
  virtual void linear_pair(const ops::LinearPair& args) = 0;
  virtual void add(const ops::Add& args) = 0;
  virtual void silu_mul(const ops::SiluMul& args) = 0;
  virtual void rope(const ops::Rope& args) = 0;
  virtual void kv_append(const ops::KvAppend& args) = 0;
  virtual void append_latent(const ops::AppendLatent& args) = 0;
  virtual void absorb_query(const ops::AbsorbQuery& args) = 0;
  virtual void expand_value(const ops::ExpandValue& args) = 0;
  virtual void mla_attention(const ops::MlaAttention& args) = 0;
  virtual void mla_prefill_attention(const ops::MlaPrefillAttention& args) = 0;
  // Whether it is the better form of attention for the chunks of this step. Where bytes must not
  // depend on how a prompt is cut, never.
  virtual bool attends_by_head(const ops::MlaPrefillAttention& /*args*/) const { return false; }
  virtual void moe_experts(const ops::MoeExperts& args) = 0;
  virtual void gather_rows(const ops::GatherRows& args) = 0;
  virtual void open_step(const ops::OpenStep& args) = 0;
  virtual void check_pages(const ops::CheckPages& args) = 0;
  virtual void place_tokens(const ops::PlaceTokens& args) = 0;
  virtual void sample(const ops::Sample& args) = 0;
};

// A Buffer of `bytes` (> 0), or resource_exhausted naming `what`.
Result<Buffer> allocate(Backend& backend, int64_t bytes, std::string_view what);
// The same, of the backend's host memory.
Result<Buffer> allocate_host(Backend& backend, int64_t bytes, std::string_view what);

}  // namespace quire
