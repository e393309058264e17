// Compares the pages that the rows of a step may touch with the page directory's mirror, where both
// lie: check T of docs/integrity.md. Twice a step: before anything is read through the table, and
// again before its tokens leave.
//
// Entry k of row r is right when it has a tag and its page is in the pool, not the null page, and
// lives the life that the tag names (is_current); or when it has no tag and names no page or the
// null page. Entries with a tag are counted, so that a row of which fewer were compared than it has
// shows. What is found stands in out[r] under the row's nonce and the step's number, which tell
// whether it is of this step.
//
//   before   out[r] is made anew. A row with a wrong entry is made harmless: all its entries become
//            the null page, so that it reads and writes nobody's keys.
//   after    what is found is added to out[r]; `first`, `page` and `found_tag` stay those of the
//            first pass that found something. The table is left as it is. A place of the row's
//            tokens that is not what the table and the inputs say (ops/place_tokens.h) stands for a
//            store that was not made there, and is counted in `dropped`; so it is not where some
//            were dropped already. With logits in the step the op before this one is its sampler's,
//            and the comparison may run beside that: attention is over.
//
// The inputs have tags, and may be of any bits. Everything is in the backend's memory. n_rows >= 1.
// Errors: none.
#pragma once

#include "format/step_inputs.h"
#include "ops/backend.h"
#include "ops/paged_kv.h"

namespace quire::ops {

enum class CheckTime : uint8_t { before, after };

struct CheckPages {
  View<PageCheck, 1> out;                 // [n_rows]
  StepInputs inputs;                      // nonces, tags and table; in and out
  View<const PageLife, 1> lives;          // [n_pages]
  View<const uint64_t, 1> step;           // [1] of ops/open_step.h's state
  View<const TokenPlace, 1> places = {};  // [n_tokens] compared `after`, if given
  CheckTime time = CheckTime::before;
};

void check_pages(Backend& backend, const CheckPages& args);

}  // namespace quire::ops
