// Shared by the GPU sections: errors as sentences, owners of device things, timing on a stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda.h>
#include <cuda_runtime.h>
#include <functional>
#include <optional>
#include <string>

#include "hardware/probe/probe.h"

static_assert(CUDART_VERSION >= 13000, "the probe uses cudaMemcpyBatchAsync as CUDA 13 declares it");

namespace tandem::probe {

/// ProbeError "what: error name (description)." unless the call succeeded.
void cuda_check(cudaError_t result, const char* what);

/// Set when a stream no longer answers. From then on nothing may wait for the device: owners leak instead of freeing
/// (freeing waits), and the remaining GPU sections say why they did not run.
bool device_stuck();
[[noreturn]] void declare_device_stuck(const std::string& why);

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

/// Page-locked host memory; a kernel reaches it at the same address.
class PinnedMemory {
 public:
  explicit PinnedMemory(std::size_t bytes);
  ~PinnedMemory();
  PinnedMemory(const PinnedMemory&) = delete;
  PinnedMemory& operator=(const PinnedMemory&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT(google-explicit-constructor)
  /// Waits until the stream is empty, at most `limit_s`; then the device counts as stuck.
  void drain(const char* what, double limit_s = 10) const;

 private:
  cudaStream_t stream_ = nullptr;
};

class EventPair {
 public:
  EventPair();
  ~EventPair();
  EventPair(const EventPair&) = delete;
  EventPair& operator=(const EventPair&) = delete;
  /// Seconds on the device between the two ends of what `enqueue` puts on the stream. Waits for it. The stream is held
  /// until all of that is queued, so that what the host pays for queueing is not in the figure. Where that takes longer
  /// than 20 ms it is done again, held for longer. FigureError where even that was not enough, as where more is queued
  /// than the device takes in (about a thousand): the host then waits for the device.
  double time(const Stream& stream, const std::function<void()>& enqueue);

 private:
  struct Gate;
  /// Nothing where the stream went on by itself.
  std::optional<double> time_held(const Stream& stream, const std::function<void()>& enqueue);

  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  PinnedMemory gate_;
  unsigned opened_ = 0;
  bool long_holds_ = false;  // since one that was not was too short
};

/// Repeats of `enqueue` that fill about `target_s`, from one timed run; between 1 and `most`. 1 where that has no time.
int calibrate_loops(EventPair& events, const Stream& stream, const std::function<void()>& enqueue, double target_s,
                    int most);

/// Bytes a section may take: the user's cap, at most half of what is free on the device.
std::size_t device_room(const Recorder& recorder);
/// The same for pinned host memory: at most a quarter of what is available.
std::size_t pinned_room(const Recorder& recorder);

/// Attribute of device 0.
int device_attribute(cudaDeviceAttr attribute, const char* what);

/// cuStreamWaitValue32 or cuStreamWriteValue32. The driver is asked for it, so that the program starts where there is
/// no driver library; null where it has none.
using StreamValue = CUresult(CUDAAPI*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
StreamValue stream_value_function(const char* name);

/// The word at `index` of every test pattern, the same on host and device.
__host__ __device__ inline std::uint32_t pattern_word(std::uint64_t index) {
  return static_cast<std::uint32_t>(index * 2654435761u) ^ static_cast<std::uint32_t>(index >> 15);
}

// The sections, one file each.
void run_bandwidth(Recorder& recorder);
void run_gemm(Recorder& recorder);
void run_launch(Recorder& recorder);
void run_calls(Recorder& recorder);
void run_link(Recorder& recorder);
void run_traffic(Recorder& recorder);
void run_handoff(Recorder& recorder);

}  // namespace tandem::probe
