// --workload of compare and simulate: what heads choose where no tensor is computed.
#pragma once

#include <string>

#include "engine/runtime/workload.h"

namespace tandem::cli {

/// `argument`: "published", or a file as summary's target.json and `tandem compare --as` have it under "workload".
/// InputError, in sentences that name --workload; `others` names what else the command takes.
Workload read_workload(const std::string& argument, const char* others);

}  // namespace tandem::cli
