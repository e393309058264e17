#include "text/chat_request.h"

#include <optional>
#include <string>

#include "base/json.h"
#include "base/text.h"
#include "text/python_json.h"

namespace quire {

namespace {

Error at(const std::string& path, const std::string& problem) {
  return invalid_argument(path + ": " + problem);
}

// The member `key`, or null when it is absent or null: JSON clients write both for "nothing".
const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

Result<std::string> optional_string(const Json& object, const char* key, const std::string& path,
                                    size_t bytes_max) {
  const Json* value = member(object, key);
  if (value == nullptr) return std::string();
  const std::string where = path + "." + key;
  if (!value->is_string()) return at(where, "expected a string");
  const auto& text = value->get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    return at(where, format("a string of %zu bytes, expected at most %zu", text.size(), bytes_max));
  }
  return text;
}

Result<std::string> read_text_part(const Json& part, const std::string& path) {
  if (!part.is_object()) return at(path, "expected an object");
  const Json* type = member(part, "type");
  if (type == nullptr) return at(path + ".type", "missing");
  if (!type->is_string()) return at(path + ".type", "expected a string");
  if (*type != "text") {
    return unsupported(path + ".type: \"" + excerpt(type->get<std::string>()) +
                       "\" is not supported, only \"text\" is");
  }
  const Json* text = member(part, "text");
  if (text == nullptr) return at(path + ".text", "missing");
  if (!text->is_string()) return at(path + ".text", "expected a string");
  return text->get<std::string>();
}

// The text of `content`; nothing when it is absent or null.
Result<std::optional<std::string>> read_content(const Json& message, const std::string& path,
                                                const ChatLimits& limits) {
  const Json* content = member(message, "content");
  if (content == nullptr) return std::optional<std::string>();
  const std::string where = path + ".content";
  if (content->is_string()) return std::optional(content->get<std::string>());
  if (!content->is_array()) return at(where, "expected a string or an array of parts");
  if (content->size() > limits.content_parts_max) {
    return at(where,
              format("%zu parts, expected at most %zu", content->size(), limits.content_parts_max));
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    text += TRY(read_text_part((*content)[i], format("%s[%zu]", where.c_str(), i)));
  }
  return std::optional(std::move(text));
}

Result<ChatRole> read_role(const Json& message, const std::string& path) {
  const Json* role = member(message, "role");
  if (role == nullptr) return at(path + ".role", "missing");
  if (!role->is_string()) return at(path + ".role", "expected a string");
  if (*role == "system" || *role == "developer") return ChatRole::system;
  if (*role == "user") return ChatRole::user;
  if (*role == "assistant") return ChatRole::assistant;
  if (*role == "tool") return ChatRole::tool;
  return at(path + ".role", "\"" + excerpt(role->get<std::string>()) +
                                "\" is none of system, developer, user, assistant and tool");
}

Result<ChatToolCall> read_tool_call(const Json& call, const std::string& path,
                                    const ChatLimits& limits) {
  if (!call.is_object()) return at(path, "expected an object");
  const Json* type = member(call, "type");
  if (type != nullptr && *type != "function") return at(path + ".type", "expected \"function\"");
  const Json* function = member(call, "function");
  if (function == nullptr) return at(path + ".function", "missing");
  if (!function->is_object()) return at(path + ".function", "expected an object");
  ChatToolCall out;
  out.id = TRY(optional_string(call, "id", path, limits.name_bytes_max));
  out.name = TRY(optional_string(*function, "name", path + ".function", limits.name_bytes_max));
  if (out.name.empty()) return at(path + ".function.name", "missing");
  const Json* arguments = member(*function, "arguments");
  if (arguments == nullptr) return at(path + ".function.arguments", "missing");
  if (arguments->is_string()) {
    out.arguments = arguments->get<std::string>();
  } else if (arguments->is_object()) {
    out.arguments = python_json(*arguments);
  } else {
    return at(path + ".function.arguments", "expected a string of JSON, or an object");
  }
  return out;
}

Status read_tool_calls(const Json& message, const std::string& path, const ChatLimits& limits,
                       ChatMessage* out) {
  const Json* calls = member(message, "tool_calls");
  if (calls == nullptr) return {};
  const std::string where = path + ".tool_calls";
  if (!calls->is_array()) return at(where, "expected an array");
  if (calls->size() > limits.tool_calls_max) {
    return at(where,
              format("%zu calls, expected at most %zu", calls->size(), limits.tool_calls_max));
  }
  if (out->role != ChatRole::assistant && !calls->empty()) {
    return at(where, "only an assistant's message may call tools");
  }
  for (size_t i = 0; i < calls->size(); ++i) {
    out->tool_calls.push_back(
        TRY(read_tool_call((*calls)[i], format("%s[%zu]", where.c_str(), i), limits)));
  }
  return {};
}

Result<ChatMessage> read_message(const Json& message, const std::string& path,
                                 const ChatLimits& limits) {
  if (!message.is_object()) return at(path, "expected an object");
  ChatMessage out;
  out.role = TRY(read_role(message, path));
  TRY_OK(read_tool_calls(message, path, limits, &out));
  auto content = TRY(read_content(message, path, limits));
  const bool may_lack_content = out.role == ChatRole::assistant;
  if (!content && !may_lack_content) return at(path + ".content", "missing");
  out.content = std::move(content).value_or("");
  out.name = TRY(optional_string(message, "name", path, limits.name_bytes_max));
  out.reasoning_content = TRY(optional_string(message, "reasoning_content", path, SIZE_MAX));
  out.tool_call_id = TRY(optional_string(message, "tool_call_id", path, limits.name_bytes_max));
  return out;
}

Status check_tool(const Json& tool, const std::string& path) {
  if (!tool.is_object()) return at(path, "expected an object");
  const Json* type = member(tool, "type");
  if (type == nullptr) return at(path + ".type", "missing");
  if (*type != "function") return unsupported(path + ".type: only \"function\" is supported");
  const Json* function = member(tool, "function");
  if (function == nullptr) return at(path + ".function", "missing");
  if (!function->is_object()) return at(path + ".function", "expected an object");
  const Json* name = member(*function, "name");
  if (name == nullptr) return at(path + ".function.name", "missing");
  if (!name->is_string() || !is_function_name(name->get<std::string>())) {
    return at(path + ".function.name", "expected 1 to 64 of a-z, A-Z, 0-9, _ and -");
  }
  const Json* description = member(*function, "description");
  if (description != nullptr && !description->is_string()) {
    return at(path + ".function.description", "expected a string");
  }
  const Json* parameters = member(*function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return at(path + ".function.parameters", "expected an object");
  }
  return {};
}

Result<Json> read_tools(const Json& body, const ChatLimits& limits) {
  const Json* tools = member(body, "tools");
  if (tools == nullptr) return Json::array();
  if (!tools->is_array()) return at("tools", "expected an array");
  if (tools->size() > limits.tools_max) {
    return at("tools", format("%zu tools, expected at most %zu", tools->size(), limits.tools_max));
  }
  for (size_t i = 0; i < tools->size(); ++i) {
    TRY_OK(check_tool((*tools)[i], format("tools[%zu]", i)));
  }
  return *tools;
}

}  // namespace

bool is_function_name(std::string_view name) {
  constexpr std::string_view kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  return !name.empty() && name.size() <= 64 &&
         name.find_first_not_of(kAllowed) == std::string_view::npos;
}

Result<ChatRequest> parse_chat_request(const Json& body, const ChatLimits& limits,
                                       const ChatFields& fields) {
  if (!body.is_object()) return at("body", "expected an object");
  ChatRequest out;
  const Json* messages = member(body, "messages");
  if (messages == nullptr) return at("messages", "missing");
  if (!messages->is_array()) return at("messages", "expected an array");
  if (messages->empty()) return at("messages", "expected at least one");
  if (messages->size() > limits.messages_max) {
    return at("messages",
              format("%zu messages, expected at most %zu", messages->size(), limits.messages_max));
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    out.messages.push_back(TRY(read_message((*messages)[i], format("messages[%zu]", i), limits)));
  }
  out.tools = TRY(read_tools(body, limits));
  if (const Json* generate = member(body, "add_generation_prompt")) {
    if (!generate->is_boolean()) return at("add_generation_prompt", "expected true or false");
    out.add_generation_prompt = generate->get<bool>();
  }
  const std::string kwargs_name(fields.template_kwargs);
  out.template_kwargs_field = kwargs_name;
  if (const Json* kwargs = member(body, kwargs_name.c_str())) {
    if (!kwargs->is_object()) return at(kwargs_name, "expected an object");
    out.template_kwargs = *kwargs;
  }
  return out;
}

}  // namespace quire
