// Whether a run can go on with a command: what is there must be what this command would have made.
#pragma once

#include <filesystem>

#include "eval/report/schema.h"

namespace tandem::eval {

/// InputError where the run in `path`, of the manifest `there`, was made by another command, with other weights or
/// data, under another protocol, with another instruction set, clock, hardware profile or method than `mine`; it names
/// what differs. Room for KV (--device-kv, --host-kv) changes no byte of a sample and may be another; --threads may be
/// written or not, the clock has their number where it matters.
void check_resumable(const std::filesystem::path& path, const Manifest& there, const Manifest& mine);

}  // namespace tandem::eval
