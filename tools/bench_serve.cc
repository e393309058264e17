// quire bench serve: how fast a server answers, over HTTP, with the fields of SGLang's
// bench_serving. Any OpenAI-compatible server.
#include <algorithm>
#include <cstdio>
#include <string>

#include "base/json.h"
#include "tools/bench_commands.h"
#include "tools/option_value.h"
#include "tools/serve_load.h"

namespace quire {

namespace {

constexpr int32_t kStreamsMax = 1024;  // a thread each

// The first model that the server names.
Result<std::string> first_model(const LoadPlan& plan) {
  HttpExchange exchange =
      TRY(HttpExchange::ask(plan.server, {.path = "/v1/models", .api_key = plan.api_key}));
  const std::string body = exchange.rest();
  if (exchange.status() != 200) return unavailable(error_message_of(body));
  const Json models = TRY(parse_json(body));
  const Json::json_pointer id("/data/0/id");
  if (!models.contains(id) || !models[id].is_string()) {
    return unavailable("the server names no model");
  }
  return models[id].get<std::string>();
}

Result<LoadPlan> read_plan(const CLI::App& command) {
  LoadPlan plan{.n_requests = option_value(command, "--num-prompts", 1000),
                .seconds = option_value(command, "--duration", 0.0),
                .request_rate = option_value(command, "--request-rate", 0.0),
                .input_len = option_value(command, "--random-input-len", 1024),
                .output_len = option_value(command, "--random-output-len", 1024),
                .range_ratio = option_value(command, "--random-range-ratio", 0.0),
                .vocab = option_value(command, "--random-vocab", 4000),
                .n_prefixes = option_value(command, "--num-prefixes", 0),
                .prefix_len = option_value(command, "--prefix-len", 256),
                .abandon_share = option_value(command, "--abandon", 0.0),
                .seed = option_value(command, "--seed", uint64_t{1})};
  plan.streams = option_value(command, "--max-concurrency", std::min(plan.n_requests, kStreamsMax));
  plan.api_key = option_value(command, "--api-key", plan.api_key);
  plan.server = TRY(
      parse_server_url(option_value<std::string>(command, "--base-url", "http://127.0.0.1:30000")));
  plan.model = option_value(command, "--model", plan.model);
  if (plan.model.empty()) plan.model = TRY(first_model(plan));
  return plan;
}

void print_latency(const Json& report, const char* title, const std::string& name) {
  std::printf("%s\n", title);
  for (const char* statistic : {"mean", "median", "p90", "p95", "p99", "max"}) {
    std::printf("  %-38s %10.2f\n", (std::string(statistic) + " (ms):").c_str(),
                report[std::string(statistic) + "_" + name + "_ms"].get<double>());
  }
}

void print_text(const Json& report) {
  const auto row = [&](const char* title, const char* key, const char* pattern) {
    std::printf("%-40s ", title);
    std::printf(pattern, report[key].get<double>());
    std::printf("\n");
  };
  std::printf("============ Serving Benchmark Result ============\n");
  row("Successful requests:", "completed", "%10.0f");
  row("Abandoned by the client:", "abandoned", "%10.0f");
  row("Refused (429, 503):", "refused", "%10.0f");
  row("Lost:", "lost", "%10.0f");
  row("Benchmark duration (s):", "duration", "%10.2f");
  row("Total input tokens:", "total_input_tokens", "%10.0f");
  row("Total generated tokens:", "total_output_tokens", "%10.0f");
  row("Request throughput (req/s):", "request_throughput", "%10.2f");
  row("Input token throughput (tok/s):", "input_throughput", "%10.2f");
  row("Output token throughput (tok/s):", "output_throughput", "%10.2f");
  row("Total token throughput (tok/s):", "total_throughput", "%10.2f");
  row("Concurrency:", "concurrency", "%10.2f");
  row("Peak concurrent requests:", "max_concurrent_requests", "%10.0f");
  print_latency(report, "End-to-End Latency", "e2e_latency");
  print_latency(report, "Time to First Token", "ttft");
  print_latency(report, "Time per Output Token (excl. 1st token)", "tpot");
  print_latency(report, "Inter-Token Latency", "itl");
  for (const Json& message : report["lost_messages"]) {
    std::printf("lost: %s\n", message.get<std::string>().c_str());
  }
}

Result<Json> run_bench_serve(const CLI::App& command) {
  const LoadPlan plan = TRY(read_plan(command));
  Json report = {{"server", plan.server.host + ":" + plan.server.port},
                 {"model", plan.model},
                 {"request_rate", plan.request_rate},
                 {"max_concurrency", plan.streams},
                 {"random_input_len", plan.input_len},
                 {"random_output_len", plan.output_len},
                 {"random_range_ratio", plan.range_ratio}};
  report.update(describe_load(TRY(run_load(plan))));
  return report;
}

}  // namespace

void add_bench_serve(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* serve = bench.add_subcommand("serve", "A server, over HTTP, under a random load");
  const auto add = [serve](const char* name, const std::string& help) {
    return serve->add_option(name, help);
  };
  add("--base-url", "http://HOST:PORT; default http://127.0.0.1:30000");
  add("--model", "Its name there; default: the first that the server lists");
  add("--api-key", "Sent as a bearer token");
  add("--num-prompts", "Requests; default 1000")->check(CLI::Range(1, 1 << 24));
  add("--duration", "Seconds in which requests start, instead of a number of them")
      ->check(CLI::PositiveNumber);
  add("--request-rate", "A second, at random times; default: as fast as the server answers")
      ->check(CLI::PositiveNumber);
  add("--max-concurrency", "Requests in flight, at most")->check(CLI::Range(1, kStreamsMax));
  add("--random-input-len", "Tokens of a prompt, at most; default 1024")
      ->check(CLI::Range(1, 1 << 20));
  add("--random-output-len", "Tokens of an answer, at most; default 1024")
      ->check(CLI::Range(1, 1 << 20));
  add("--random-range-ratio", "Lengths are from this share of the longest; default 0")
      ->check(CLI::Range(0.0, 1.0));
  add("--random-vocab", "Prompt tokens are below it; default 4000")->check(CLI::Range(1, 1 << 24));
  add("--num-prefixes", "Prompts begin with one of this many shared prefixes")
      ->check(CLI::Range(0, 1 << 20));
  add("--prefix-len", "Tokens of a shared prefix; default 256")->check(CLI::Range(1, 1 << 20));
  add("--abandon", "Share of requests whose client leaves early")->check(CLI::Range(0.0, 1.0));
  add("--seed", "Of lengths, tokens and times; default 1");
  serve->add_flag("--json")->description("One JSON object on standard output");
  serve->callback([serve, exit_code] {
    const Result<Json> report = run_bench_serve(*serve);
    if (!report.ok()) {
      *exit_code = fail(report.error());
      return;
    }
    if (serve->count("--json") > 0) {
      std::printf("%s\n", dump_json(report.value()).c_str());
    } else {
      print_text(report.value());
    }
    *exit_code = report.value()["lost"].get<int64_t>() == 0 ? ExitCode::ok : ExitCode::wrong;
  });
}

}  // namespace quire
