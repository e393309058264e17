#include "server/chat_fields.h"

#include <string>
#include <utility>

#include "base/json.h"
#include "server/context_errors.h"
#include "text/chat_request.h"

namespace quire {

namespace {

// Errors of the text layer begin with the path of the field, then a colon and a blank.
void refuse(FieldReader& body, const Error& error) {
  const size_t colon = error.message.find(": ");
  const bool has_path = colon != std::string::npos && error.message.find(' ') > colon;
  const std::string path = has_path ? error.message.substr(0, colon) : "";
  const std::string what = has_path ? error.message.substr(colon + 2) : error.message;
  const char* code = error.code == ErrorCode::unsupported ? "unsupported_value" : "invalid_value";
  if (what == "missing") code = "missing_required_parameter";
  body.refuse(code, path, has_path ? "Invalid '" + path + "': " + what + "." : what);
}

// What tool_choice asks for, when it is not "auto": the tools go, or one must be called.
std::optional<ToolDemand> read_tool_choice(FieldReader& body, ChatRequest* chat) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr || *choice == "auto") return std::nullopt;
  if (*choice == "none") {
    chat->tools = Json::array();
    return std::nullopt;
  }
  ToolDemand demand;
  if (choice->is_object()) {
    FieldReader fields(*choice, "tool_choice.");
    const auto type = fields.string("type", 64);
    const Json* function = fields.object("function");
    if (!fields.failed() && (type != "function" || function == nullptr)) {
      fields.refuse("invalid_value", "type", "Only a function can be chosen.");
    }
    if (fields.failed()) {
      body.refuse(fields.error());
      return std::nullopt;
    }
    FieldReader named(*function, "tool_choice.function.");
    const auto name = named.string("name", 64);
    if (!name) named.refuse("missing_required_parameter", "name", "The function needs a name.");
    if (named.failed()) {
      body.refuse(named.error());
      return std::nullopt;
    }
    demand.function = std::string(*name);
  } else if (*choice != "required") {
    body.refuse("invalid_value", "tool_choice",
                "Invalid 'tool_choice': expected \"none\", \"auto\", \"required\" or a function.");
    return std::nullopt;
  }
  if (chat->tools.empty()) {
    body.refuse("invalid_value", "tool_choice",
                "Tools cannot be empty if 'tool_choice' asks for one.");
    return std::nullopt;
  }
  return demand;
}

void make_prompt(FieldReader& body, const ServedModel& model, ChatDemand* out) {
  const Result<Prompt> rendered = model.chat.render(out->chat);
  if (!rendered.ok()) return refuse(body, rendered.error());
  size_t bytes = 0;
  for (const Prompt::Segment& segment : rendered.value().segments()) bytes += segment.text.size();
  if (const auto error = hopeless_text_error(model, bytes, "messages")) return body.refuse(*error);
  Result<std::vector<Token>> encoded = rendered.value().encode(model.tokenizer);
  if (!encoded.ok()) return refuse(body, encoded.error());
  out->prompt = std::move(encoded).value();
}

}  // namespace

ChatDemand read_chat_fields(FieldReader& body, const Json& json, const ServedModel& model,
                            const SamplingFields& sampling) {
  ChatDemand out;
  const ChatLimits limits;
  body.array("messages", limits.messages_max);
  body.array("tools", limits.tools_max);
  const bool parallel = body.boolean("parallel_tool_calls").value_or(true);
  out.tool_calls = parallel ? ToolCalls::many : ToolCalls::one;
  if (body.failed()) return out;
  Result<ChatRequest> parsed =
      parse_chat_request(json, limits, {.template_kwargs = "chat_template_kwargs"});
  if (!parsed.ok()) {
    refuse(body, parsed.error());
    return out;
  }
  out.chat = std::move(parsed).value();
  auto demand = read_tool_choice(body, &out.chat);
  if (body.failed()) return out;
  if (demand) {
    if (sampling.ignore_eos) {
      body.refuse("unsupported_parameter", "ignore_eos",
                  "'ignore_eos' cannot be combined with a 'tool_choice' that asks for a call.");
      return out;
    }
    if (!parallel) demand->calls = ToolGrammar::Calls::one;
    Result<ToolGrammar> grammar =
        model.chat.make_grammar(model.trie, model.tokenizer, out.chat, *demand);
    if (!grammar.ok()) {
      refuse(body, grammar.error());
      return out;
    }
    out.grammar = std::move(grammar).value();
  }
  make_prompt(body, model, &out);
  return out;
}

std::unique_ptr<OutputParser> make_chat_parser(FieldReader& body, const ChatDemand& demand,
                                               const ServedModel& model) {
  auto parser = model.chat.make_parser(model.tokenizer, demand.chat, SpecialText::skip_hidden);
  if (parser.ok()) return std::move(parser).value();
  refuse(body, parser.error());
  return nullptr;
}

}  // namespace quire
