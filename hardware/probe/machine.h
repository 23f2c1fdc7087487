// The CPU side of the machine's passport, and what the sections ask of it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "hardware/probe/probe.h"

namespace tandem::probe {

/// Fills machine, cpu and memory of the report. What cannot be read on this system is left out.
void read_machine(Report& report);

/// Logical CPUs this process may run on, in ascending order.
std::vector<int> allowed_cpus();
/// Threads worth starting: allowed CPUs, not more than the control groups' quota rounded up.
int usable_threads();
/// Bytes of all last-level caches together; 0 where unknown.
std::size_t last_level_cache();
/// "one five fifteen" minutes' load, or empty.
std::string load_average();

}  // namespace tandem::probe
