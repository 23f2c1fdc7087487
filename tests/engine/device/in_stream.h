// Tests of who waits for whom, which run on the emulated GPU and, where there is one, on this machine's
// (test_cuda_device_gpu).
#pragma once

#include <functional>
#include <gtest/gtest.h>

#include "engine/device/cuda/runtime.h"

namespace tandem {

/// Work of the host in a stream, in its order: what a kernel would do. On a GPU by cudaLaunchHostFunc, on the emulated
/// one by its thread. `work` does not throw there.
void in_stream(CudaStream stream, std::function<void()> work);

class AnyGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  }
};

}  // namespace tandem
