#include "cuda/cuda_backend.h"

#include "base/text.h"
#include "cuda/common/context.h"
#include "cuda/common/cuda_must.h"
#include "cuda/common/event_stopwatch.h"
#include "cuda/common/pinned_memory.h"
#include "cuda/common/pinned_upload.h"
#include "cuda/common/recordings.h"
#include "cuda/gemm/blas.h"
#include "cuda/integrity/page_sealer.h"
#include "cuda/kernels.h"
#include "cuda/moe/moe_experts.h"

namespace quire {

namespace {

// Enough for the ops of a decode step of the largest models; larger prefill chunks grow it once.
constexpr int64_t kWorkspaceBytes = int64_t{256} << 20;

class Stream {
 public:
  explicit Stream(int device) {
    CUDA_MUST(cudaSetDevice(device));
    CUDA_MUST(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Stream() { CUDA_MUST(cudaStreamDestroy(stream_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaFence final : public Fence {
 public:
  explicit CudaFence(cudaStream_t stream) : stream_(stream) {
    CUDA_MUST(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
  }
  ~CudaFence() override { CUDA_MUST(cudaEventDestroy(event_)); }
  CudaFence(const CudaFence&) = delete;
  CudaFence& operator=(const CudaFence&) = delete;

  void set() override { CUDA_MUST(cudaEventRecord(event_, stream_)); }
  bool is_passed() const override {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) return false;
    CUDA_MUST(code);
    return true;
  }
  void wait() const override { CUDA_MUST(cudaEventSynchronize(event_)); }

 private:
  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

// `n` of the device, zero.
Buffer make_counters(cuda::DeviceMemory* memory, cudaStream_t stream, int64_t n) {
  const int64_t bytes = n * static_cast<int64_t>(sizeof(int32_t));
  std::byte* data = memory->allocate(bytes);
  CUDA_MUST(data != nullptr ? cudaSuccess : cudaErrorMemoryAllocation);
  CUDA_MUST(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), stream));
  return Buffer(memory, data, bytes);
}

class CudaBackend final : public Backend {
 public:
  CudaBackend(const CudaOptions& options, int n_sms)
      : device_(options.device),
        memory_(options.device),
        pinned_(options.device),
        stream_(options.device),
        workspace_(&memory_, stream_.get(), kWorkspaceBytes),
        staging_(stream_.get()),
        blas_(&memory_, stream_.get()),
        recordings_(stream_.get()),
        tickets_(make_counters(&memory_, stream_.get(), int64_t{2} * n_sms)),
        arrived_(make_counters(&memory_, stream_.get(), cuda::kArrived)),
        context_{.stream = stream_.get(),
                 .workspace = &workspace_,
                 .staging = &staging_,
                 .blas = &blas_,
                 .tickets = reinterpret_cast<int32_t*>(tickets_.data()),
                 .arrived = reinterpret_cast<int32_t*>(arrived_.data()),
                 .n_sms = n_sms,
                 .deterministic = options.deterministic == Deterministic::yes} {}

  std::string_view name() const override { return "cuda"; }
  Memory& memory() override { return memory_; }
  MemoryInfo memory_info() override {
    CUDA_MUST(cudaSetDevice(device_));
    size_t free = 0;
    size_t total = 0;
    CUDA_MUST(cudaMemGetInfo(&free, &total));
    return {.free = static_cast<int64_t>(free), .total = static_cast<int64_t>(total)};
  }

  void copy_in(std::byte* to, std::span<const std::byte> from_host) override {
    here().staging->send(to, from_host);
  }
  void copy_out(std::span<std::byte> to_host, const std::byte* from) override {
    here().staging->fetch(to_host, from);
  }
  void fill(std::byte* to, int64_t bytes, std::byte value) override {
    CUDA_MUST(cudaMemsetAsync(to, std::to_integer<int>(value), static_cast<size_t>(bytes),
                              here().stream));
  }

  std::unique_ptr<Upload> start_upload(int n_threads) override {
    return std::make_unique<cuda::PinnedUpload>(device_, here().stream, n_threads);
  }
  void random_fill(const ops::RandomFill& args) override { cuda::random_fill(here(), args); }
  std::unique_ptr<Stopwatch> make_stopwatch(int32_t n_marks) override {
    return std::make_unique<cuda::EventStopwatch>(here().stream, n_marks);
  }
  Result<std::unique_ptr<ops::ExpertBank>> pack_experts(const ops::ExpertTable& table) override {
    return cuda::pack_experts(here(), &memory_, table);
  }

  bool is_asynchronous() const override { return true; }
  Memory& host_memory() override { return pinned_; }
  void send(std::byte* to, std::span<const std::byte> from_host) override {
    CUDA_MUST(cudaMemcpyAsync(to, from_host.data(), from_host.size(), cudaMemcpyHostToDevice,
                              here().stream));
  }
  void fetch(std::span<std::byte> to_host, const std::byte* from) override {
    CUDA_MUST(cudaMemcpyAsync(to_host.data(), from, to_host.size(), cudaMemcpyDeviceToHost,
                              here().stream));
  }
  void copy_out_settled(std::span<std::byte> to_host, const std::byte* from) override {
    here().staging->fetch_settled(to_host, from);
  }
  Result<std::unique_ptr<PageSealer>> make_page_sealer(const PoolPages& pool) override {
    return cuda::make_page_sealer(device_, &pinned_, pool);
  }
  std::unique_ptr<Fence> make_fence() override {
    return std::make_unique<CudaFence>(here().stream);
  }
  Result<RecordingId> record(const std::function<void()>& calls) override {
    const cuda::Context& context = here();
    const int64_t sent = context.staging->sent();
    const uint64_t allocations = memory_.allocations();
    wants_shared_memory_ = false;
    const RecordingId recording{recordings_.add(calls, [&] { return wants_shared_memory_; })};
    if (context.staging->sent() != sent || memory_.allocations() != allocations) {
      return unsupported("a recorded op copies from the host, or allocates");
    }
    workspace_.keep_handed_out();
    return recording;
  }
  void replay(RecordingId recording) override {
    here();
    recordings_.replay(recording.value);
  }
  int64_t recorded_nodes(RecordingId recording) const override {
    return recordings_.nodes(recording.value);
  }

  void embed(const ops::Embed& args) override { cuda::embed(here(), args); }
  void rms_norm(const ops::RmsNorm& args) override { cuda::rms_norm(here(), args); }
  void add_rms_norm(const ops::AddRmsNorm& args) override { cuda::add_rms_norm(here(), args); }
  void linear(const ops::Linear& args) override { cuda::linear(here(), args); }
  void linear_pair(const ops::LinearPair& args) override { cuda::linear_pair(here(), args); }
  void add(const ops::Add& args) override { cuda::add(here(), args); }
  void silu_mul(const ops::SiluMul& args) override { cuda::silu_mul(here(), args); }
  void rope(const ops::Rope& args) override { cuda::rope(here(), args); }
  void kv_append(const ops::KvAppend& args) override { cuda::kv_append(here(), args); }
  void append_latent(const ops::AppendLatent& args) override { cuda::append_latent(here(), args); }
  void absorb_query(const ops::AbsorbQuery& args) override { cuda::absorb_query(here(), args); }
  void expand_value(const ops::ExpandValue& args) override { cuda::expand_value(here(), args); }
  void mla_attention(const ops::MlaAttention& args) override { cuda::mla_attention(here(), args); }
  void mla_prefill_attention(const ops::MlaPrefillAttention& args) override {
    cuda::mla_prefill_attention(here(), args);
  }
  bool attends_by_head(const ops::MlaPrefillAttention& args) const override {
    return cuda::attends_by_head(context_, args);
  }
  void moe_experts(const ops::MoeExperts& args) override {
    wants_shared_memory_ = wants_shared_memory_ || cuda::experts_want_shared_memory(context_, args);
    cuda::moe_experts(here(), args);
  }
  void gather_rows(const ops::GatherRows& args) override { cuda::gather_rows(here(), args); }
  void open_step(const ops::OpenStep& args) override { cuda::open_step(here(), args); }
  void check_pages(const ops::CheckPages& args) override { cuda::check_pages(here(), args); }
  void place_tokens(const ops::PlaceTokens& args) override { cuda::place_tokens(here(), args); }
  void sample(const ops::Sample& args) override { cuda::sample(here(), args); }

 private:
  // The current device belongs to the calling thread, which need not be the one that made this.
  const cuda::Context& here() {
    CUDA_MUST(cudaSetDevice(device_));
    return context_;
  }

  int device_;
  cuda::DeviceMemory memory_;
  cuda::PinnedMemory pinned_;
  Stream stream_;
  cuda::Workspace workspace_;
  cuda::Staging staging_;
  cuda::Blas blas_;
  cuda::Recordings recordings_;
  Buffer tickets_;
  Buffer arrived_;
  cuda::Context context_;
  bool wants_shared_memory_ = false;  // an op of what is recorded
};

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  const int device = options.device;
  int n_devices = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&n_devices); code != cudaSuccess) {
    return unavailable(format("no CUDA device: %s", cudaGetErrorString(code)));
  }
  if (device < 0 || device >= n_devices) {
    return unavailable(format("CUDA device %d: expected 0 to %d", device, n_devices - 1));
  }
  cudaDeviceProp found;
  CUDA_MUST(cudaGetDeviceProperties(&found, device));
  if (found.major != 9 || found.minor != 0) {
    return unsupported(format("CUDA device %d (%s): expected compute capability 9.0, found %d.%d",
                              device, found.name, found.major, found.minor));
  }
  CUDA_MUST(cudaSetDevice(device));
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  CUDA_MUST(cudaMemGetInfo(&free_bytes, &total_bytes));
  if (static_cast<int64_t>(free_bytes) < 2 * kWorkspaceBytes) {
    return resource_exhausted(format("CUDA device %d: %s free, expected at least %s", device,
                                     human_bytes(static_cast<int64_t>(free_bytes)).c_str(),
                                     human_bytes(2 * kWorkspaceBytes).c_str()));
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CudaBackend>(options, found.multiProcessorCount));
}

}  // namespace quire
