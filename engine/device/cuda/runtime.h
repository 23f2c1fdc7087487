// What programs need of CUDA, without its types: whether there is a GPU, memory, streams, time. Defined by runtime.cu
// in CUDA builds, by no_runtime.cc in others (every call but the questions throws InputError there), and by the tests'
// emulator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "engine/common/error.h"

namespace tandem {

/// A call of CUDA failed: "CUDA failed while copying: out of memory (cudaErrorMemoryAllocation)."
class CudaError : public RunError {
 public:
  using RunError::RunError;
};

/// The device, or the host's page-locked memory, has no room.
class CudaNoRoom : public CudaError {
 public:
  using CudaError::CudaError;
};

/// A stream of the current device; the default one where `handle` is nullptr. A view: see OwnedStream.
struct CudaStream {
  void* handle = nullptr;
};

struct CudaDevice {
  std::string name;  // "NVIDIA H200"
  int major = 0, minor = 0;
  unsigned multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t shared_bytes = 0;  // of shared memory that a block may ask for
  int driver = 0, runtime = 0;   // 13000: 13.0
};

/// A sentence why CUDA kernels cannot run here; empty where they can. Never throws.
const std::string& cuda_missing();
/// The device that kernels run on: the first that CUDA_VISIBLE_DEVICES leaves.
const CudaDevice& cuda_device();

/// Where memory that the GPU reaches lies. Pinned: page-locked host memory, which kernels reach at the same address.
enum class CudaPlace { device, pinned };
/// At least `bytes`, more than 0, aligned to 256; CudaNoRoom, CudaError. What cuda_release takes back. With
/// TANDEM_POISON=1: NaN. Much pinned memory lies in pages of 2 MiB where the system has them, as ordinary memory does
/// (memory.h), so that the CPU reads both alike.
void* cuda_allocate(CudaPlace place, std::size_t bytes);
void cuda_release(CudaPlace place, void* data, std::size_t bytes) noexcept;

/// Memory of one place. Movable, released with the object.
template <CudaPlace kPlace>
class CudaBuffer {
 public:
  CudaBuffer() = default;
  explicit CudaBuffer(std::size_t bytes) : data_(bytes > 0 ? cuda_allocate(kPlace, bytes) : nullptr), bytes_(bytes) {}
  ~CudaBuffer() {
    if (data_ != nullptr) cuda_release(kPlace, data_, bytes_);
  }
  CudaBuffer(CudaBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  CudaBuffer& operator=(CudaBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};
typedef CudaBuffer<CudaPlace::device> CudaMemory;
typedef CudaBuffer<CudaPlace::pinned> PinnedMemory;

/// A stream that does not wait for the default one.
class OwnedStream {
 public:
  OwnedStream();
  ~OwnedStream();  // NOLINT(performance-trivially-destructible): of builds without CUDA
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  operator CudaStream() const { return stream_; }  // NOLINT(google-explicit-constructor)

 private:
  CudaStream stream_;
};

/// A point in what a stream does, which the host and other streams can wait for, with the time at which the device
/// reached it. Movable. It may be recorded again once nobody waits for it any more.
class CudaMark {
 public:
  /// Waiting threads look at the device all the time, or sleep until it wakes them, which takes some 10 us more.
  enum class Waiting : bool { spins, sleeps };
  explicit CudaMark(Waiting waiting = Waiting::spins);
  ~CudaMark();  // NOLINT(performance-trivially-destructible): of builds without CUDA
  CudaMark(CudaMark&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaMark& operator=(CudaMark&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  /// Behind everything that is in the stream now.
  void record(CudaStream stream);
  /// Returns when the device has reached it; throws what went wrong before. Any thread may.
  void wait() const;
  /// What is put into the stream from here on starts when the device has reached the mark.
  void hold(CudaStream stream) const;
  /// Time of the device between two marks that it has reached; negative where this one was first. Some tenths of a us
  /// fine, and a float of milliseconds: measure from a mark that is near.
  double seconds_after(const CudaMark& other) const;

 private:
  void* handle_ = nullptr;
};

/// What is put into the stream from here on starts when *count >= value, which a thread of the host stores with release
/// order. `count` is pinned; the comparison is of the difference's sign, so that a count may wrap around.
void cuda_await_count(CudaStream stream, const std::uint32_t* count, std::uint32_t value);

/// The other way: when everything before it in the stream is done *count becomes `value`, after all that was written.
/// A thread that looks at it needs nothing of the driver, whose locks may be held by a thread that waits.
void cuda_write_count(CudaStream stream, std::uint32_t* count, std::uint32_t value);

/// What threads of the host do with such counts: whether *count >= value, with acquire order and the sign as above, and
/// *count + 1 with release order.
bool cuda_count_reached(const std::uint32_t* count, std::uint32_t value);
void cuda_raise_count(std::uint32_t* count);

/// In the order of the stream, between host and device memory in any direction. Of ordinary host memory the call may
/// return late, as the driver stages it, or before it was read or written, where the GPU reaches all of the host's
/// memory itself (HMM, ATS): whoever names it keeps it, and leaves it alone, until the stream has done it.
void cuda_copy(void* to, const void* from, std::size_t bytes, CudaStream stream);

/// Where the ends of pieces lie: one in host memory, or both on the device, where copy engines would be the slow way.
enum class CopyWay : bool { over_link, within_device };

/// The same for many pieces, in calls of up to 1,024. to.size() == from.size() == bytes.size(). Host memory must be
/// pinned. The copies start when what is before them in the stream is done and may run beside each other; in the
/// default stream, where the stream is being captured into a graph, on GPUs of compute capability 10 and later, whose
/// drivers crash in the batched call at times (LMDeploy's pull request 4838, vLLM's issue 49276), and with
/// TANDEM_BATCHED_COPIES=0 they are single copies one after another; with TANDEM_BATCHED_COPIES=1 on any GPU batched.
void cuda_copy_pieces(std::span<void* const> to, std::span<const void* const> from, std::span<const std::size_t> bytes,
                      CopyWay way, CudaStream stream);

/// Returns when everything in the stream is done; throws what went wrong in it.
void cuda_wait(CudaStream stream);

/// Whether something has gone wrong in the stream, of which cuda_wait tells. Waits for nothing in it.
bool cuda_failed(CudaStream stream);

/// Seconds on the device between the ends of what `enqueue` puts into the stream. Waits for it. Work of a few us is
/// done before the host has submitted the next, so of little work this is the time of its submission: enqueue it many
/// times.
double cuda_seconds(CudaStream stream, const std::function<void()>& enqueue);

}  // namespace tandem
