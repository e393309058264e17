// PageSealer: hashes whole pages of a pool where they lie (docs/formats/page_tag.md, "Seal").
//
// For pages that no unfinished call writes: it waits for none of them, and a backend that computes
// elsewhere works beside the step that runs. `seal` returns when the seals are there. They are
// those of format/page_seal.h, bit for bit, on every backend. Not for pages of several pools. Used
// by the backend's thread; neither allocates after it was made.
#pragma once

#include <memory>
#include <span>

#include "base/result.h"
#include "format/page_seal.h"
#include "ops/backend.h"

namespace quire {

class PageSealer {
 public:
  virtual ~PageSealer() = default;

  // seals[i] becomes the seal of targets[i]: as many of both. Pages are in the pool, and may come
  // twice.
  virtual void seal(std::span<const SealTarget> targets, std::span<PageSeal> seals) = 0;
};

// One that hashes on the host what it copies out, or reads where the host can: what a backend does
// that has nothing better. Errors: resource_exhausted.
Result<std::unique_ptr<PageSealer>> make_host_page_sealer(Backend& backend, const PoolPages& pool);

}  // namespace quire
