#include "ops/backend.h"

#include "base/text.h"
#include "ops/host_stopwatch.h"
#include "ops/page_sealer.h"

namespace quire {

namespace {

// Row by row, through copy_in.
class PlainUpload final : public Upload {
 public:
  explicit PlainUpload(Backend& backend) : backend_(backend) {}

  void copy(std::span<const UploadPiece> pieces, const UploadProgress& progress) override {
    for (const UploadPiece& piece : pieces) {
      const bool is_whole = piece.stride == piece.row_bytes;
      const int64_t n = is_whole ? 1 : piece.n_rows;
      const auto bytes = static_cast<size_t>(is_whole ? piece.bytes() : piece.row_bytes);
      for (int64_t row = 0; row < n; ++row) {
        backend_.copy_in(piece.to + row * piece.row_bytes,
                         std::span(piece.from + row * piece.stride, bytes));
      }
      if (progress) progress(piece.bytes());
    }
  }

 private:
  Backend& backend_;
};

// Of a backend whose calls are done when they return.
class PassedFence final : public Fence {
 public:
  void set() override {}
  bool is_passed() const override { return true; }
  void wait() const override {}
};

Result<Buffer> allocate_from(Memory& memory, Backend& backend, int64_t bytes,
                             std::string_view what) {
  CHECK(bytes > 0);
  std::byte* data = memory.allocate(bytes);
  if (data == nullptr) {
    return resource_exhausted(
        format("no memory on %s for %.*s: %s asked, %s free", std::string(backend.name()).c_str(),
               static_cast<int>(what.size()), what.data(), human_bytes(bytes).c_str(),
               human_bytes(backend.memory_info().free).c_str()));
  }
  return Buffer(&memory, data, bytes);
}

}  // namespace

std::unique_ptr<Upload> Backend::start_upload(int) { return std::make_unique<PlainUpload>(*this); }

std::unique_ptr<Stopwatch> Backend::make_stopwatch(int32_t n_marks) {
  return std::make_unique<HostStopwatch>(n_marks);
}

std::unique_ptr<Fence> Backend::make_fence() {
  CHECK(!is_asynchronous());
  return std::make_unique<PassedFence>();
}

Result<std::unique_ptr<PageSealer>> Backend::make_page_sealer(const PoolPages& pool) {
  return make_host_page_sealer(*this, pool);
}

Result<RecordingId> Backend::record(const std::function<void()>&) {
  return unsupported(std::string(name()) + " records no calls");
}

void Backend::replay(RecordingId) { CHECK(false); }

Result<Buffer> allocate(Backend& backend, int64_t bytes, std::string_view what) {
  return allocate_from(backend.memory(), backend, bytes, what);
}

Result<Buffer> allocate_host(Backend& backend, int64_t bytes, std::string_view what) {
  return allocate_from(backend.host_memory(), backend, bytes, what);
}

}  // namespace quire
