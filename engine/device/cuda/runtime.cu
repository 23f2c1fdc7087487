#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <utility>

#include "engine/device/cuda/check.cuh"
#include "engine/device/cuda/runtime.h"

static_assert(CUDART_VERSION >= 13000, "cudaMemcpyBatchAsync is used as CUDA 13 declares it");

namespace tandem {
namespace {

using gpu::check_cuda;

std::string why_missing() {
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    return "No CUDA driver is installed, so there is no GPU that kernels could run on.";
  if (driver < 13000)
    return fmt::format(
        "The CUDA driver is for CUDA {}.{}; this program needs a driver for CUDA 13 (release 580 or "
        "later).",
        driver / 1000, driver % 1000 / 10);
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted != cudaSuccess || devices == 0)
    return fmt::format("CUDA finds no GPU here ({}).",
                       counted == cudaSuccess ? "it lists none" : cudaGetErrorString(counted));
  int major = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess)
    return "The GPU does not say what it is.";
  if (major < 8) return fmt::format("The GPU has compute capability {}.x; the kernels need 8.0 or later.", major);
  return {};
}

CudaDevice describe() {
  if (!cuda_missing().empty()) throw InputError(cuda_missing());
  cudaDeviceProp properties{};
  CudaDevice device;
  check_cuda(cudaGetDeviceProperties(&properties, 0), "asking for the device");
  check_cuda(cudaDriverGetVersion(&device.driver), "asking for the driver");
  check_cuda(cudaRuntimeGetVersion(&device.runtime), "asking for the runtime");
  device.name = properties.name;
  device.major = properties.major;
  device.minor = properties.minor;
  device.multiprocessors = static_cast<unsigned>(properties.multiProcessorCount);
  device.memory_bytes = properties.totalGlobalMem;
  int shared = 0;
  check_cuda(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0), "asking for the device");
  device.shared_bytes = static_cast<std::size_t>(shared);
  return device;
}

/// Tests ask for it: what is read before it was written then shows as NaN, as in the emulator.
bool poisons() {
  const char* const wish = std::getenv("TANDEM_POISON");
  return wish != nullptr && std::strcmp(wish, "1") == 0;
}

cudaStream_t of(CudaStream stream) {
  return static_cast<cudaStream_t>(stream.handle);
}

}  // namespace

const std::string& cuda_missing() {
  static const std::string reason = [] {
    // Loading a kernel at its first launch may wait for all streams, one of which may wait for the host.
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    // Streams that share a queue of the driver's hold each other up; one that waits for the host may do so for long.
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    std::string why = why_missing();
    if (!why.empty()) static_cast<void>(cudaGetLastError());  // not for a later call to report
    return why;
  }();
  return reason;
}

const CudaDevice& cuda_device() {
  static const CudaDevice device = describe();
  return device;
}

namespace {

/// Pinned memory in pages of 2 MiB: cudaHostAlloc's are of 4 KiB, from which the CPU reads more slowly (memory.cc has
/// the figures).
class RegisteredPages {
 public:
  /// nullptr: too little, or no such memory can be had here.
  void* allocate(std::size_t bytes) {
    int same_address = 0;
    if (bytes < kLeast ||
        cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, 0) != cudaSuccess ||
        same_address == 0) {
      return nullptr;
    }
    const std::size_t size = (bytes + kPage - 1) / kPage * kPage;
    void* const mapped = mmap(nullptr, size + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    const auto begin = (reinterpret_cast<std::uintptr_t>(mapped) + kPage - 1) / kPage * kPage;
    void* const data = reinterpret_cast<void*>(begin);
    static_cast<void>(madvise(data, size, MADV_HUGEPAGE));  // advice
    if (cudaHostRegister(data, size, cudaHostRegisterPortable | cudaHostRegisterMapped) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());
      munmap(mapped, size + kPage);
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    mapped_[data] = {mapped, size + kPage};
    return data;
  }
  /// Whether it was this memory.
  bool release(void* data) {
    std::pair<void*, std::size_t> mapped;
    {
      const std::lock_guard lock(mutex_);
      const auto found = mapped_.find(data);
      if (found == mapped_.end()) return false;
      mapped = found->second;
      mapped_.erase(found);
    }
    cudaDeviceSynchronize();  // as cudaFreeHost does: a stream may still read it
    cudaHostUnregister(data);
    munmap(mapped.first, mapped.second);
    return true;
  }

 private:
  static constexpr std::size_t kPage = std::size_t{2} << 20, kLeast = 2 * kPage;
  std::mutex mutex_;
  std::map<void*, std::pair<void*, std::size_t>> mapped_;  // by what was given out
};

RegisteredPages& registered_pages() {
  static auto* const pages = new RegisteredPages;  // outlives buffers of static storage
  return *pages;
}

}  // namespace

void* cuda_allocate(CudaPlace place, std::size_t bytes) {
  void* data = nullptr;
  if (place == CudaPlace::device) {
    check_cuda(cudaMalloc(&data, bytes), fmt::format("allocating {} bytes on the device", bytes).c_str());
  } else {
    data = registered_pages().allocate(bytes);
    if (data == nullptr) {
      check_cuda(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                 fmt::format("allocating {} bytes of pinned memory", bytes).c_str());
    }
  }
  if (poisons()) {  // all bits one; done before a stream of any kind can use the memory
    check_cuda(cudaMemset(data, 0xff, bytes), "poisoning memory");
    check_cuda(cudaDeviceSynchronize(), "poisoning memory");
  }
  return data;
}

void cuda_release(CudaPlace place, void* data, std::size_t) noexcept {
  if (place == CudaPlace::device) {
    cudaFree(data);
  } else if (!registered_pages().release(data)) {
    cudaFreeHost(data);
  }
}

OwnedStream::OwnedStream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  stream_.handle = stream;
}
OwnedStream::~OwnedStream() {
  cudaStreamDestroy(of(stream_));
}

CudaMark::CudaMark(Waiting waiting) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreateWithFlags(&event, waiting == Waiting::sleeps ? cudaEventBlockingSync : cudaEventDefault),
             "making an event");
  handle_ = event;
}
CudaMark::~CudaMark() {
  if (handle_ != nullptr) cudaEventDestroy(static_cast<cudaEvent_t>(handle_));
}
void CudaMark::record(CudaStream stream) {
  check_cuda(cudaEventRecord(static_cast<cudaEvent_t>(handle_), of(stream)), "recording an event");
}
void CudaMark::wait() const {
  check_cuda(cudaEventSynchronize(static_cast<cudaEvent_t>(handle_)), "running what was in a stream");
}
void CudaMark::hold(CudaStream stream) const {
  check_cuda(cudaStreamWaitEvent(of(stream), static_cast<cudaEvent_t>(handle_), 0), "ordering two streams");
}
double CudaMark::seconds_after(const CudaMark& other) const {
  float milliseconds = 0;
  check_cuda(
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(other.handle_), static_cast<cudaEvent_t>(handle_)),
      "reading a time");
  return double{milliseconds} * 1e-3;
}

namespace {

/// A function of the driver, by name: no library of its own is linked for two of them.
template <class Function>
Function of_driver(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion(name, &found, 12000, cudaEnableDefault, &result),
             "looking for a function of the driver");
  if (found == nullptr || result != cudaDriverEntryPointSuccess)
    throw CudaError(
        fmt::format("The CUDA driver has no {}, with which streams and the host wait for each other.", name));
  return reinterpret_cast<Function>(found);
}

void check_driver(CUresult result, const char* doing) {
  if (result != CUDA_SUCCESS)
    throw CudaError(fmt::format("CUDA failed while {}: driver error {}.", doing, static_cast<int>(result)));
}

/// Whether copies of pieces are batched on this GPU (runtime.h).
bool batches_copies() {
  static const bool batches = [] {
    if (const char* const wish = std::getenv("TANDEM_BATCHED_COPIES"); wish != nullptr && *wish != '\0')
      return std::strcmp(wish, "0") != 0;
    return cuda_device().major < 10;
  }();
  return batches;
}

}  // namespace

// Not cudaLaunchHostFunc, whose way back to the stream is known to take tens of us (tandem-probe measures both).
void cuda_await_count(CudaStream stream, const std::uint32_t* count, std::uint32_t value) {
  using Wait = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  static const Wait wait = of_driver<Wait>("cuStreamWaitValue32");
  check_driver(wait(of(stream), reinterpret_cast<CUdeviceptr>(count), value, CU_STREAM_WAIT_VALUE_GEQ),
               "having a stream wait for the host");
}

// By default a write comes behind a fence: what the stream wrote before is there for who sees it.
void cuda_write_count(CudaStream stream, std::uint32_t* count, std::uint32_t value) {
  using Write = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
  static const Write write = of_driver<Write>("cuStreamWriteValue32");
  check_driver(write(of(stream), reinterpret_cast<CUdeviceptr>(count), value, CU_STREAM_WRITE_VALUE_DEFAULT),
               "having a stream tell the host");
}

bool cuda_count_reached(const std::uint32_t* count, std::uint32_t value) {
  const std::atomic_ref<std::uint32_t> now(*const_cast<std::uint32_t*>(count));
  return static_cast<std::int32_t>(now.load(std::memory_order_acquire) - value) >= 0;
}

void cuda_raise_count(std::uint32_t* count) {
  std::atomic_ref<std::uint32_t>(*count).fetch_add(1, std::memory_order_release);
}

void cuda_copy(void* to, const void* from, std::size_t bytes, CudaStream stream) {
  if (bytes > 0) check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)), "copying");
}

void cuda_copy_pieces(std::span<void* const> to, std::span<const void* const> from, std::span<const std::size_t> bytes,
                      CopyWay way, CudaStream stream) {
  TANDEM_CHECK(to.size() == from.size() && to.size() == bytes.size(), "{}, {} and {} pieces.", to.size(), from.size(),
               bytes.size());
  if (to.empty()) return;
  if (to.size() == 1) return cuda_copy(to[0], from[0], bytes[0], stream);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  if (stream.handle != nullptr)
    check_cuda(cudaStreamIsCapturing(of(stream), &capture), "asking whether a stream is being captured");
  // The batched call refuses the default stream and cannot be part of a graph.
  if (stream.handle == nullptr || capture != cudaStreamCaptureStatusNone || !batches_copies()) {
    for (std::size_t i = 0; i < to.size(); ++i) cuda_copy(to[i], from[i], bytes[i], stream);
    return;
  }
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  // The hint keeps copies off the multiprocessors: right for the link, which needs none of them.
  attributes.flags = way == CopyWay::over_link ? cudaMemcpyFlagPreferOverlapWithCompute : cudaMemcpyFlagDefault;
  constexpr std::size_t kMost = 1024;  // of a call: drivers crash in calls of tens of thousands
  for (std::size_t begin = 0; begin < to.size(); begin += kMost) {
    const std::size_t count = std::min(kMost, to.size() - begin);
    std::size_t first = 0;
    check_cuda(cudaMemcpyBatchAsync(to.data() + begin, from.data() + begin, bytes.data() + begin, count, &attributes,
                                    &first, 1, of(stream)),
               "copying pieces");
  }
}

void cuda_wait(CudaStream stream) {
  check_cuda(cudaStreamSynchronize(of(stream)), "running what was in a stream");
}

bool cuda_failed(CudaStream stream) {
  const cudaError_t state = cudaStreamQuery(of(stream));
  if (state != cudaSuccess) static_cast<void>(cudaGetLastError());
  return state != cudaSuccess && state != cudaErrorNotReady;
}

double cuda_seconds(CudaStream stream, const std::function<void()>& enqueue) {
  CudaMark begin, end;
  begin.record(stream);
  enqueue();
  end.record(stream);
  end.wait();
  return end.seconds_after(begin);
}

}  // namespace tandem
