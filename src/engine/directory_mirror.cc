#include "engine/directory_mirror.h"

#include "base/check.h"

namespace quire {

DirectoryMirror::DirectoryMirror(int32_t n_pages)
    : is_owed_(static_cast<size_t>(n_pages), 0),
      first_sent_(static_cast<size_t>(n_pages), kNotSent) {
  owed_.reserve(static_cast<size_t>(n_pages));
  changes_.reserve(static_cast<size_t>(n_pages));
}

void DirectoryMirror::watch(std::span<const PageEntry> directory) {
  CHECK(directory.size() == is_owed_.size());
  directory_ = directory;
  for (size_t p = 0; p < directory.size(); ++p) {
    const PageId page{static_cast<int32_t>(p)};
    note({&page, 1});
  }
}

void DirectoryMirror::note(std::span<const PageId> changed) {
  for (const PageId page : changed) {
    const auto p = static_cast<size_t>(page.value);
    first_sent_[p] = kNotSent;
    if (is_owed_[p] != 0) continue;
    is_owed_[p] = 1;
    owed_.push_back(page);
  }
}

std::span<const PageChange> DirectoryMirror::begin_step(uint64_t sent) {
  CHECK(sent != kNotSent);
  changes_.clear();
  for (const PageId page : owed_) {
    const auto p = static_cast<size_t>(page.value);
    if (first_sent_[p] == kNotSent) first_sent_[p] = sent;
    changes_.push_back(change_of(page.value, directory_[p]));
  }
  return changes_;
}

void DirectoryMirror::end_step(uint64_t sent, Inputs inputs) {
  std::erase_if(owed_, [&](PageId page) {
    const auto p = static_cast<size_t>(page.value);
    const bool was_sent = first_sent_[p] != kNotSent && first_sent_[p] <= sent;
    if (!was_sent) return false;
    first_sent_[p] = kNotSent;
    if (inputs == Inputs::lost) return false;
    is_owed_[p] = 0;
    return true;
  });
}

}  // namespace quire
