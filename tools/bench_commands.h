// The sub-commands of `quire bench`. Each lives in a file of its own and adds itself to `bench`.
#pragma once

#include "tools/commands.h"

namespace quire {

void add_bench_offline(CLI::App& bench, ExitCode* exit_code);
void add_bench_start(CLI::App& bench, ExitCode* exit_code);
void add_bench_op(CLI::App& bench, ExitCode* exit_code);
void add_bench_decode(CLI::App& bench, ExitCode* exit_code);
void add_bench_prefill(CLI::App& bench, ExitCode* exit_code);
void add_bench_capacity(CLI::App& bench, ExitCode* exit_code);
void add_bench_integrity(CLI::App& bench, ExitCode* exit_code);
void add_bench_serve(CLI::App& bench, ExitCode* exit_code);

}  // namespace quire
