// quire render: a chat as the text that a family's models see, one JSON object a line.
//
// In {"messages", "tools", "add_generation_prompt", "template_kwargs"}, out {"rendered": "..."}.
// The text is for reading and for comparing with published templates: the server tokenizes the
// segments behind it, where user text can never be markup. The first bad line ends it.
#include <iostream>
#include <string>

#include "base/json.h"
#include "base/text.h"
#include "text/chat.h"
#include "text/chat_request.h"
#include "tools/commands.h"

namespace quire {

namespace {

Result<std::string> render_line(const ChatFormat& chat_format, const std::string& line) {
  const Json body = TRY(parse_json(line));
  const ChatRequest request = TRY(parse_chat_request(body));
  const Prompt prompt = TRY(chat_format.render(request));
  Json out;
  out["rendered"] = prompt.text();
  return dump_json(out);
}

Status render_lines(const std::string& family) {
  const auto chat_format = TRY(make_chat_format(family));
  std::string line;
  for (size_t n = 1; std::getline(std::cin, line); ++n) {
    if (line.empty()) continue;
    const auto rendered = render_line(*chat_format, line);
    if (!rendered.ok()) {
      return {Error{rendered.error().code, format("line %zu: ", n) + rendered.error().message}};
    }
    std::cout << rendered.value() << '\n';
  }
  std::cout.flush();
  if (!std::cout) return unavailable("standard output refused the text");
  return {};
}

}  // namespace

void add_render_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand("render", "Chats as the text a model sees, as JSON lines");
  command->add_option("--family", "kimi-k2-thinking, kimi-k2.5 or kimi-k2.6")->required();
  command->callback([command, exit_code] {
    const Status status = render_lines(command->get_option("--family")->as<std::string>());
    *exit_code = status.ok() ? ExitCode::ok : fail(status.error());
  });
}

}  // namespace quire
