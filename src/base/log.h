// Log: one line an event, to standard error, as text or as JSON. Passed to whoever logs.
//
// Not for results (those go to standard output). Foreign text is passed through `excerpt` first.
// Thread-safe. The library behind it (spdlog) is seen by base/log.cc alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace quire {

// `silent` is for a log that is to write nothing.
enum class LogLevel { debug, info, warning, error, silent };
enum class LogFormat { text, json };

class Log {
 public:
  Log(LogLevel least, LogFormat format);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void write(LogLevel level, std::string_view message);
  void debug(std::string_view message) { write(LogLevel::debug, message); }
  void info(std::string_view message) { write(LogLevel::info, message); }
  void warning(std::string_view message) { write(LogLevel::warning, message); }
  void error(std::string_view message) { write(LogLevel::error, message); }

 private:
  struct Sink;
  std::unique_ptr<Sink> sink_;
};

}  // namespace quire
