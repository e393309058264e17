// A chat with a model in this process: the server's admission and answers, without the server.
#include <chrono>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/rng.h"
#include "engine/service.h"
#include "model/config.h"
#include "server/admission.h"
#include "server/choice.h"
#include "tools/chat_source.h"
#include "tools/engine_source.h"
#include "tools/text_source.h"

namespace quire {

namespace {

constexpr const char* kModelName = "model";
constexpr size_t kOutputsMax = size_t{1} << 16;

// Hands the engine's outputs to the thread that prints.
class QueueSink final : public OutputSink {
 public:
  explicit QueueSink(BoundedQueue<RequestOutput>& queue) : queue_(queue) {}
  void on_output(RequestOutput output) override {
    // One answer has fewer outputs than the queue has room for.
    CHECK(queue_.try_push(std::move(output)));
  }

 private:
  BoundedQueue<RequestOutput>& queue_;
};

class LocalChat final : public ChatSource {
 public:
  LocalChat(std::string path, ChatOptions options, std::unique_ptr<TextSource> text,
            ModelEngine engine)
      : path_(std::move(path)),
        options_(std::move(options)),
        text_(std::move(text)),
        engine_(std::move(engine)),
        model_{.names = {kModelName},
               .path = path_,
               .tokenizer = text_->tokenizer,
               .chat = *text_->chat,
               .trie = text_->trie,
               .vocab_size = engine_.config.vocab_size,
               .context_tokens = engine_.config.context_tokens,
               .turn_ends = text_->chat->stop_tokens(text_->tokenizer)},
        service_(engine_.config, *engine_.executor, clock_, log_) {}

  std::string description() const override { return path_; }

  Status answer(const Json& messages, const ChatListener& listener) override {
    Json body = options_.fields;
    body["model"] = kModelName;
    body["messages"] = messages;
    seed_ = mix64(seed_);
    Admission admission = admit(model_, Endpoint::chat, dump_json(body), {.fresh_seed = seed_});
    if (const auto* error = std::get_if<ApiError>(&admission)) {
      return invalid_argument(error->message);
    }
    auto admitted = std::get<AdmittedRequest>(std::move(admission));
    AdmittedChoice& first = admitted.choices.front();
    const auto choice = make_choice(model_, admitted.style, &first);
    const RequestId request =
        TRY(service_.submit(std::move(first.request), std::make_unique<QueueSink>(outputs_)));
    return tell(*choice, listener, request);
  }

 private:
  // Until the engine has said its last word of the answer.
  Status tell(Choice& choice, const ChatListener& listener, RequestId request) {
    bool is_wanted = true;
    Status result;
    while (true) {
      const std::optional<RequestOutput> output = outputs_.pop_for(std::chrono::seconds(1));
      if (!output) continue;
      if (is_wanted) {
        ChoiceDelta delta = choice.push(*output);
        if (delta.error) result = unavailable(delta.error->message);
        is_wanted =
            listener({std::move(delta.reasoning), std::move(delta.content)}) && !delta.ends();
        if (!is_wanted && !output->finish) service_.abort(request);
      }
      if (output->finish) return result;
    }
  }

  const std::string path_;
  const ChatOptions options_;
  SteadyClock clock_;
  Log log_{LogLevel::warning, LogFormat::text};
  std::unique_ptr<TextSource> text_;
  ModelEngine engine_;
  ServedModel model_;
  // Before the service, whose thread pushes into it.
  BoundedQueue<RequestOutput> outputs_{kOutputsMax};
  EngineService service_;
  uint64_t seed_ = static_cast<uint64_t>(clock_.now_us());
};

}  // namespace

Result<std::unique_ptr<ChatSource>> load_chat(const std::string& model_path, ChatOptions options) {
  auto text = TRY(load_text(model_path, "auto"));
  LoadedModel loaded = TRY(load_model({.dir = model_path}));
  TRY_OK(check_vocabulary(loaded.config, text->tokenizer.vocab_size()));
  ModelEngine engine = TRY(make_model_engine(std::move(loaded), {.running_requests_max = 1}));
  return std::unique_ptr<ChatSource>(std::make_unique<LocalChat>(
      model_path, std::move(options), std::move(text), std::move(engine)));
}

}  // namespace quire
