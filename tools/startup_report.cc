#include "tools/startup_report.h"

#include "base/json.h"
#include "base/text.h"

namespace quire {

void StartupReport::end_step(std::string name, Backend* backend, int64_t bytes_read) {
  const int64_t now_us = clock_.now_us();
  Step step{.name = std::move(name),
            .seconds = static_cast<double>(now_us - last_us_) * 1e-6,
            .bytes_read = bytes_read};
  last_us_ = now_us;
  // A host's memory is everybody's: what is free there says nothing of one process.
  if (backend != nullptr && !backend->reads_host_memory()) {
    const MemoryInfo now = backend->memory_info();
    // The first step with a backend is charged what the device held by then.
    step.bytes_taken = (counts_memory_ ? memory_.free : now.total) - now.free;
    memory_ = now;
    counts_memory_ = true;
  }
  steps_.push_back(std::move(step));
}

double StartupReport::seconds() const { return static_cast<double>(last_us_ - begin_us_) * 1e-6; }

std::vector<std::string> StartupReport::lines() const {
  std::string time = format("Start-up took %.2f s:", seconds());
  std::string memory = format("Memory of the device, %s:", human_bytes(memory_.total).c_str());
  const char* separator = " ";
  for (const Step& step : steps_) {
    time += format("%s%s %.2f s", separator, step.name.c_str(), step.seconds);
    if (step.bytes_read > 0 && step.seconds > 0) {
      const auto rate = static_cast<double>(step.bytes_read) / step.seconds;
      time += format(" (%s, %s/s)", human_bytes(step.bytes_read).c_str(),
                     human_bytes(static_cast<int64_t>(rate)).c_str());
    }
    if (step.bytes_taken != 0) {
      memory += format(" %s %s,", step.name.c_str(), human_bytes(step.bytes_taken).c_str());
    }
    separator = ", ";
  }
  std::vector<std::string> out{std::move(time)};
  if (counts_memory_) {
    out.push_back(memory + format(" free %s", human_bytes(memory_.free).c_str()));
  }
  return out;
}

Json StartupReport::json() const {
  Json steps = Json::array();
  for (const Step& step : steps_) {
    steps.push_back({{"name", step.name},
                     {"seconds", step.seconds},
                     {"bytes_read", step.bytes_read},
                     {"device_bytes", step.bytes_taken}});
  }
  Json out = {{"seconds", seconds()}, {"steps", std::move(steps)}, {"warnings", warnings_}};
  if (counts_memory_) {
    out["device_bytes_total"] = memory_.total;
    out["device_bytes_free"] = memory_.free;
  }
  return out;
}

}  // namespace quire
