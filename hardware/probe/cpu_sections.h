// The sections that need no GPU.
#pragma once

#include <string>

#include "hardware/probe/probe.h"

namespace tandem::probe {

/// Runs "dram" or "cpu_attention". ProbeError with a sentence on failure.
void run_cpu_section(const std::string& name, Recorder& recorder);

/// 1, 2, 3, 4, 6, 8, 12, 16, 24, ... and `most`, ascending; in a quick run 1 and `most`.
std::vector<int> thread_counts(int most, bool quick);

}  // namespace tandem::probe
