// The step seam: what the engine asks of an executor in one step, and what it gets back.
// docs/formats/step.md, as code. Plain values: no pointers into engine state, so that a plan can be
// hashed, sent to other ranks, recorded and replayed.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "format/page_tag.h"
#include "format/sampling.h"

namespace quire {

// A token that a step feeds: known now, or what an earlier step will have sampled. The second form
// lets step N + 1 be submitted before step N's tokens are read.
struct TokenSource {
  Token literal = -1;              // >= 0: the token itself
  std::optional<TicketId> ticket;  // else: the token that this step sampled ...
  int32_t row = 0;                 // ... for this row of it ...
  int32_t index = 0;               // ... at this place among the row's sampled tokens
};

// How the token after a row is chosen: the settings and what they count. Randomness is
// counter-based: a pure function of seed and position.
struct SamplerPlan {
  SamplingSettings settings;
  std::vector<Token> prompt;           // only when a penalty needs it
  std::vector<TokenSource> generated;  // only when a penalty needs it, oldest first
  std::vector<uint64_t> mask;          // bit per token, or empty: all allowed
};

// One sequence's part of a step: n consecutive tokens of it, from `first_position`.
struct StepRow {
  RequestId request;
  uint64_t nonce = 0;  // random, one a request; travels with every row to the socket
  SlotId slot;         // the row of the page table
  int32_t first_position = 0;
  std::vector<TokenSource> tokens;  // 1 to k
  // Positions whose logits are wanted: the last n_logits tokens of the row. 0 for a chunk of a
  // prompt that is not its last; 1 to sample the next token; more to verify drafts later.
  int32_t n_logits = 0;
  SamplerPlan sampler;  // meaningful when n_logits > 0
  // What the sequence is known to say after each of the row's first tokens: their log-probabilities
  // are wanted, and nothing is sampled there. At most n - n_logits; empty when nobody asked.
  std::vector<Token> targets;
  int32_t target_tops = 0;  // alternatives beside each, [0, kTopLogprobsMax]
  // Every page the row may touch, in logical order, as the request recorded it when it matched or
  // allocated it: the expected side of the integrity check, and the page table row itself.
  std::vector<TaggedPage> pages;
  // Tokens committed before this step; a rollback goes back to a length not below it.
  int32_t committed = 0;
};

struct StepPlan {
  uint64_t step = 0;  // counts from 1, without gaps
  std::vector<StepRow> rows;
};

// What the device checks before it trusts a staging slot: it arrives with the inputs, while the
// step number also arrives by a second path (a device counter).
struct StepHeader {
  uint64_t step = 0;
  uint64_t n_rows = 0;
  uint64_t nonce_sum = 0;  // sum of the rows' nonces, mod 2^64
  uint64_t hash = 0;       // hash_plan
};

// XXH3-64 over every field of the plan in order of declaration, so that all ranks can compare.
uint64_t hash_plan(const StepPlan& plan);
StepHeader make_header(const StepPlan& plan);

enum class RowVerdict : uint8_t {
  ok,
  bad_logits,   // NaN or infinity
  dead_end,     // the mask admits no token
  stale_page,   // a page's tag is not the expected one
  stale_write,  // a KV write was dropped for the same reason
  bad_header,   // the staging slot did not hold this step
  no_token,     // a token of the row was to come from an earlier step, and its row gave none
};

struct SampledLogprob {
  Token token = -1;
  float logprob = 0;
  std::vector<std::pair<Token, float>> top;  // descending
};

struct StepRowResult {
  RequestId request;
  uint64_t nonce = 0;  // as planned: a result is matched by it, not by its place
  RowVerdict verdict = RowVerdict::ok;
  std::vector<SampledLogprob> tokens;  // sampled, in order; empty when n_logits was 0
  std::vector<SampledLogprob> scores;  // one a target, in order
  int32_t accepted = 0;                // length of the sequence whose KV is valid after this step
  int32_t pages_checked = 0;           // entries that the integrity check covered
  // When verdict is stale_*: which page and what was found.
  PageId page = kNoPage;
  uint64_t found_tag = 0;
};

struct StepResult {
  uint64_t step = 0;
  std::vector<StepRowResult> rows;  // in the order of the plan
};

}  // namespace quire
