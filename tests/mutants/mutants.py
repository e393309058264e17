"""The classes of docs/integrity.md that concern one machine, each as one wrong edit of the code.

A mutant says which text of which file becomes which other text. It has to compile, and to be what a
person could have written: the bug that the class is named for, not a line that crashes at once.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Mutant:
    name: str
    classes: tuple  # numbers of docs/integrity.md; empty for the reaction to a finding
    what: str
    file: str
    find: str  # occurs once
    put: str
    also: tuple = ()  # further (find, put) of the file, where one place alone has a second guard

    @property
    def edits(self):
        return ((self.find, self.put), *self.also)


POOL = "src/kv/page_pool.cc"
INDEX = "src/kv/prefix_index.cc"
TABLE = "src/kv/page_table.h"
LEASE = "src/kv/lease.h"
AUDIT = "src/kv/audit.cc"
PAGES = "src/engine/sequence_pages.cc"
ENGINE = "src/engine/engine.cc"
REACTION = "src/engine/engine_integrity.cc"
SCHEDULER = "src/engine/scheduler.cc"
BATCH = "src/engine/batch.cc"
EXECUTOR = "src/engine/executor.cc"
STEP = "src/format/step.cc"
SEAL = "src/format/page_seal.cc"
KEYS = "src/server/api_keys.cc"
ANSWER = "src/server/answer.cc"
API = "src/server/api_server.cc"
RESULT_OF = "result.nonce != sequence.nonce) {"

MUTANTS = [
    Mutant(
        "match_without_lease",
        (1,),
        "a page found in the index is not pinned in the same call",
        INDEX,
        "return pool_.take(tagged, LeaseKind::request).ok() ? tagged : TaggedPage{};",
        "return tagged;",
    ),
    Mutant(
        "publish_what_is_planned",
        (2,),
        "pages are sealed and published up to what the open step is to compute",
        PAGES,
        "const int32_t n = sequence->computed / pool_.page_tokens();",
        "const int32_t n = sequence->planned / pool_.page_tokens();",
    ),
    Mutant(
        "seal_what_is_not_full",
        (2, 7),
        "the pool seals a page whose rows are not all there",
        POOL,
        "if (entry->state != PageState::filling || entry->committed != page_tokens_) {",
        "if (entry->state != PageState::filling) {",
    ),
    Mutant(
        "index_trusts_its_entry",
        (3, 10),
        "an entry of the index is used without asking whether its page lives the same life",
        INDEX,
        "return entry.tag == tag_of(page) && entry.state == PageState::sealed;",
        "return entry.state == PageState::sealed;",
    ),
    Mutant(
        "duplicate_is_let_go",
        (4,),
        "a page whose identity another page has already is let go, and stays in the row",
        PAGES,
        "  if (known.page != kNoPage) sequence.published = known;\n",
        "  if (known.page != kNoPage) sequence.published = known;\n"
        "  if (known.page != page.page) drop({&page, 1}, LeaseKind::request);\n",
    ),
    Mutant(
        "let_go_twice",
        (5,),
        "the first page of a request that ends is let go twice",
        PAGES,
        "  table_.truncate(*sequence.slot, first);\n}",
        "  if (!row.empty()) static_cast<void>(pool_.drop(row.front(), LeaseKind::request));\n"
        "  table_.truncate(*sequence.slot, first);\n}",
    ),
    Mutant(
        "any_life_will_do",
        (5,),
        "a call on a page of an earlier life is carried out on its present one",
        "src/kv/page_pool.h",
        "return entry.tag == page.tag ? &entry : nullptr;",
        "return &entry;",
    ),
    Mutant(
        "tag_lives_on",
        (5,),
        "the tag does not change when a page is freed",
        POOL,
        "  entry = PageEntry{.tag = next_tag_++, .state = entry.state};\n",
        "  entry = PageEntry{.tag = entry.tag, .state = entry.state};\n",
    ),
    Mutant(
        "lease_on_another_page",
        (6,),
        "the leases of a step are all taken on the first page of the row",
        PAGES,
        "if (Status status = note(pool_.take(pages[i], kind)); !status.ok()) {",
        "if (Status status = note(pool_.take(pages[0], kind)); !status.ok()) {",
    ),
    Mutant(
        "evict_what_is_read",
        (6,),
        "a page counts as the index's alone while others hold it",
        LEASE,
        "return count(page, LeaseKind::index) == 1 && total(page) == 1;",
        "return count(page, LeaseKind::index) == 1;",
    ),
    Mutant(
        "refused_seal_is_published",
        (7,),
        "a page that the pool did not seal goes into the index all the same",
        PAGES,
        "if (!sealed || sequence.sealed_pages != k) continue;",
        "if (sequence.sealed_pages != k) continue;",
    ),
    Mutant(
        "failed_pages_stay_published",
        (7,),
        "what a failed request computed is left to others",
        ENGINE,
        "  if (sequence.slot) pages.unpublish(sequence);\n",
        "",
    ),
    Mutant(
        "row_keeps_its_tail",
        (8,),
        "a request begins with the pages that its slot had before",
        PAGES,
        "  sequence.slot = slot;\n  table_.clear(slot);\n",
        "  sequence.slot = slot;\n",
        (("  table_.truncate(*sequence.slot, first);\n}", "}"),),
    ),
    Mutant(
        "untrusted_row_is_let_go",
        (4, 5),
        "a row that cannot be trusted is let go entry by entry",
        REACTION,
        "  pages.abandon(sequence);\n  fail(",
        "  fail(",
        (("      pages.abandon(sequence);\n", ""),),
    ),
    Mutant(
        "row_of_a_leaver_is_trusted",
        (4, 5),
        "a request that leaves lets its row go without a look at it",
        REACTION,
        "  bool is_trusted = true;\n  if (checks.places) {\n",
        "  bool is_trusted = true;\n  if (checks.places && sequence.retries < 0) {\n",
    ),
    Mutant(
        "step_being_planned_has_no_leases",
        (12,),
        "leases of the step that is being planned count as surplus",
        REACTION,
        "  add_rows(prepared);\n",
        "",
    ),
    Mutant(
        "let_go_keeps_the_row",
        (8,),
        "the row of the page table keeps what was let go",
        PAGES,
        "  table_.truncate(*sequence.slot, first);\n}",
        "}",
    ),
    Mutant(
        "last_entry_unchecked",
        (8,),
        "the last page of a row is not compared",
        EXECUTOR,
        "  for (const TaggedPage& page : pages) {\n    ++result->pages_checked;",
        "  for (const TaggedPage& page : pages.first(pages.size() - 1)) {\n"
        "    ++result->pages_checked;",
    ),
    Mutant(
        "listed_twice",
        (9,),
        "a page that leaves quarantine is put on the free list twice",
        POOL,
        "  entry.tag = next_tag_++;\n  free_.push_back(page);\n",
        "  entry.tag = next_tag_++;\n  free_.push_back(page);\n  free_.push_back(page);\n",
    ),
    Mutant(
        "counter_drifts",
        (9,),
        "a page that is let go is not counted as cached",
        POOL,
        "  n_cached_ += int{leases_.is_held_by_index_alone(page.page)} - int{was_cached};\n",
        "  n_cached_ -= int{was_cached};\n",
    ),
    Mutant(
        "quarantined_stays_listed",
        (9,),
        "a free page that is quarantined stays on the free list",
        POOL,
        "    std::erase(free_, page);\n",
        "",
    ),
    Mutant(
        "orphan_of_the_index",
        (10,),
        "the index forgets a page and keeps its lease",
        INDEX,
        "  return pool_.drop(tagged, LeaseKind::index);\n}\n\nbool PrefixIndex::evict_one",
        "  return {};\n}\n\nbool PrefixIndex::evict_one",
    ),
    Mutant(
        "match_the_last_token",
        (11,),
        "a prompt of whole pages may be matched to its last token, and has nothing to compute",
        PAGES,
        "return may_match ? (sequence.n_tokens() - 1) / pool_.page_tokens() : 0;",
        "return may_match ? sequence.n_tokens() / pool_.page_tokens() : 0;",
    ),
    Mutant(
        "one_row_short",
        (11,),
        "what is committed of a page ends one row early",
        PAGES,
        "const int32_t rows = std::min(pool_.page_tokens(), sequence.computed - k * "
        "pool_.page_tokens());",
        "const int32_t rows = std::min(pool_.page_tokens() - 1, sequence.computed - k * "
        "pool_.page_tokens());",
    ),
    Mutant(
        "page_for_page",
        (11,),
        "a match is told to begin one token late",
        PAGES,
        "sequence.computed = sequence.planned = sequence.matched_pages * pool_.page_tokens();",
        "sequence.computed = sequence.planned =\n"
        "      sequence.matched_pages * pool_.page_tokens() + int{sequence.matched_pages > 0};",
    ),
    Mutant(
        "freed_before_its_step",
        (12, 13),
        "a page is free as soon as no holder is left, whatever a step still does",
        POOL,
        "  if (leases_.total(page.page) == 0) retire(page.page);",
        "  if (leases_.holders(page.page) == 0) retire(page.page);",
    ),
    Mutant(
        "leases_end_with_the_request",
        (12,),
        "a step's leases are dropped before it has been read",
        ENGINE,
        "  in_flight.push_back(std::move(next));\n",
        "  for (const StepRow& row : next.plan.rows) pages.drop(row.pages, LeaseKind::step);\n"
        "  in_flight.push_back(std::move(next));\n",
    ),
    Mutant(
        "checked_once",
        (13,),
        "the engine is content with one comparison of a row's pages",
        ENGINE,
        "const int32_t expected = checks.tags ? 2 * static_cast<int32_t>(row.pages.size()) : 0;",
        "const int32_t expected = checks.tags ? static_cast<int32_t>(row.pages.size()) : 0;",
    ),
    Mutant(
        "plan_without_pages",
        (14,),
        "the hash of a plan does not cover the pages of its rows",
        STEP,
        "    add(row.pages);\n",
        "",
    ),
    Mutant(
        "slot_of_another_row",
        (15,),
        "a row names the slot after its own",
        BATCH,
        "  row->slot = *sequence.slot;\n",
        "  row->slot = SlotId{sequence.slot->value + 1};\n",
    ),
    Mutant(
        "result_for_anybody",
        (16,),
        "a result is taken for the row it stands at, whoever it is for",
        ENGINE,
        "  if (result.request != row.request || result.nonce != row.nonce ||\n      "
        + RESULT_OF,
        "  if (result.tokens.size() > 1) {",
    ),
    Mutant(
        "token_of_the_row_before",
        (16,),
        "a request is given the token of the first good row",
        ENGINE,
        "const StepRowResult& row = result.rows[good_rows[i]];",
        "const StepRowResult& row = result.rows[good_rows[0]];",
    ),
    Mutant(
        "first_choice_speaks",
        (16,),
        "what the engine says of any choice is written to the first",
        ANSWER,
        "  Part& part = parts_.at(static_cast<size_t>(choice));\n",
        "  Part& part = parts_.at(static_cast<size_t>(choice) * 0);\n",
    ),
    Mutant(
        "choices_share_a_sink",
        (16,),
        "every choice of an exchange reports as its first",
        API,
        "const auto choice = static_cast<int32_t>(exchange.requests.size());",
        "const auto choice = static_cast<int32_t>(exchange.requests.size() * 0);",
    ),
    Mutant(
        "hash_is_proof",
        (29,),
        "equal hashes are taken for equal tokens",
        INDEX,
        "return std::ranges::equal(tokens_of(page), page_tokens) ? page : kNoPage;",
        "return page_tokens.empty() ? kNoPage : page;",
    ),
    Mutant(
        "history_is_not_compared",
        (29,),
        "equal hashes are taken for equal histories before a page",
        INDEX,
        "  return own.before == link.before && own.tenant == link.tenant;\n",
        "  return own.tenant == link.tenant;\n",
    ),
    Mutant(
        "tenant_is_not_compared",
        (30,),
        "a key that leaves the tenant out is believed",
        INDEX,
        "  return own.before == link.before && own.tenant == link.tenant;\n",
        "  return own.before == link.before;\n",
    ),
    Mutant(
        "last_token_left_out",
        (29, 30),
        "the identity of a page does not depend on its last token",
        INDEX,
        "XXH3_128bits_update(&state, page.data(), page.size_bytes());",
        "XXH3_128bits_update(&state, page.data(), page.size_bytes() - sizeof(Token));",
    ),
    Mutant(
        "key_without_history",
        (30,),
        "the identity of a page does not depend on the pages before it",
        INDEX,
        "const uint64_t head[2] = {parent.low, parent.high};",
        "const uint64_t head[2] = {parent.low & 0, parent.high & 0};",
    ),
    Mutant(
        "key_without_tenant",
        (30, 31),
        "the identity of a page does not depend on the tenant",
        INDEX,
        "  store_le(bytes, 0, tenant);\n",
        "  store_le(bytes, 0, std::array<uint8_t, 16>{tenant[15]});\n",
    ),
    Mutant(
        "key_without_format",
        (30, 34),
        "the identity of a page does not depend on the format of the cache",
        INDEX,
        "  store_le(bytes, 34, static_cast<uint8_t>(domain_.kv_format));\n",
        "",
    ),
    Mutant(
        "one_salt_for_all",
        (31,),
        "all tenants have the same salt",
        KEYS,
        "  keys_.push_back({digest, salt_of(tenant)});\n",
        "  keys_.push_back({digest, salt_of(tenant.substr(0, 0))});\n",
    ),
    Mutant(
        "null_page_is_given_out",
        (32,),
        "the null page is on the free list",
        POOL,
        "for (int32_t page = n_pages - 1; page >= 1; --page) {",
        "for (int32_t page = n_pages - 1; page >= 0; --page) {",
    ),
    Mutant(
        "nobody_poisons",
        (32,),
        "pages are not filled with what is no number when they are allocated",
        PAGES,
        "    if (integrity_.poison) fresh_.push_back(page.value().page);\n",
        "",
    ),
    Mutant(
        "token_past_the_vocabulary",
        (32,),
        "a token past the vocabulary is sent",
        ENGINE,
        "if (sampled.token >= 0 && sampled.token < config.vocab_size) continue;",
        "if (sampled.token >= 0) continue;",
    ),
    Mutant(
        "seal_without_its_last_block",
        (34,),
        "the seal of a page does not cover its last block",
        SEAL,
        "  for (const KvBlock& block : layout.blocks) {\n",
        "  for (const KvBlock& block :\n"
        "       std::span(layout.blocks).first(layout.blocks.size() - 1)) {\n",
    ),
    Mutant(
        "seal_without_its_place",
        (34,),
        "the seal of a page does not depend on where in a sequence it belongs",
        SEAL,
        "static_cast<uint32_t>(logical)};",
        "static_cast<uint32_t>(logical) & 0};",
    ),
    Mutant(
        "hit_is_not_verified",
        (36,),
        "the pages of a prefix hit are used unseen",
        PAGES,
        "if (integrity_.seals && table_.size(slot) > 0) {",
        "if (integrity_.seals && table_.size(slot) > 4096) {",
    ),
    Mutant(
        "scrub_stands_still",
        (36,),
        "the scrub verifies the same page for ever",
        PAGES,
        "scrubbed_ = scrubbed_ % pool_.total() + 1;",
        "scrubbed_ = 1;",
    ),
    Mutant(
        "holders_go_on",
        (36,),
        "a damaged page is quarantined, and those who hold it go on",
        REACTION,
        "  for (const PageId page : pages.scrub(n_pages, executor)) fail_holders(page);\n",
        "  static_cast<void>(pages.scrub(n_pages, executor));\n",
    ),
    Mutant(
        "retry_keeps_its_nonce",
        (16,),
        "what an open step says of the first try is taken for the second",
        REACTION,
        "  sequence.nonce = nonces.next_u64();\n",
        "",
    ),
    Mutant(
        "retry_takes_back_what_was_sent",
        (36,),
        "a request whose sent tokens are in doubt goes on after them",
        REACTION,
        "return sent == Sent::verified || !sequence.has_told();",
        "return sent == Sent::verified || sequence.n_generated() >= 0;",
    ),
    Mutant(
        "retry_meets_it_again",
        (),
        "a retry takes its prefix from the index that it failed with",
        PAGES,
        "prefix_cache_ && sequence.retries == 0 &&",
        "prefix_cache_ && sequence.retries >= 0 &&",
    ),
    Mutant(
        "sharers_go_on",
        (),
        "those who share a page that was met under another life are not looked at",
        ENGINE,
        "for (const PageId page : std::exchange(suspects, {})) verify_sharers(page);",
        "suspects.clear();",
    ),
    Mutant(
        "quarantine_is_forgotten",
        (),
        "a page that a row met under another life stays in use",
        ENGINE,
        '    pages.quarantine(result.page, "a row met it under another life");\n',
        "",
    ),
    Mutant(
        "surplus_is_not_seen",
        (5, 10),
        "a lease that nobody has is not taken back",
        AUDIT,
        "for (int32_t i = 0; i < more; ++i) surplus.push_back({{page, tag}, kind});",
        "for (int32_t i = 1; i < more; ++i) surplus.push_back({{page, tag}, kind});",
    ),
    Mutant(
        "admission_keeps_no_reserve",
        (11,),
        "a newcomer is given the pages that the runners grow into next",
        SCHEDULER,
        "const int32_t free = available_ - request.unheld_pages - reserve;",
        "const int32_t free = available_ - request.unheld_pages;",
    ),
    Mutant(
        "admission_counts_a_page_twice",
        (11,),
        "cached pages that nobody holds are counted as found and as free",
        SCHEDULER,
        "const int32_t free = available_ - request.unheld_pages - reserve;",
        "const int32_t free = available_ - reserve;",
    ),
]
