// The CUDA runtime that the probe calls, on emulated streams and memory (tests/engine/kernels/cuda_emulator). Stricter
// than a GPU's: copies of ordinary host memory are as late as others, a kind of copy that its ends do not have is
// refused, and a stream that is captured takes kernels alone. As a GPU's a stream holds 1,024 things, and whoever puts
// another one in waits. Laxer: whether kernels and products race with each other or with copies is not looked at, and
// the host may read the device's memory, kernels the host's. What a driver may lack is asked for by
// TANDEM_EMULATED_LACK: writes or waits that do nothing, or no operations on values.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "tests/engine/kernels/cuda_emulator/memory.h"
#include "tests/engine/kernels/cuda_emulator/stream_order.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"
#include "tests/hardware/emulated_gpu/device.cuh"

using Work = std::function<void()>;

// NOLINTBEGIN(readability-identifier-naming): CUDA's names
struct CUstream_st {
  std::atomic<int> held = 0;  // things that are in the stream
  tandem::OwnedStream stream;
  std::optional<std::vector<Work>> captured;  // while it is being captured
};
struct CUevent_st {
  tandem::CudaMark mark;
  bool times = true, recorded = false;
};
struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};
// NOLINTEND(readability-identifier-naming)

namespace {

using tandem::CudaPlace;
namespace cuda_emulator = tandem::cuda_emulator;

/// Where these bytes lie; nothing for memory that the device does not know, or that ends too early.
std::optional<CudaPlace> place_of(const void* data, std::size_t bytes) {
  const auto there = cuda_emulator::allocation_of(data);
  if (!there || static_cast<const char*>(data) + bytes > there->begin + there->bytes) return std::nullopt;
  return there->place;
}

cudaError_t take(void** data, CudaPlace place, std::size_t bytes) {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  if (bytes == 0 || (place == CudaPlace::device && bytes > free)) return cudaErrorMemoryAllocation;
  *data = tandem::cuda_allocate(place, bytes);
  return cudaSuccess;
}

cudaError_t give_back(void* data, CudaPlace place) {
  if (data == nullptr) return cudaSuccess;
  const auto there = cuda_emulator::allocation_of(data);
  if (!there || there->begin != data || there->place != place) return cudaErrorInvalidValue;
  tandem::cuda_release(place, data, there->bytes);
  return cudaSuccess;
}

/// What went wrong in a stream is told once, on standard error, where CUDA only has a number.
template <class Call>
cudaError_t guarded(const Call& call) {
  try {
    call();
    return cudaSuccess;
  } catch (const std::exception& error) {
    static std::once_flag once;
    std::call_once(once, [&] { std::fprintf(stderr, "emulated GPU: %s\n", error.what()); });
    return cudaErrorLaunchFailure;
  }
}

constexpr int kMostHeld = 1024;

/// `call` puts something into the stream, once there is room. Behind an error nothing leaves a stream any more.
template <class Call>
void when_there_is_room(cudaStream_t stream, const Call& call) {
  while (stream->held >= kMostHeld && !tandem::cuda_failed(stream->stream)) std::this_thread::yield();
  call();
  ++stream->held;
  cuda_emulator::enqueue(stream->stream, [stream] { --stream->held; });
}

template <class Call>
cudaError_t submitted(cudaStream_t stream, const Call& call) {
  if (stream->captured) return cudaErrorStreamCaptureInvalidated;
  return guarded([&] { when_there_is_room(stream, call); });
}

cudaError_t put(cudaStream_t stream, Work work) {
  return submitted(stream, [&] { cuda_emulator::enqueue(stream->stream, std::move(work)); });
}

CUresult wait_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned mode) {
  const auto* const word = reinterpret_cast<const std::uint32_t*>(at);
  if (stream->captured || mode != CU_STREAM_WAIT_VALUE_GEQ || !place_of(word, sizeof *word))
    return CUDA_ERROR_INVALID_VALUE;
  when_there_is_room(stream, [&] { tandem::cuda_await_count(stream->stream, word, value); });
  return CUDA_SUCCESS;
}

CUresult write_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned mode) {
  auto* const word = reinterpret_cast<std::uint32_t*>(at);
  if (stream->captured || mode != CU_STREAM_WRITE_VALUE_DEFAULT || !place_of(word, sizeof *word))
    return CUDA_ERROR_INVALID_VALUE;
  when_there_is_room(stream, [&] { tandem::cuda_write_count(stream->stream, word, value); });
  return CUDA_SUCCESS;
}

cuda_emulator::Lack asked_for_lack() {
  const char* const text = std::getenv("TANDEM_EMULATED_LACK");
  const std::string_view lack = text == nullptr ? "" : text;
  if (lack == "writes") return cuda_emulator::Lack::writes;
  if (lack == "waits") return cuda_emulator::Lack::waits;
  if (lack == "operations") return cuda_emulator::Lack::operations;
  return cuda_emulator::Lack::nothing;
}

}  // namespace

namespace tandem::probe {

cudaError_t launch_emulated(const void* kernel, unsigned blocks, unsigned threads, cudaStream_t stream,
                            std::function<void()> thread) {
  if (blocks == 0 || threads == 0 || threads > 1024) return cudaErrorInvalidConfiguration;
  static std::atomic<unsigned> seed = 0;
  Work work = [=, order = ++seed, thread = std::move(thread)] {
    cuda_emulator::run_grid({blocks, 1, 1}, {threads, 1, 1}, 0, false, order, kernel, true, thread);
  };
  if (!stream->captured) return put(stream, std::move(work));
  stream->captured->push_back(std::move(work));
  return cudaSuccess;
}

}  // namespace tandem::probe

// NOLINTBEGIN(readability-identifier-naming): CUDA's names

// ---- errors

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorLaunchFailure:
      return "cudaErrorLaunchFailure";
    case cudaErrorStreamCaptureInvalidated:
      return "cudaErrorStreamCaptureInvalidated";
  }
  return "unknown";
}
const char* cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;  // every call here tells of its own
}

// ---- the device

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  static const cuda_emulator::Lacking lacking(asked_for_lack());
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"emulated", 8, 0, 3, 1 << 20, 164 << 10, 64, 2, 0};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  // Few multiprocessors, since blocks run one after the other and a load takes as many times as long; three, so that
  // kernels' shares of a buffer do not come out even.
  *value = attribute == cudaDevAttrMultiProcessorCount ? 3 : 1'000'000;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  std::snprintf(text, static_cast<std::size_t>(bytes), "none");
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  *function = nullptr;
  if (cuda_emulator::lack() != cuda_emulator::Lack::operations) {
    if (std::string_view(name) == "cuStreamWaitValue32") *function = reinterpret_cast<void*>(wait_value);
    if (std::string_view(name) == "cuStreamWriteValue32") *function = reinterpret_cast<void*>(write_value);
  }
  *found = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
  return cudaSuccess;
}

// ---- memory

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  return take(data, CudaPlace::device, bytes);
}
cudaError_t cudaFree(void* data) {
  return give_back(data, CudaPlace::device);
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  return take(data, CudaPlace::pinned, bytes);
}
cudaError_t cudaFreeHost(void* data) {
  return give_back(data, CudaPlace::pinned);
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = tandem::cuda_device().memory_bytes;
  *free = *total - cuda_emulator::allocated_bytes(CudaPlace::device);
  return cudaSuccess;
}

// ---- streams

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (!cuda_emulator::is_settled(stream->stream)) {
    std::this_thread::yield();  // who asks again and again leaves the stream's thread a core
    return cudaErrorNotReady;
  }
  return cudaStreamSynchronize(stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return guarded([&] { tandem::cuda_wait(stream->stream); });
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data) {
  return put(stream, [=] { function(data); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  const bool to_device = place_of(to, bytes) == CudaPlace::device;
  const bool from_device = place_of(from, bytes) == CudaPlace::device;
  const bool says_to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool says_from = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (says_to != to_device || says_from != from_device)) return cudaErrorInvalidValue;
  return submitted(stream, [&] { tandem::cuda_copy(to, from, bytes, stream->stream); });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!place_of(to, bytes)) return cudaErrorInvalidValue;
  return put(stream, [=] {
    const cuda_emulator::Touched touched[] = {{to, bytes, true}};
    cuda_emulator::touch(touched, nullptr);
    std::memset(to, value, bytes);
  });
}
cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const std::size_t* bytes, std::size_t count,
                                 cudaMemcpyAttributes* attributes, std::size_t* first, std::size_t attribute_count,
                                 cudaStream_t stream) {
  if (count == 0 || attribute_count != 1 || *first != 0) return cudaErrorInvalidValue;
  if (attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream) return cudaErrorInvalidValue;
  for (std::size_t i = 0; i < count; ++i) {
    if (bytes[i] == 0 || !place_of(to[i], bytes[i]) || !place_of(from[i], bytes[i])) return cudaErrorInvalidValue;
  }
  return submitted(stream, [&] {
    tandem::cuda_copy_pieces({to, count}, {from, count}, {bytes, count}, tandem::CopyWay::over_link, stream->stream);
  });
}

// ---- events

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{.mark = tandem::CudaMark(), .times = (flags & cudaEventDisableTiming) == 0};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return submitted(stream, [&] {
    event->mark.record(stream->stream);
    event->recorded = true;
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return guarded([&] { event->mark.wait(); });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->times || !end->times || !begin->recorded || !end->recorded) return cudaErrorInvalidValue;
  return guarded([&] { *milliseconds = static_cast<float>(end->mark.seconds_after(begin->mark) * 1e3); });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return submitted(stream, [&] { event->mark.hold(stream->stream); });
}

// ---- graphs: what a stream was given while it was captured

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream->captured) return cudaErrorStreamCaptureInvalidated;
  stream->captured.emplace();
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!stream->captured) return cudaErrorStreamCaptureInvalidated;
  *graph = new CUgraph_st{std::move(*stream->captured)};
  stream->captured.reset();
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const Work& node : exec->nodes) {
    if (const cudaError_t error = put(stream, node); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

// NOLINTEND(readability-identifier-naming)
