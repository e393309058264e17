// DirectoryMirror: what a backend's copy of the page directory has yet to learn, and when it has.
//
// Changes travel with the inputs of steps. Until it is known that a step's inputs arrived, the
// steps after it bring the same changes again: so one that is lost costs no later step its pages.
// Knows no memory of a backend. Used by one thread; allocates at its start alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/page_check.h"

namespace quire {

class DirectoryMirror {
 public:
  explicit DirectoryMirror(int32_t n_pages);

  // From now on it is a mirror of `directory`, which outlives this, and knows nothing of it.
  void watch(std::span<const PageEntry> directory);
  std::span<const PageEntry> directory() const { return directory_; }
  void note(std::span<const PageId> changed);

  // What the `sent`-th step brings: entries as they are now. Good until the next call.
  std::span<const PageChange> begin_step(uint64_t sent);
  // The `sent`-th step has been carried out, and its inputs were what was sent, or were not.
  enum class Inputs : uint8_t { arrived, lost };
  void end_step(uint64_t sent, Inputs inputs);

 private:
  static constexpr uint64_t kNotSent = 0;

  std::span<const PageEntry> directory_;
  std::vector<PageId> owed_;          // each once
  std::vector<uint8_t> is_owed_;      // [n_pages]
  std::vector<uint64_t> first_sent_;  // [n_pages] the first step that brought what it is now
  std::vector<PageChange> changes_;
};

}  // namespace quire
