// The seal of a page whose blocks have been hashed already, for who hashes them elsewhere
// (docs/formats/page_tag.md, "Seal").
#pragma once

#include "format/page_seal.h"

namespace quire {

// XXH3-128 of a block's bytes.
struct BlockHash {
  uint64_t low = 0;
  uint64_t high = 0;
};

// The seal_page of it. `hashes` are those of all blocks of the layout, in order.
PageSeal seal_of_blocks(int32_t logical, std::span<const BlockHash> hashes);

}  // namespace quire
