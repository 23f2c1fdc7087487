// The GPU side of a build without CUDA: it says so.
#include "engine/device/cuda/runtime.h"

namespace tandem {
namespace {

[[noreturn]] void refuse() {
  throw InputError(cuda_missing());
}

}  // namespace

const std::string& cuda_missing() {
  static const std::string reason =
      "This program was built without CUDA; build it with `cmake --preset cuda`, which needs nvcc 13.";
  return reason;
}

const CudaDevice& cuda_device() {
  refuse();
}
unsigned cuda_multiprocessors() {
  refuse();
}

void* cuda_allocate(CudaPlace, std::size_t) {
  refuse();
}
void cuda_release(CudaPlace, void*, std::size_t) noexcept {}

OwnedStream::OwnedStream() {
  refuse();
}
OwnedStream::~OwnedStream() = default;

CudaMark::CudaMark(Waiting) {
  refuse();
}
CudaMark::~CudaMark() = default;
void CudaMark::record(CudaStream) {
  refuse();
}
void CudaMark::wait() const {
  refuse();
}
void CudaMark::hold(CudaStream) const {
  refuse();
}
double CudaMark::seconds_after(const CudaMark&) const {
  refuse();
}
void cuda_await_count(CudaStream, const std::uint32_t*, std::uint32_t) {
  refuse();
}

void cuda_write_count(CudaStream, std::uint32_t*, std::uint32_t) {
  refuse();
}

bool cuda_count_reached(const std::uint32_t*, std::uint32_t) {
  refuse();
}

void cuda_raise_count(std::uint32_t*) {
  refuse();
}

void cuda_copy(void*, const void*, std::size_t, CudaStream) {
  refuse();
}
void cuda_copy_pieces(std::span<void* const>, std::span<const void* const>, std::span<const std::size_t>, CopyWay,
                      CudaStream) {
  refuse();
}
void cuda_wait(CudaStream) {
  refuse();
}
bool cuda_failed(CudaStream) {
  refuse();
}
double cuda_seconds(CudaStream, const std::function<void()>&) {
  refuse();
}

}  // namespace tandem
