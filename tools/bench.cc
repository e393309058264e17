// quire bench: what it reaches, as figures. Each sub-command measures one thing.
#include "tools/bench_commands.h"

namespace quire {

void add_bench_command(CLI::App& app, ExitCode* exit_code) {
  CLI::App* bench = app.add_subcommand("bench", "How fast it is");
  bench->require_subcommand(1);
  add_bench_offline(*bench, exit_code);
  add_bench_start(*bench, exit_code);
  add_bench_op(*bench, exit_code);
  add_bench_decode(*bench, exit_code);
  add_bench_prefill(*bench, exit_code);
  add_bench_capacity(*bench, exit_code);
  add_bench_integrity(*bench, exit_code);
  add_bench_serve(*bench, exit_code);
}

}  // namespace quire
