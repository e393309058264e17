// The audit: whether the directory, the leases and the prefix index agree with each other and with
// those who hold pages. It reads and reports; it changes nothing and never ends the process.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kv/page_pool.h"
#include "kv/prefix_index.h"

namespace quire {

// A lease that somebody knows to have. The index's own need not be listed.
struct KnownLease {
  TaggedPage page;
  LeaseKind kind;
};

// Leases that the pool counts and nobody has: what a lost release leaves behind.
std::vector<KnownLease> surplus_leases(const PagePool& pool, const PrefixIndex& index,
                                       std::span<const KnownLease> known);

// One sentence for each thing found wrong; empty when all is well:
// states partition the pool; the free list is the free pages, each once; leases equal the known
// ones; a page without holders is free, draining or quarantined; indexed pages are sealed, current
// and carry the identity they are found by; the null page is untouched.
std::vector<std::string> audit_pages(const PagePool& pool, const PrefixIndex& index,
                                     std::span<const KnownLease> known);

}  // namespace quire
