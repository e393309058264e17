// The sub-commands of the one binary `quire`. Each lives in a file of its own, adds itself to the
// command line, and reports how it ended. Commands are composition roots: the only places that
// choose a backend, a clock or a transport.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "base/result.h"

namespace quire {

// What a script can rely on.
enum class ExitCode : int {
  ok = 0,
  failure = 1,  // the world refused: a file, a port, a request; the reason is on standard error
  usage = 2,    // the command line itself
  wrong = 3,    // the command ran and its answer is no: an eval below its bar, a failed check
};

// Prints "quire: error: <message>" and gives ExitCode::failure.
inline ExitCode fail(const Error& error) {
  std::fprintf(stderr, "quire: error: %s\n", error.message.c_str());
  return ExitCode::failure;
}

// Each adds its sub-command to `app`; when it is the one chosen, it runs and stores its end.
void add_tokenize_command(CLI::App& app, ExitCode* exit_code);
void add_render_command(CLI::App& app, ExitCode* exit_code);
void add_logits_command(CLI::App& app, ExitCode* exit_code);
void add_shard_command(CLI::App& app, ExitCode* exit_code);
void add_compress_command(CLI::App& app, ExitCode* exit_code);
void add_inspect_command(CLI::App& app, ExitCode* exit_code);
void add_eval_command(CLI::App& app, ExitCode* exit_code);
// Of `eval`: two of its reports, compared.
void add_eval_compare_command(CLI::App& eval, ExitCode* exit_code);
void add_bench_command(CLI::App& app, ExitCode* exit_code);
void add_chat_command(CLI::App& app, ExitCode* exit_code);
void add_sim_command(CLI::App& app, ExitCode* exit_code);
void add_serve_command(CLI::App& app, ExitCode* exit_code);

}  // namespace quire
