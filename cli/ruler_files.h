// Texts of files in place of RULER's embedded ones, as options.
#pragma once

#include <string>

#include "cli/command.h"
#include "eval/ruler/texts.h"

namespace tandem::cli {

/// --ruler-essays and --ruler-qa.
void add_ruler_files(Command command, eval::RulerFiles& files);

/// " --ruler-essays FILE --ruler-qa FILE", as a shell reads them back; empty where there are none.
std::string ruler_files_arguments(const eval::RulerFiles& files);

}  // namespace tandem::cli
