// Names that lm-evaluation-harness has for tasks of `tandem eval`.
#pragma once

#include <string>
#include <vector>

namespace tandem::cli {

/// The words of a command line with the program's own names: `eval minerva_math500` becomes `eval reasoning --tasks
/// math500`, and so does `eval --tasks minerva_math500`. In --tasks of `eval <dataset>` and of `compare` names that no
/// task of ours has are replaced, too. A sentence on stderr says what a name was taken for.
std::vector<std::string> with_own_task_names(std::vector<std::string> words);

}  // namespace tandem::cli
