// The emulated engine/device/cuda/runtime.h: device memory is host memory that starts as NaN and has guard zones, and
// everything in a stream is done when the call returns.
#include "engine/device/cuda/runtime.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "tests/engine/kernels/cuda_emulator/emulator.h"

namespace tandem {
namespace {

constexpr std::size_t kGuard = 256;
constexpr unsigned char kPoison = 0xff;  // NaN in f64, f32, f16 and bf16

void* allocate(std::size_t bytes) {
  auto* const all = static_cast<unsigned char*>(::operator new(bytes + 2 * kGuard, std::align_val_t(kGuard)));
  std::memset(all, kPoison, bytes + 2 * kGuard);
  return all + kGuard;
}

// A write outside device memory has already spoiled the test: it ends here, where a destructor cannot throw.
void release(void* data, std::size_t bytes) {
  if (data == nullptr) return;
  auto* const all = static_cast<unsigned char*>(data) - kGuard;
  const auto clean = [](const unsigned char* from) {
    return std::all_of(from, from + kGuard, [](unsigned char byte) { return byte == kPoison; });
  };
  if (!clean(all) || !clean(all + kGuard + bytes)) {
    std::fprintf(stderr, "A kernel wrote outside %zu bytes of emulated device memory.\n", bytes);
    std::abort();
  }
  ::operator delete(all, std::align_val_t(kGuard));
}

}  // namespace

const std::string& cuda_missing() {
  static const std::string nothing;
  return nothing;
}

const CudaDevice& cuda_device() {
  static const CudaDevice device{"emulated", 8, 0, 4, std::size_t{1} << 30, cuda_emulator::kMaxShared, 13000, 13000};
  return device;
}

unsigned cuda_multiprocessors() {
  return cuda_device().multiprocessors;
}

void* cuda_allocate(CudaPlace, std::size_t bytes) {
  return allocate(bytes);
}
void cuda_release(CudaPlace, void* data, std::size_t bytes) noexcept {
  release(data, bytes);
}

OwnedStream::OwnedStream() : stream_{this} {}
OwnedStream::~OwnedStream() = default;

// The time at which it was recorded: what is before it in its stream is done by then.
CudaMark::CudaMark() : handle_(new std::chrono::steady_clock::time_point) {}
CudaMark::~CudaMark() {
  delete static_cast<std::chrono::steady_clock::time_point*>(handle_);
}
void CudaMark::record(CudaStream) {
  *static_cast<std::chrono::steady_clock::time_point*>(handle_) = std::chrono::steady_clock::now();
}
void CudaMark::wait() const {}
void CudaMark::hold(CudaStream) const {}
double CudaMark::seconds_after(const CudaMark& other) const {
  return std::chrono::duration<double>(*static_cast<const std::chrono::steady_clock::time_point*>(handle_) -
                                       *static_cast<const std::chrono::steady_clock::time_point*>(other.handle_))
      .count();
}

void cuda_await_count(CudaStream, const std::uint32_t* count, std::uint32_t value) {
  std::atomic_ref<std::uint32_t> now(*const_cast<std::uint32_t*>(count));
  while (static_cast<std::int32_t>(now.load(std::memory_order_acquire) - value) < 0) std::this_thread::yield();
}

void cuda_copy(void* to, const void* from, std::size_t bytes, CudaStream) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void cuda_copy_pieces(std::span<void* const> to, std::span<const void* const> from, std::span<const std::size_t> bytes,
                      CudaStream) {
  TANDEM_CHECK(to.size() == from.size() && to.size() == bytes.size(), "{}, {} and {} pieces.", to.size(), from.size(),
               bytes.size());
  for (std::size_t i = to.size(); i-- > 0;) std::memcpy(to[i], from[i], bytes[i]);  // in no order to rely on
}

void cuda_wait(CudaStream) {}

double cuda_seconds(CudaStream, const std::function<void()>& enqueue) {
  const auto begin = std::chrono::steady_clock::now();
  enqueue();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace tandem
