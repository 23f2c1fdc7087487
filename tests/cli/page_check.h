// Whether the program would take a command, without running it.
#pragma once

#include <string>
#include <vector>

#include "tests/cli/page_commands.h"

namespace tandem::cli {

/// An empty text, or why the program would refuse the words behind `tandem`. `whole`: no option and no value may be
/// missing.
std::string refusal(const Words& words, bool whole);

/// Whether they are names of subcommands and nothing else.
bool is_bare_name(const Words& words);

/// The examples of all help texts, as they are typed.
std::vector<std::string> help_examples();

}  // namespace tandem::cli
