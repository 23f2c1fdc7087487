// A GPU or an emulated one, for tests that are skipped where there is neither.
#pragma once

#include <gtest/gtest.h>
#include <memory>

#include "engine/device/cuda_device.h"

namespace tandem::testing {

inline std::unique_ptr<Device> gpu(std::uint32_t threads = 2) {
  return make_cuda_device({.host_worker_threads = threads, .upload_bytes = std::size_t{1} << 20});
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  }
};

}  // namespace tandem::testing
