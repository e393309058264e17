// PageChecks: what must hold of an engine's pages after every event, and what is looked at less
// often. Reads only.
//
// After every event: the states partition the pool and agree with its counters; a tag only grows,
// and a new one is newer than all there were; the null page is untouched. At intervals: the whole
// audit; every sealed page still has the content it was sealed with; and pages with the same
// identity have the same content, whoever wrote them.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "sim/page_surgeon.h"
#include "sim/watching_executor.h"

namespace quire::sim {

// Narrow ones are equal by chance: then pages of one identity may have different content.
enum class Identities : uint8_t { unique, narrow };

class PageChecks {
 public:
  PageChecks(const PagePool& pool, WatchingExecutor& executor, Identities identities);

  // Each answers with the first thing found wrong, or nothing.
  std::string check_cheap();
  std::string check_content();

  // How often a page was seen to enter a state.
  const std::array<uint64_t, kPageStates>& entered() const { return entered_; }

 private:
  struct IdentityHash {
    size_t operator()(const PageIdentity& identity) const noexcept { return identity.low; }
  };

  const PagePool& pool_;
  WatchingExecutor& executor_;
  const Identities identities_;
  std::vector<PageTag> tags_;      // [n_pages] as last seen
  std::vector<PageState> states_;  // [n_pages]
  PageTag newest_ = 0;
  std::array<uint64_t, kPageStates> entered_{};
  std::unordered_map<PageIdentity, PageSeal, IdentityHash> contents_;  // looked up, never walked
};

}  // namespace quire::sim
