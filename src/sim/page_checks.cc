#include "sim/page_checks.h"

#include <algorithm>

#include "base/text.h"

namespace quire::sim {

PageChecks::PageChecks(const PagePool& pool, WatchingExecutor& executor, Identities identities)
    : pool_(pool), executor_(executor), identities_(identities) {
  for (const PageEntry& entry : pool.directory()) {
    tags_.push_back(entry.tag);
    states_.push_back(entry.state);
    newest_ = std::max(newest_, entry.tag);
  }
}

std::string PageChecks::check_cheap() {
  const std::span<const PageEntry> directory = pool_.directory();
  std::array<int32_t, kPageStates> counts{};
  PageTag newest = newest_;
  for (size_t p = 1; p < directory.size(); ++p) {
    const PageEntry& entry = directory[p];
    ++counts[static_cast<size_t>(entry.state)];
    if (entry.state != states_[p]) ++entered_[static_cast<size_t>(entry.state)];
    states_[p] = entry.state;
    if (entry.tag == tags_[p]) continue;
    if (entry.tag <= newest_) return format("page %zu: its new tag is not newer than all", p);
    newest = std::max(newest, entry.tag);
    tags_[p] = entry.tag;
  }
  newest_ = newest;
  for (size_t s = 0; s < kPageStates; ++s) {
    const auto state = static_cast<PageState>(s);
    if (counts[s] != pool_.count(state)) {
      return format("%s pages: counted %d, found %d", name(state).data(), pool_.count(state),
                    counts[s]);
    }
  }
  if (pool_.free_list().size() != static_cast<size_t>(pool_.n_free())) {
    return "the free list is not the free pages";
  }
  if (directory[0].tag != kNoTag || directory[0].state != PageState::quarantined) {
    return "the null page was touched";
  }
  return {};
}

std::string PageChecks::check_content() {
  std::vector<SealTarget> targets;
  std::vector<PageSeal> seals;
  for (int32_t p = 1; p <= pool_.total(); ++p) {
    const PageEntry& entry = pool_.entry(PageId{p});
    if (entry.state != PageState::sealed) continue;
    targets.push_back({.page = PageId{p}, .logical = executor_.logical_of(PageId{p})});
    seals.push_back(entry.seal);
    if (identities_ == Identities::narrow) continue;
    const auto [known, is_new] = contents_.emplace(entry.identity, entry.seal);
    if (!is_new && known->second != entry.seal) {
      return format("page %d: another page of its identity had other content", p);
    }
  }
  if (targets.empty()) return {};
  const std::vector<PageVerdict> verdicts =
      executor_.collect_verdicts(executor_.verify_pages(targets, seals));
  for (size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i] == PageVerdict::ok) continue;
    return format("page %d: its content changed after it was sealed", targets[i].page.value);
  }
  return {};
}

}  // namespace quire::sim
