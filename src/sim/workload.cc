#include "sim/workload.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/rng.h"

namespace quire::sim {

namespace {

constexpr int32_t kVocab = 40;     // small, so that random prompts share pages by chance too
constexpr int32_t kDocuments = 3;  // common beginnings of prompts
constexpr int32_t kSparePages = 4;

int32_t between(Rng& rng, int32_t least, int32_t most) {
  return least + static_cast<int32_t>(rng.next_below(static_cast<uint64_t>(most - least + 1)));
}

bool chance(Rng& rng, uint64_t percent) { return rng.next_below(100) < percent; }

FeatureSet draw_features(Rng& rng) {
  FeatureSet features(static_cast<uint32_t>(rng.next_u64()) & ((uint32_t{1} << kFeatures) - 1));
  // Without it most of what is tested cannot happen.
  if (chance(rng, 80)) features.add(Feature::prefix_cache);
  return features;
}

EngineConfig draw_engine(Rng& rng, FeatureSet features) {
  EngineConfig engine;
  const int32_t page_bits = between(rng, 0, 6);
  const int32_t n_pages = between(rng, 3, 30);
  engine.page_tokens =
      int32_t{1} << (features.has(Feature::tiny_pages) ? page_bits % 2 : page_bits);
  engine.n_pages = features.has(Feature::small_pool) ? 3 + n_pages % 6 : n_pages;
  engine.vocab_size = kVocab;
  engine.context_tokens = between(rng, 2, 160);
  engine.running_requests_max = between(rng, 1, 8);
  engine.queued_requests_max = between(rng, 0, 12);
  engine.chunked_prefill_tokens = between(rng, 1, 48);
  engine.seed = rng.next_u64();
  engine.prefix_cache = features.has(Feature::prefix_cache);
  engine.overlap = features.has(Feature::overlap) ? Overlap::on : Overlap::off;
  return engine;
}

// From a stream of its own: what is checked changes nothing else.
IntegrityConfig draw_integrity(uint64_t seed, FeatureSet features) {
  Rng rng(mix64(seed ^ 0x636865636bULL));  // "check"
  IntegrityConfig integrity = integrity_config(
      features.has(Feature::full_checks) ? IntegrityLevel::full : IntegrityLevel::tags);
  if (features.has(Feature::odd_checks)) {
    integrity = {.tags = chance(rng, 50),
                 .writes = chance(rng, 50),
                 .seals = chance(rng, 50),
                 .places = chance(rng, 50),
                 .poison = chance(rng, 50)};
  }
  integrity.scrub_pages = integrity.seals ? between(rng, 0, 4) : 0;
  integrity.audit_steps = integrity.places ? between(rng, 1, 16) : 0;
  return integrity;
}

// What a fault needs to have something to damage; what would hide it is off.
void fit_features(const Case& drawn, FeatureSet* features) {
  features->remove(Feature::narrow_identities);
  features->remove(Feature::rare_points);
  if (drawn.fault->fault == Fault::f30) {
    for (const Feature pressure : {Feature::small_pool, Feature::prefix_cache, Feature::tenants,
                                   Feature::aborts, Feature::bursts}) {
      features->add(pressure);
    }
  }
  const Fault planted = planted_by(drawn.fault->fault, drawn.seed);
  if (planted == Fault::f08) features->add(Feature::narrow_identities);
  if (planted == Fault::f08 || planted == Fault::f09 || planted == Fault::f10) {
    for (const Feature shared :
         {Feature::prefix_cache, Feature::shared_documents, Feature::tenants, Feature::bursts}) {
      features->add(shared);
    }
  }
}

void draw_checks(const Case& drawn, FeatureSet features, EngineConfig* engine) {
  Rng rng(mix64(drawn.seed ^ 0x62697473ULL));  // "bits": a stream of its own
  engine->integrity_retries = features.has(Feature::retries) ? between(rng, 1, 2) : 0;
  if (features.has(Feature::narrow_identities)) engine->identity_bits = between(rng, 2, 12);
  engine->integrity = draw_integrity(drawn.seed, features);
  if (!drawn.fault) return;
  engine->integrity = drawn.fault->checks;
  engine->integrity_retries = drawn.fault->retries;
  // Whose page is stolen while it looks at it has met nothing yet that it could not meet again.
  if (planted_by(drawn.fault->fault, drawn.seed) == Fault::f10) engine->integrity_retries = 1;
}

std::vector<Token> random_tokens(Rng& rng, int32_t n) {
  std::vector<Token> tokens(static_cast<size_t>(n));
  for (Token& token : tokens) token = static_cast<Token>(rng.next_below(kVocab));
  return tokens;
}

using Documents = std::array<std::vector<Token>, kDocuments>;

// Draws requests one after the other. Everything about a request comes from a stream of its own.
class RequestDrawer {
 public:
  RequestDrawer(uint64_t seed, const Workload& workload, const Documents& documents)
      : seed_(seed), workload_(workload), documents_(documents) {}

  PlannedRequest draw(size_t number, int64_t arrives_us) const {
    Rng rng(mix64(seed_ ^ mix64(number + 1)));
    PlannedRequest out{.arrives_us = arrives_us};
    const int32_t tenant = between(rng, 0, 2);
    out.tenant = has(Feature::tenants) ? tenant : 0;
    out.salt = mix64(static_cast<uint64_t>(out.tenant) + 1);
    GenerateRequest& request = out.request;
    request.tenant[0] = static_cast<uint8_t>(out.tenant);
    request.prompt = draw_prompt(rng, out.tenant);
    request.max_new_tokens = between(rng, 1, 80);
    // Most requests are cut to what can be had; the others show that the rest is refused.
    if (chance(rng, 90)) cut_to_fit(rng, &request);
    request.sampling.seed = rng.next_u64();
    const std::vector<Token> stops = random_tokens(rng, between(rng, 0, 3));
    if (has(Feature::stop_tokens)) request.stop_tokens = stops;
    draw_leaving(rng, &out);
    out.fits = can_fit(request);
    if (out.fits) out.right = right_answer(workload_.model, out.salt, request);
    return out;
  }

 private:
  bool has(Feature feature) const { return workload_.features.has(feature); }

  // A common beginning, or an earlier conversation, and something new.
  std::vector<Token> draw_prompt(Rng& rng, int32_t tenant) const {
    const uint64_t kind = rng.next_below(100);
    const uint64_t which = rng.next_u64();
    const std::vector<Token>& document = documents_[which % kDocuments];
    const auto document_tokens = static_cast<int32_t>(document.size());
    const int32_t length = between(rng, 0, document_tokens);
    const std::vector<Token> fresh = random_tokens(rng, between(rng, 0, 20));
    std::vector<Token> prompt;
    const std::vector<PlannedRequest>& earlier = workload_.requests;
    if (kind < 40 && has(Feature::second_turns) && !earlier.empty()) {
      const PlannedRequest& first = earlier[which % earlier.size()];
      if (first.tenant == tenant) {
        prompt = first.request.prompt;
        prompt.insert(prompt.end(), first.right.begin(), first.right.end());
      }
    } else if (kind < 80 && has(Feature::shared_documents)) {
      prompt.assign(document.begin(), document.begin() + length);
    }
    prompt.insert(prompt.end(), fresh.begin(), fresh.end());
    return prompt;
  }

  // The most tokens that a request may come to: the last one is not stored.
  int32_t capacity() const {
    const EngineConfig& engine = workload_.engine;
    return std::min(engine.context_tokens, (engine.n_pages - 1) * engine.page_tokens + 1);
  }

  void cut_to_fit(Rng& rng, GenerateRequest* request) const {
    if (request->prompt.empty()) request->prompt = random_tokens(rng, 1);
    request->max_new_tokens = std::min(request->max_new_tokens, capacity() - 1);
    const auto room = static_cast<size_t>(capacity() - request->max_new_tokens);
    if (request->prompt.size() > room) request->prompt.resize(room);
  }

  void draw_leaving(Rng& rng, PlannedRequest* out) const {
    const int64_t span_us = 60 * (workload_.pace.turn_us + workload_.pace.row_us);
    const auto after = [&] {
      return out->arrives_us + static_cast<int64_t>(rng.next_below(static_cast<uint64_t>(span_us)));
    };
    const bool leaves = chance(rng, 30);
    const int64_t aborts_us = after();
    const int64_t deadline_us = 4 * (after() - out->arrives_us) + out->arrives_us;
    if (leaves && has(Feature::aborts)) out->aborts_us = aborts_us;
    if (has(Feature::deadlines)) out->deadline_us = deadline_us;
  }

  // Said anew, from the rules, not from the engine's own function.
  bool can_fit(const GenerateRequest& request) const {
    const auto n = static_cast<int64_t>(request.prompt.size());
    return n > 0 && n + request.max_new_tokens <= capacity();
  }

  const uint64_t seed_;
  const Workload& workload_;
  const Documents& documents_;
};

}  // namespace

Workload draw_workload(const Case& drawn) {
  Rng rng(drawn.seed);
  Workload out;
  out.features = draw_features(rng);
  for (int i = 0; i < kFeatures; ++i) {
    const auto feature = static_cast<Feature>(i);
    if (drawn.without.has(feature)) out.features.remove(feature);
  }
  if (drawn.fault) fit_features(drawn, &out.features);
  out.engine = draw_engine(rng, out.features);
  draw_checks(drawn, out.features, &out.engine);
  out.model = {.vocab_size = kVocab, .seed = rng.next_u64()};
  out.pace = {.turn_us = between(rng, 50, 2000), .row_us = between(rng, 5, 1000)};
  out.audit_every = between(rng, 1, 64);
  Documents documents;
  for (std::vector<Token>& document : documents) {
    document = random_tokens(rng, out.engine.context_tokens);
  }
  const auto n_requests = static_cast<size_t>(between(rng, 5, 60));
  const auto gap_us = static_cast<uint64_t>(between(rng, 50, 20'000));
  const auto burst = static_cast<uint64_t>(between(rng, 2, 12));
  const RequestDrawer drawer(rng.next_u64(), out, documents);
  int64_t now_us = 0;
  for (size_t i = 0; i < n_requests; ++i) {
    const auto wait_us = static_cast<int64_t>(rng.next_below(gap_us));
    const bool comes_along = i % burst != 0 && out.features.has(Feature::bursts);
    if (!comes_along) now_us += wait_us;
    out.requests.push_back(drawer.draw(i, now_us));
  }
  // What is quarantined because of a fault is missing to nobody.
  if (drawn.fault) out.engine.n_pages += kSparePages;
  return out;
}

}  // namespace quire::sim
