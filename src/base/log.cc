#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "base/json.h"

namespace quire {

struct Log::Sink {
  spdlog::logger logger;
  LogFormat format;
};

namespace {

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::silent:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

}  // namespace

Log::Log(LogLevel least, LogFormat format) {
  // spdlog shares its sinks; the shared pointer stays inside this file.
  spdlog::logger logger("quire", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger.set_level(to_spdlog(least));
  logger.set_pattern(format == LogFormat::json
                         ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":%v})"
                         : "[%Y-%m-%d %H:%M:%S.%e] %L %v");
  logger.flush_on(spdlog::level::info);
  sink_ = std::make_unique<Sink>(Sink{std::move(logger), format});
}

Log::~Log() = default;

void Log::write(LogLevel level, std::string_view message) {
  const bool json = sink_->format == LogFormat::json;
  // A text line stays one line whatever it carries.
  std::string line = json ? dump_json(Json(message)) : std::string(message);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  sink_->logger.log(to_spdlog(level), "{}", line);
}

}  // namespace quire
