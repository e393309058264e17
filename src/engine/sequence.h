// Sequence: a request on its way through the engine. State only; engine.cc moves it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "format/page_directory.h"
#include "format/step.h"

namespace quire {

struct Sequence {
  RequestId id;  // its place in the order of arrival, too
  // Travels with every row and comes back with every result. A retry has a new one, so that what
  // an open step still says of the try before it is known as such.
  uint64_t nonce = 0;
  GenerateRequest request;  // its prompt has moved to `tokens`
  std::unique_ptr<OutputSink> sink;

  std::vector<Token> tokens;  // prompt, then generated
  int32_t n_prompt = 0;
  // Set while it runs. Its pages are then in the page table's row of that slot.
  std::optional<SlotId> slot;
  int32_t computed = 0;       // leading tokens whose keys are in its pages
  int32_t planned = 0;        // those that will be, when the open steps are done
  int32_t matched_pages = 0;  // leading pages that came from the prefix index
  int32_t sealed_pages = 0;   // leading pages that are sealed, those included
  // The index's page of what its sealed pages hold, for the next of them to be linked to; none at
  // the beginning. Empty when the index does not have them: what follows is not published.
  std::optional<TaggedPage> published;
  // The token after the last of `tokens`, when an open step chooses it.
  std::optional<TokenSource> next;
  // identities[-1] of the chain, and as many of identities[k] as were needed so far.
  PageIdentity root;
  std::vector<PageIdentity> identities;
  std::optional<int32_t> cached_tokens;  // of the prompt, at the first admission
  int32_t retries = 0;                   // how often a check has set it back to its prompt
  // Prompt tokens whose log-probabilities have been told. The first has none.
  int32_t n_scored = 1;

  int32_t n_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t n_generated() const { return n_tokens() - n_prompt; }
  // Counts `next`, known or not.
  int32_t n_tokens_planned() const { return n_tokens() + (next ? 1 : 0); }
  // Whether log-probabilities of the prompt are still to be told: its tokens are then computed,
  // whether or not their keys are cached.
  bool wants_scores() const { return request.prompt_logprobs && n_scored < n_prompt; }
  // Whether anything of the answer has left.
  bool has_told() const { return n_generated() > 0 || n_scored > 1; }
  // Whether `next` is the last token that it may have.
  bool is_ending() const { return next && n_generated() + 1 >= request.max_new_tokens; }
};

}  // namespace quire
