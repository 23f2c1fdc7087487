// The GPU side of a build without CUDA: it throws.
#include "engine/device/cuda/not_built.h"

namespace tandem {

const std::string& cuda_missing() {
  static const std::string reason =
      "This program was built without CUDA; build it with `cmake --preset cuda`, which needs nvcc 13.";
  return reason;
}

TANDEM_NOT_BUILT(cuda_device);
TANDEM_NOT_BUILT(cuda_allocate);
TANDEM_NOT_BUILT(cuda_await_count);
TANDEM_NOT_BUILT(cuda_write_count);
TANDEM_NOT_BUILT(cuda_count_reached);
TANDEM_NOT_BUILT(cuda_raise_count);
TANDEM_NOT_BUILT(cuda_copy);
TANDEM_NOT_BUILT(cuda_copy_pieces);
TANDEM_NOT_BUILT(cuda_wait);
TANDEM_NOT_BUILT(cuda_failed);
TANDEM_NOT_BUILT(cuda_seconds);

// These are never called, since the constructors throw.
void cuda_release(CudaPlace, void*, std::size_t) noexcept {}
OwnedStream::OwnedStream() {
  not_built();
}
OwnedStream::~OwnedStream() = default;
CudaMark::CudaMark(Waiting) {
  not_built();
}
CudaMark::~CudaMark() = default;
void CudaMark::record(CudaStream) {}
void CudaMark::wait() const {}
void CudaMark::hold(CudaStream) const {}
double CudaMark::seconds_after(const CudaMark&) const {
  return 0;
}

}  // namespace tandem
