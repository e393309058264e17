// The binary `quire`: parses the command line and runs one sub-command.
#include "tools/commands.h"

int main(int argc, char** argv) {
  CLI::App app("Quire: an inference engine and server for large mixture-of-experts models");
  app.set_version_flag("--version", QUIRE_VERSION);
  app.require_subcommand(1);
  quire::ExitCode exit_code = quire::ExitCode::ok;
  quire::add_serve_command(app, &exit_code);
  quire::add_chat_command(app, &exit_code);
  quire::add_eval_command(app, &exit_code);
  quire::add_bench_command(app, &exit_code);
  quire::add_shard_command(app, &exit_code);
  quire::add_compress_command(app, &exit_code);
  quire::add_inspect_command(app, &exit_code);
  quire::add_tokenize_command(app, &exit_code);
  quire::add_render_command(app, &exit_code);
  quire::add_logits_command(app, &exit_code);
  quire::add_sim_command(app, &exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : static_cast<int>(quire::ExitCode::usage);
  }
  return static_cast<int>(exit_code);
}
