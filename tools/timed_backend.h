// TimedBackend: passes every call on to another backend, and can note what each op takes.
//
// For benches. What it notes is one pass: the ops between begin_pass and end_pass, each with the
// bytes that it has to move by its arguments. Marks go into recordings too: a pass that was
// recorded can be replayed and read again. Knows nothing of models.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "format/kv_page.h"
#include "ops/forwarding_backend.h"

namespace quire {

struct OpNote {
  std::string name;  // the op and its shape
  double bytes = 0;  // weights, inputs and outputs, each counted once
};

// What the arguments of a step's ops do not tell.
struct StepFacts {
  int64_t kv_tokens = 0;        // cached tokens that attention reads, over all rows
  std::vector<int32_t> chosen;  // distinct experts of each call of moe_experts, in order
};

class TimedBackend final : public ForwardingBackend {
 public:
  // A pass has at most `ops_max` ops. `inner` outlives this.
  TimedBackend(Backend& inner, int32_t ops_max);

  // From here on, ops are noted; with time, each is followed by a mark of the stopwatch.
  enum class Noting : uint8_t { ops, ops_and_time };
  void begin_pass(Noting noting);
  std::vector<OpNote> end_pass();
  // Microseconds of each op of the latest timed pass, or of the latest replay of it. Waits.
  std::vector<double> read_times();

  void set_facts(StepFacts facts) { facts_ = std::move(facts); }

  void place_tokens(const ops::PlaceTokens& args) override;
  void embed(const ops::Embed& args) override;
  void rms_norm(const ops::RmsNorm& args) override;
  void add_rms_norm(const ops::AddRmsNorm& args) override;
  void linear(const ops::Linear& args) override;
  void linear_pair(const ops::LinearPair& args) override;
  void add(const ops::Add& args) override;
  void silu_mul(const ops::SiluMul& args) override;
  void rope(const ops::Rope& args) override;
  void kv_append(const ops::KvAppend& args) override;
  void append_latent(const ops::AppendLatent& args) override;
  void absorb_query(const ops::AbsorbQuery& args) override;
  void expand_value(const ops::ExpandValue& args) override;
  void mla_attention(const ops::MlaAttention& args) override;
  void mla_prefill_attention(const ops::MlaPrefillAttention& args) override;
  void moe_experts(const ops::MoeExperts& args) override;
  void gather_rows(const ops::GatherRows& args) override;
  void sample(const ops::Sample& args) override;

 private:
  enum class State : uint8_t { idle, noting, timing };
  void note(std::string name, double bytes);
  double cached_bytes(const KvPageLayout& layout) const;

  const int32_t ops_max_;
  std::unique_ptr<Stopwatch> stopwatch_;
  State state_ = State::idle;
  std::vector<OpNote> notes_;
  size_t n_timed_ = 0;   // ops of the latest timed pass
  size_t moe_call_ = 0;  // of the pass
  StepFacts facts_;
};

}  // namespace quire
