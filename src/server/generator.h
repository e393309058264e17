// Generator: what the server asks of an engine. EngineService behind an interface, so that the
// server is tested against an engine that does what a test says.
//
// All calls are thread-safe; those below stats() wait for the engine's thread.
#pragma once

#include <memory>

#include "base/ids.h"
#include "base/result.h"
#include "engine/engine.h"
#include "engine/request.h"
#include "engine/service.h"

namespace quire {

class Generator {
 public:
  virtual ~Generator() = default;
  virtual Result<RequestId> submit(GenerateRequest request, std::unique_ptr<OutputSink> sink) = 0;
  virtual void abort(RequestId request) = 0;
  virtual void drain() = 0;
  virtual EngineStats stats() const = 0;
  virtual Status audit() = 0;
  virtual IntegrityReport integrity() = 0;
  virtual Status release_page(PageId page) = 0;
  virtual bool flush_cache() = 0;
};

// The engine itself. `service` outlives this.
class EngineGenerator final : public Generator {
 public:
  explicit EngineGenerator(EngineService& service) : service_(service) {}

  Result<RequestId> submit(GenerateRequest request, std::unique_ptr<OutputSink> sink) override {
    return service_.submit(std::move(request), std::move(sink));
  }
  void abort(RequestId request) override { service_.abort(request); }
  void drain() override { service_.drain(); }
  EngineStats stats() const override { return service_.stats(); }
  Status audit() override { return service_.audit(); }
  IntegrityReport integrity() override { return service_.integrity(); }
  Status release_page(PageId page) override { return service_.release_page(page); }
  bool flush_cache() override { return service_.flush_cache(); }

 private:
  EngineService& service_;
};

}  // namespace quire
