// sample, host side: settings out in one copy, answers back in one.
#include "ops/sample.h"

#include <cstring>

#include "base/bytes.h"
#include "base/rng.h"
#include "cuda/kernels.h"
#include "cuda/sample/sample_row.h"

namespace quire::cuda {

namespace {

constexpr float kGreedyBelow = 1e-5F;  // temperatures that mean 0 (ops/sample.h, step 4)

// The rows and the arrays that their slices point into.
struct Request {
  std::vector<SampleRowInput> rows;
  std::vector<TokenBias> biases;
  std::vector<int32_t> tokens;
  std::vector<uint64_t> masks;
  int64_t n_adjusted = 0;
  int64_t n_counted = 0;
  int64_t n_weighed = 0;
};

template <class T, class Range>
Slice append(std::vector<T>* to, const Range& from) {
  const auto begin = static_cast<int64_t>(to->size());
  to->insert(to->end(), from.begin(), from.end());
  return {begin, static_cast<int64_t>(to->size())};
}

void add_row(const ops::SampleRow& row, size_t mask_words, Request* request) {
  const ops::SamplingSettings& settings = *row.settings;
  SampleRowInput in{.temperature = settings.temperature < kGreedyBelow ? 0 : settings.temperature,
                    .top_p = settings.top_p,
                    .min_p = settings.min_p,
                    .top_k = settings.top_k,
                    .presence_penalty = settings.presence_penalty,
                    .frequency_penalty = settings.frequency_penalty,
                    .repetition_penalty = settings.repetition_penalty,
                    .top_logprobs = settings.top_logprobs,
                    .uniform = counter_uniform(settings.seed, row.position),
                    .adjusted_row = -1,
                    .count_row = -1,
                    .weight_row = -1};
  CHECK(0 <= in.top_logprobs && in.top_logprobs <= kTopLogprobsMax);
  in.bias.begin = static_cast<int64_t>(request->biases.size());
  for (const auto& [token, bias] : settings.logit_bias) request->biases.push_back({token, bias});
  in.bias.end = static_cast<int64_t>(request->biases.size());
  if (settings.needs_context()) {
    in.prompt = append(&request->tokens, row.prompt);
    in.generated = append(&request->tokens, row.generated);
    in.count_row = request->n_counted++;
  }
  if (!row.mask.empty()) in.mask = append(&request->masks, row.mask.first(mask_words));
  const bool is_changed =
      !settings.logit_bias.empty() || !row.mask.empty() || settings.needs_context();
  if (is_changed) in.adjusted_row = request->n_adjusted++;
  if (in.temperature > 0) in.weight_row = request->n_weighed++;
  request->rows.push_back(in);
}

template <class T>
T* send(const Context& context, const std::vector<T>& from) {
  T* to = context.workspace->take<T>(static_cast<int64_t>(from.size()));
  context.staging->send(reinterpret_cast<std::byte*>(to), std::as_bytes(std::span(from)));
  return to;
}

template <class T>
int64_t bytes_of(const std::vector<T>& v) {
  return Workspace::bytes_of<T>(static_cast<int64_t>(v.size()));
}

SampleParams send_request(const Context& context, const Request& request, int64_t vocab) {
  Workspace& workspace = *context.workspace;
  const auto n_rows = static_cast<int64_t>(request.rows.size());
  workspace.begin(bytes_of(request.rows) + bytes_of(request.biases) + bytes_of(request.tokens) +
                  bytes_of(request.masks) + Workspace::bytes_of<SampleRowOutput>(n_rows) +
                  Workspace::bytes_of<float>(request.n_adjusted * vocab) +
                  Workspace::bytes_of<uint32_t>(request.n_counted * vocab) +
                  Workspace::bytes_of<float>(request.n_weighed * vocab));
  SampleParams p{};
  p.rows = send(context, request.rows);
  p.biases = send(context, request.biases);
  p.tokens = send(context, request.tokens);
  p.masks = send(context, request.masks);
  p.out = workspace.take<SampleRowOutput>(n_rows);
  p.adjusted = workspace.take<float>(request.n_adjusted * vocab);
  p.counts = workspace.take<uint32_t>(request.n_counted * vocab);
  p.weights = workspace.take<float>(request.n_weighed * vocab);
  p.vocab = static_cast<int32_t>(vocab);
  p.n_rows = static_cast<int32_t>(n_rows);
  return p;
}

ops::SampledToken token_of(const SampleRowOutput& row) {
  ops::SampledToken out{.verdict = static_cast<ops::SampleVerdict>(row.verdict),
                        .token = row.token,
                        .logprob = row.logprob};
  for (int32_t i = 0; i < row.n_top; ++i) {
    out.top.emplace_back(row.top_tokens[i], row.top_logprobs[i]);
  }
  return out;
}

}  // namespace

void sample(const Context& context, const ops::Sample& args) {
  const int64_t vocab = args.logits[1];
  CHECK(vocab < int64_t{1} << 31);
  Request request;
  for (const ops::SampleRow& row : args.rows) {
    add_row(row, static_cast<size_t>(div_up(vocab, 64)), &request);
  }
  SampleParams p = send_request(context, request, vocab);
  p.logits = args.logits.data;
  p.logits_stride = args.logits.stride[0];
  launch_sample(context, p);
  std::vector<SampleRowOutput> answers(args.rows.size());
  context.staging->fetch(std::as_writable_bytes(std::span(answers)),
                         reinterpret_cast<const std::byte*>(p.out));
  for (size_t i = 0; i < answers.size(); ++i) args.out[i] = token_of(answers[i]);
}

}  // namespace quire::cuda
