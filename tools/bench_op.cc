// quire bench op: what each op takes beside what its bytes take at the read ceiling.
#include <cstdio>

#include "base/json.h"
#include "tools/bench_commands.h"
#include "tools/bench_model.h"
#include "tools/model_source.h"
#include "tools/op_bench.h"
#include "tools/option_value.h"
#include "tools/read_ceiling.h"

namespace quire {

namespace {

Result<Json> run_bench_op(const CLI::App& command) {
  const ModelSource source = read_backend_flags(command);
  const std::unique_ptr<Backend> backend = TRY(make_backend(source));
  const std::optional<double> ceiling = TRY(measure_read_ceiling(source.device));
  const bool prints = command.count("--json") == 0;
  if (prints) {
    if (ceiling) std::printf("read ceiling %.3f TB/s\n", 1e-12 * *ceiling);
    std::printf("%-58s %10s %10s %10s %7s\n", "op", "MB", "us", "floor us", "share");
  }
  OpBench bench(*backend, {.bytes_per_second = ceiling,
                           .filter = option_value<std::string>(command, "--filter", ""),
                           .prints = prints});
  bench_ops(bench);
  Json report = {{"backend", std::string(backend->name())}, {"ops", bench.rows()}};
  if (ceiling) report["read_ceiling_tb_per_second"] = 1e-12 * *ceiling;
  return report;
}

// Rows are printed as they come.
void print_nothing(const Json&) {}

}  // namespace

void add_bench_op(CLI::App& bench, ExitCode* exit_code) {
  CLI::App* op = bench.add_subcommand("op", "Each op alone, beside its bytes at the read ceiling");
  op->add_option("--filter", "Only ops whose name contains it");
  add_backend_flags(*op);
  op->add_flag("--json")->description("One JSON object on standard output");
  op->callback([op, exit_code] { *exit_code = end_bench(*op, run_bench_op(*op), print_nothing); });
}

}  // namespace quire
