// For tests that run on the emulated GPU and, in a build with CUDA, on this machine's (test_cuda_device_gpu).
#pragma once

#include <gtest/gtest.h>

#include "engine/device/cuda/runtime.h"

namespace tandem {

class AnyGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  }
};

}  // namespace tandem
