// The seam between the probe and its GPU sections: defined in cuda_backend.cu, or in no_cuda.cc for builds without
// CUDA.
#pragma once

#include <string>

#include "hardware/probe/probe.h"

namespace tandem::probe {

struct GpuStatus {
  bool available = false;
  std::string reason;  // a sentence, where not available
  Fields passport;     // name, driver, clocks, link; empty where not available
};

/// Looks for a device. Never throws: no driver, an old driver and no device are reasons.
GpuStatus gpu_status();

/// True once the device no longer answers: the process must then end without waiting for it.
bool gpu_hung();

/// Runs one of the GPU sections of section_specs(). ProbeError with a sentence on failure.
void run_gpu_section(const std::string& name, Recorder& recorder);

}  // namespace tandem::probe
