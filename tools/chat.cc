// quire chat: a conversation in the terminal, with a server or with a model in this process.
//
// Thoughts are dimmed. Ctrl-C ends the answer that is being written; at the prompt it ends the
// program, as the end of the input does.
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "tools/chat_source.h"
#include "tools/commands.h"
#include "tools/option_value.h"

namespace quire {

namespace {

constexpr const char* kHelp =
    "  /clear        forget the conversation\n"
    "  /system TEXT  set the system message and begin anew\n"
    "  /exit         leave\n";

// Keeps Ctrl-C from ending the program while it exists, and says whether it was pressed.
class InterruptWatch {
 public:
  InterruptWatch() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~InterruptWatch() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

  bool is_pressed() {
    constexpr timespec kNow{.tv_sec = 0, .tv_nsec = 0};
    return sigtimedwait(&set_, nullptr, &kNow) == SIGINT;
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

// Writes an answer as it comes. A model's text may not move the cursor or change the screen.
class Printer {
 public:
  void print(const ChatPiece& piece) {
    if (!piece.reasoning.empty()) print(piece.reasoning, "\x1b[2m", Kind::thought);
    if (!piece.content.empty()) print(piece.content, "\x1b[0m", Kind::content);
    std::fflush(stdout);
  }
  void end() {
    if (has_style_) std::fputs("\x1b[0m", stdout);
    std::fputs("\n", stdout);
  }

 private:
  enum class Kind { none, thought, content };

  void print(std::string_view text, const char* style, Kind kind) {
    if (kind != kind_) {
      if (kind_ != Kind::none) std::fputs("\n", stdout);
      if (has_style_) std::fputs(style, stdout);
      kind_ = kind;
    }
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      const bool is_control = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
      std::fputc(is_control ? '?' : c, stdout);
    }
  }

  Kind kind_ = Kind::none;
  const bool has_style_ = isatty(STDOUT_FILENO) == 1;
};

class Conversation {
 public:
  Conversation(ChatSource& source, std::string system)
      : source_(source), system_(std::move(system)) {
    clear();
  }

  void clear() {
    messages_ = Json::array();
    if (!system_.empty()) messages_.push_back({{"role", "system"}, {"content", system_}});
  }

  // Asks, prints the answer, and remembers both. After an error the question is forgotten.
  Status say(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    InterruptWatch interrupt;
    Printer printer;
    std::string reasoning;
    std::string content;
    const Status told = source_.answer(messages_, [&](const ChatPiece& piece) {
      printer.print(piece);
      reasoning += piece.reasoning;
      content += piece.content;
      return !interrupt.is_pressed();
    });
    printer.end();
    if (!told.ok()) {
      messages_.erase(messages_.size() - 1);
      return told;
    }
    Json answer = {{"role", "assistant"}, {"content", content}};
    if (!reasoning.empty()) answer["reasoning_content"] = reasoning;
    messages_.push_back(std::move(answer));
    return {};
  }

  // False for the command that ends the program.
  bool command(const std::string& line) {
    constexpr std::string_view kSystem = "/system ";
    if (line == "/exit" || line == "/quit") return false;
    if (line == "/clear") {
      clear();
    } else if (line.compare(0, kSystem.size(), kSystem) == 0) {
      system_ = line.substr(kSystem.size());
      clear();
    } else {
      std::fputs(kHelp, stdout);
    }
    return true;
  }

 private:
  ChatSource& source_;
  std::string system_;
  Json messages_;
};

ExitCode converse(ChatSource& source, const CLI::App& command) {
  Conversation conversation(source, option_value<std::string>(command, "--system", ""));
  if (command.count("--message") > 0) {
    const Status told = conversation.say(option_value<std::string>(command, "--message", ""));
    return told.ok() ? ExitCode::ok : fail(told.error());
  }
  const bool is_terminal = isatty(STDIN_FILENO) == 1;
  if (is_terminal) std::printf("Talking to %s. /help tells more.\n", source.description().c_str());
  std::string line;
  while (true) {
    if (is_terminal) std::fputs("> ", stdout);
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) return ExitCode::ok;
    if (line.empty()) continue;
    if (line.front() == '/') {
      if (!conversation.command(line)) return ExitCode::ok;
      continue;
    }
    const Status told = conversation.say(line);
    if (!told.ok()) std::fprintf(stderr, "quire: error: %s\n", told.error().message.c_str());
  }
}

ExitCode chat(const CLI::App& command) {
  ChatOptions options{.model = option_value<std::string>(command, "--model", ""),
                      .api_key = option_value<std::string>(command, "--api-key", "")};
  if (command.count("--temperature") > 0) {
    options.fields["temperature"] = option_value(command, "--temperature", 1.0);
  }
  if (command.count("--max-tokens") > 0) {
    options.fields["max_tokens"] = option_value(command, "--max-tokens", int64_t{0});
  }
  if (command.count("--no-thinking") > 0) {
    options.fields["chat_template_kwargs"] = Json{{"thinking", false}};
  }
  auto source =
      command.count("--model-path") > 0
          ? load_chat(option_value<std::string>(command, "--model-path", ""), std::move(options))
          : connect_chat(option_value<std::string>(command, "--url", "http://127.0.0.1:30000"),
                         std::move(options));
  if (!source.ok()) return fail(source.error());
  return converse(*source.value(), command);
}

}  // namespace

void add_chat_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* command = app.add_subcommand("chat", "Talk to a model in the terminal");
  const auto add = [&](const char* name, const std::string& help) {
    return command->add_option(name, help);
  };
  CLI::Option* url = add("--url", "Server to talk to (http://127.0.0.1:30000)");
  add("--model-path", "Folder of a model to run in this process instead")->excludes(url);
  add("--model", "Name of the server's model (default: its first)");
  add("--api-key", "Key for the server");
  add("--system", "System message");
  add("--message", "Ask this, print the answer and end");
  add("--temperature", "0 to 2; 0 always takes the likeliest token");
  add("--max-tokens", "Longest answer");
  const std::string no_thinking = "Answer without thoughts";
  command->add_flag("--no-thinking", no_thinking);
  command->callback([command, exit_code] { *exit_code = chat(*command); });
}

}  // namespace quire
