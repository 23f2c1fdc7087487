// The `tandem` program.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's name
class App;
}

namespace tandem::cli {

/// The command line with all subcommands.
std::unique_ptr<CLI::App> make_app();

/// Names of the subcommands of the program, or of one of its groups.
std::vector<std::string> subcommand_names(const CLI::App& app);

/// Runs a command line without the program's own name. Errors become a sentence on stderr; returns the exit code.
int run_program(const std::vector<std::string>& words);

}  // namespace tandem::cli
