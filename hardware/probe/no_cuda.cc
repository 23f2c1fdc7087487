// The GPU side of a build without CUDA: it says so.
#include "hardware/probe/gpu.h"

namespace tandem::probe {
namespace {
constexpr const char* kReason =
    "This probe was built without CUDA; build it with nvcc (scripts/probe_on_gpu.sh, or cmake with TANDEM_CUDA=ON) on "
    "a "
    "machine with a GPU to measure the GPU sections.";
}

GpuStatus gpu_status() {
  return {false, kReason, {}};
}

bool gpu_hung() {
  return false;
}

void run_gpu_section(const std::string&, Recorder&) {
  throw ProbeError(kReason);
}

}  // namespace tandem::probe
