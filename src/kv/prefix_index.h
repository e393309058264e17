// PrefixIndex: finds sealed pages by the tokens they hold, and those before them.
//
// A map from identity (docs/formats/page_tag.md) to (page, tag), bounded by the pool: a page is
// indexed at most once. Equal hashes are not taken as proof: a hit also compares the page's tokens,
// and that it stands behind the page that was hit before it, or at the beginning of this tenant's
// text; so the whole history is the same, token by token. Tenants and model settings never meet,
// because the chain begins with them. A page found is leased
// in the same call, so that nothing can take it in between. The index holds a lease of its own on
// each page; a page that nobody else holds can be evicted, the one let go longest ago first.
// Used by one thread. Allocates its tables in the constructor, and map nodes as pages come.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "format/kv_page.h"
#include "format/page_directory.h"
#include "kv/page_pool.h"
#include "ops/weight_matrix.h"

namespace quire {

namespace sim {
class PageSurgeon;  // src/sim: looks at and disturbs what is private, on purpose
}

// Everything but tokens and tenant that decides the bytes of a page (docs/formats/page_tag.md).
struct PrefixDomain {
  std::array<uint8_t, 16> model_lineage{};
  WeightFormat weight_format = WeightFormat::bf16;
  Activation activation = Activation::bf16;
  KvFormat kv_format = KvFormat::bf16;
  uint8_t path_class = 0;  // 0 absorbed attention, 1 non-absorbed prefill
};

struct PrefixMatch {
  int32_t pages = 0;
  int32_t unheld = 0;  // of them, those that only the index holds: a match takes them out of reach
};

// What a page stands behind, beside its identity.
struct PrefixLink {
  TaggedPage before;  // the index's page of the tokens before; none at the beginning of a text
  std::array<uint8_t, 16> tenant{};
};

class PrefixIndex {
 public:
  // `pool` outlives the index. Tests narrow `identity_bits` (1 to 128) to force equal hashes.
  PrefixIndex(PagePool& pool, const PrefixDomain& domain, int identity_bits = 128);

  // identity[-1] of the chain of a tenant.
  PageIdentity root(const std::array<uint8_t, 16>& tenant) const;
  // identity[k], from identity[k - 1] and the `page_tokens` tokens of page k.
  PageIdentity chain(const PageIdentity& parent, std::span<const Token> page) const;

  // How many leading pages of a sequence are here: identities[k] is of page k, whose tokens begin
  // at k * page_tokens. Takes no lease.
  PrefixMatch peek(std::span<const PageIdentity> identities, std::span<const Token> tokens,
                   const std::array<uint8_t, 16>& tenant = {}) const;

  // The page with this identity, these tokens and this place, leased for a request; kNoPage when
  // there is none, or when the page no longer lives the life that was published: that entry is then
  // forgotten.
  TaggedPage acquire(const PageIdentity& identity, std::span<const Token> page_tokens,
                     const PrefixLink& link = {});

  // Publishes a sealed page. The page that the index has for these tokens then: this one, or one
  // that was there before. kNoPage when it has none, because something else has the identity, what
  // it is linked to has gone, the page is to be quarantined, or the pool refuses.
  TaggedPage insert(TaggedPage page, const PageIdentity& identity,
                    std::span<const Token> page_tokens, const PrefixLink& link = {});

  // Drops every entry whose page does not live the life that was published.
  void forget_stale();
  // Entries that did not describe their page any more when they were met: faults of ours.
  uint64_t stale_entries() const { return stale_entries_; }
  // Pages of another tenant that only the comparison of tenants kept from being hit: a key that
  // leaves something out. With narrowed identities this happens by chance, and is not counted.
  uint64_t foreign_entries() const { return foreign_entries_; }
  // Entries that were met under an equal identity and are of something else.
  uint64_t collisions() const { return collisions_; }
  bool has(const PageIdentity& identity) const { return by_identity_.contains(identity); }
  bool contains(PageId page) const { return tag_of(page) != kNoTag; }
  // The tag that the entry of `page` recorded; kNoTag when it is not here.
  PageTag tag_of(PageId page) const { return nodes_[static_cast<size_t>(page.value)].tag; }
  const PageIdentity& identity_of(PageId page) const {
    return nodes_[static_cast<size_t>(page.value)].identity;
  }
  int32_t size() const { return static_cast<int32_t>(by_identity_.size()); }
  const PagePool& pool() const { return pool_; }

  // Marks a page as just let go. Call for a sequence's pages from the last to the first, so that
  // the beginning of a prefix outlives its end.
  void touch(PageId page);
  // Forgets a page; the page itself lives on while somebody holds it.
  Status remove(PageId page);
  // Forgets the least recently touched page that nobody else holds. False when there is none.
  bool evict_one();

 private:
  friend class sim::PageSurgeon;

  // An entry of the list of recency, by page number; node 0 is the ring's head.
  struct Node {
    PageTag tag = kNoTag;
    PageIdentity identity;
    PrefixLink link;
    int32_t older = 0;
    int32_t newer = 0;
  };
  struct IdentityHash {
    size_t operator()(const PageIdentity& identity) const noexcept { return identity.low; }
  };

  bool is_live(PageId page) const;
  // Drops the entry of a page without trusting that it is right.
  void forget(PageId page);
  // The page of `identity` when its entry is current and has these tokens, else kNoPage.
  PageId find_tokens(const PageIdentity& identity, std::span<const Token> page_tokens) const;
  // The same when it has this place as well.
  PageId find(const PageIdentity& identity, std::span<const Token> page_tokens,
              const PrefixLink& link) const;
  bool is_linked(PageId page, const PrefixLink& link) const;
  // Whether the index still has the page that the link names.
  bool is_link_live(const PrefixLink& link) const;
  std::span<Token> tokens_of(PageId page);
  std::span<const Token> tokens_of(PageId page) const;
  void unlink(int32_t node);
  void link_newest(int32_t node);

  PagePool& pool_;
  const PrefixDomain domain_;
  const int identity_bits_;
  std::unordered_map<PageIdentity, PageId, IdentityHash> by_identity_;
  std::vector<Node> nodes_;    // [n_pages]
  std::vector<Token> tokens_;  // [n_pages, page_tokens]
  uint64_t stale_entries_ = 0;
  uint64_t foreign_entries_ = 0;
  uint64_t collisions_ = 0;
};

}  // namespace quire
