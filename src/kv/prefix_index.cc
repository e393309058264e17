#include "kv/prefix_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace quire {

namespace {

constexpr uint64_t low_mask(int bits) {
  return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
}

PageIdentity hash_bytes(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {.low = hash.low64, .high = hash.high64};
}

}  // namespace

PrefixIndex::PrefixIndex(PagePool& pool, const PrefixDomain& domain, int identity_bits)
    : pool_(pool),
      domain_(domain),
      identity_bits_(identity_bits),
      nodes_(pool.directory().size()),
      tokens_(pool.directory().size() * static_cast<size_t>(pool.page_tokens())) {
  CHECK(identity_bits >= 1 && identity_bits <= 128);
  by_identity_.reserve(pool.directory().size());
}

PageIdentity PrefixIndex::root(const std::array<uint8_t, 16>& tenant) const {
  // The layout of `domain` in docs/formats/page_tag.md; adapter and media digests stay zero.
  std::array<std::byte, 72> bytes{};
  store_le(bytes, 0, tenant);
  store_le(bytes, 16, domain_.model_lineage);
  store_le(bytes, 32, static_cast<uint8_t>(domain_.weight_format));
  store_le(bytes, 33, static_cast<uint8_t>(domain_.activation));
  store_le(bytes, 34, static_cast<uint8_t>(domain_.kv_format));
  store_le(bytes, 35, domain_.path_class);
  store_le(bytes, 36, static_cast<uint32_t>(kKvLayoutVersion));
  return hash_bytes(bytes.data(), bytes.size());
}

PageIdentity PrefixIndex::chain(const PageIdentity& parent, std::span<const Token> page) const {
  CHECK(static_cast<int32_t>(page.size()) == pool_.page_tokens());
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  const uint64_t head[2] = {parent.low, parent.high};
  XXH3_128bits_update(&state, head, sizeof(head));
  XXH3_128bits_update(&state, page.data(), page.size_bytes());
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return {.low = hash.low64 & low_mask(identity_bits_),
          .high = hash.high64 & low_mask(std::max(0, identity_bits_ - 64))};
}

std::span<Token> PrefixIndex::tokens_of(PageId page) {
  const auto n = static_cast<size_t>(pool_.page_tokens());
  return std::span(tokens_).subspan(static_cast<size_t>(page.value) * n, n);
}

std::span<const Token> PrefixIndex::tokens_of(PageId page) const {
  const auto n = static_cast<size_t>(pool_.page_tokens());
  return std::span(tokens_).subspan(static_cast<size_t>(page.value) * n, n);
}

bool PrefixIndex::is_live(PageId page) const {
  const PageEntry& entry = pool_.entry(page);
  return entry.tag == tag_of(page) && entry.state == PageState::sealed;
}

bool PrefixIndex::is_linked(PageId page, const PrefixLink& link) const {
  const PrefixLink& own = nodes_[static_cast<size_t>(page.value)].link;
  return own.before == link.before && own.tenant == link.tenant;
}

bool PrefixIndex::is_link_live(const PrefixLink& link) const {
  const PageId page = link.before.page;
  return page == kNoPage || (tag_of(page) == link.before.tag && is_live(page));
}

PageId PrefixIndex::find(const PageIdentity& identity, std::span<const Token> page_tokens,
                         const PrefixLink& link) const {
  const PageId page = find_tokens(identity, page_tokens);
  return page != kNoPage && is_linked(page, link) ? page : kNoPage;
}

PageId PrefixIndex::find_tokens(const PageIdentity& identity,
                                std::span<const Token> page_tokens) const {
  const auto found = by_identity_.find(identity);
  if (found == by_identity_.end()) return kNoPage;
  const PageId page = found->second;
  if (!is_live(page) || pool_.is_condemned(page)) return kNoPage;
  return std::ranges::equal(tokens_of(page), page_tokens) ? page : kNoPage;
}

PrefixMatch PrefixIndex::peek(std::span<const PageIdentity> identities,
                              std::span<const Token> tokens,
                              const std::array<uint8_t, 16>& tenant) const {
  PrefixMatch match;
  PrefixLink link{.tenant = tenant};
  const auto n = static_cast<size_t>(pool_.page_tokens());
  for (size_t k = 0; k < identities.size(); ++k) {
    const PageId page = find(identities[k], tokens.subspan(k * n, n), link);
    if (page == kNoPage) break;
    link.before = {.page = page, .tag = tag_of(page)};
    ++match.pages;
    if (pool_.leases().is_held_by_index_alone(page)) ++match.unheld;
  }
  return match;
}

TaggedPage PrefixIndex::acquire(const PageIdentity& identity, std::span<const Token> page_tokens,
                                const PrefixLink& link) {
  const PageId page = find(identity, page_tokens, link);
  if (page == kNoPage) {
    const PageId other = find_tokens(identity, page_tokens);
    if (other != kNoPage && identity_bits_ == 128) {
      foreign_entries_ += nodes_[static_cast<size_t>(other.value)].link.tenant != link.tenant;
    }
    const auto entry = by_identity_.find(identity);
    if (entry == by_identity_.end()) return {};
    if (is_live(entry->second)) {
      ++collisions_;
    } else {
      forget(entry->second);
    }
    return {};
  }
  const TaggedPage tagged{.page = page, .tag = tag_of(page)};
  return pool_.take(tagged, LeaseKind::request).ok() ? tagged : TaggedPage{};
}

void PrefixIndex::forget(PageId page) {
  ++stale_entries_;
  Node& node = nodes_[static_cast<size_t>(page.value)];
  const TaggedPage tagged{.page = page, .tag = node.tag};
  unlink(page.value);
  by_identity_.erase(node.identity);
  node = Node{};
  // There may be no such lease: then the pool refuses, and nothing changes.
  static_cast<void>(pool_.drop(tagged, LeaseKind::index));
}

void PrefixIndex::forget_stale() {
  for (int32_t p = 1; p <= pool_.total(); ++p) {
    if (contains(PageId{p}) && !is_live(PageId{p})) forget(PageId{p});
  }
}

TaggedPage PrefixIndex::insert(TaggedPage page, const PageIdentity& identity,
                               std::span<const Token> page_tokens, const PrefixLink& link) {
  // A page on its way to quarantine would only be held back: nobody could be given it.
  if (pool_.is_condemned(page.page)) return {};
  if (contains(page.page) || !is_link_live(link)) return {};
  if (const auto entry = by_identity_.find(identity); entry != by_identity_.end()) {
    const PageId other = entry->second;
    if (find(identity, page_tokens, link) == other) return {.page = other, .tag = tag_of(other)};
    // What stands behind a page that has gone can never be hit again: it makes room.
    const bool is_lost = !is_link_live(nodes_[static_cast<size_t>(other.value)].link);
    if (!is_lost || !remove(other).ok()) return {};
  }
  if (!pool_.take(page, LeaseKind::index).ok()) return {};
  by_identity_.emplace(identity, page.page);
  Node& node = nodes_[static_cast<size_t>(page.page.value)];
  node.tag = page.tag;
  node.identity = identity;
  node.link = link;
  std::ranges::copy(page_tokens, tokens_of(page.page).begin());
  link_newest(page.page.value);
  return page;
}

void PrefixIndex::touch(PageId page) {
  if (!contains(page)) return;
  unlink(page.value);
  link_newest(page.value);
}

Status PrefixIndex::remove(PageId page) {
  if (!contains(page)) return {};
  Node& node = nodes_[static_cast<size_t>(page.value)];
  const TaggedPage tagged{.page = page, .tag = node.tag};
  unlink(page.value);
  by_identity_.erase(node.identity);
  node = Node{};
  return pool_.drop(tagged, LeaseKind::index);
}

bool PrefixIndex::evict_one() {
  if (pool_.n_cached() == 0) return false;
  // Pages in use are moved to the newest end as they are passed, so that the next search does not
  // meet them again: a search costs what has happened since the last one.
  for (int32_t left = size(); left > 0; --left) {
    const int32_t oldest = nodes_[0].newer;
    const PageId page{oldest};
    if (pool_.leases().is_held_by_index_alone(page)) return remove(page).ok();
    unlink(oldest);
    link_newest(oldest);
  }
  return false;
}

void PrefixIndex::unlink(int32_t node) {
  Node& gone = nodes_[static_cast<size_t>(node)];
  nodes_[static_cast<size_t>(gone.older)].newer = gone.newer;
  nodes_[static_cast<size_t>(gone.newer)].older = gone.older;
}

void PrefixIndex::link_newest(int32_t node) {
  Node& head = nodes_[0];
  Node& added = nodes_[static_cast<size_t>(node)];
  added.older = head.older;
  added.newer = 0;
  nodes_[static_cast<size_t>(head.older)].newer = node;
  head.older = node;
}

}  // namespace quire
