#include <memory>
#include <utility>

#include "engine/device/cuda/check.cuh"
#include "tests/engine/device/in_stream.h"

namespace tandem {

void in_stream(CudaStream stream, std::function<void()> work) {
  auto kept = std::make_unique<std::function<void()>>(std::move(work));
  const auto run = [](void* data) {
    const std::unique_ptr<std::function<void()>> taken(static_cast<std::function<void()>*>(data));
    (*taken)();
  };
  gpu::check_cuda(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream.handle), run, kept.get()),
                  "having a stream run a function of the host");
  static_cast<void>(kept.release());
}

}  // namespace tandem
