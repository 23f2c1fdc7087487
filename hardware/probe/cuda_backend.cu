// The GPU behind gpu.h: finding a device, its passport, and what cuda_common.h declares.
#include <algorithm>
#include <atomic>
#include <cctype>
#include <dlfcn.h>
#include <fstream>
#include <utility>

#include "engine/common/cgroup.h"
#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"
#include "hardware/probe/gpu.h"
#include "hardware/probe/machine.h"

namespace tandem::probe {
namespace {

std::atomic<bool> stuck{false};

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// What only the management library knows. It is optional: without it these fields are left out. Its header is not part
/// of every toolkit, so the few functions are declared here as its ABI documents them (0 is success).
class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto init = find<int (*)()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (ready_) {
      if (const auto shutdown = find<int (*)()>("nvmlShutdown")) shutdown();
    }
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  void describe(const std::string& pci_bus, Fields& fields) const {
    if (!ready_) return;
    if (const auto driver = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion")) {
      char text[96] = {};
      if (driver(text, sizeof text) == 0) fields.emplace_back("driver_release", std::string(text));
    }
    const auto by_bus = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    void* device = nullptr;
    if (by_bus == nullptr || by_bus(pci_bus.c_str(), &device) != 0) return;
    number("nvmlDeviceGetCurrPcieLinkGeneration", device, "pcie_generation_now", fields);
    number("nvmlDeviceGetMaxPcieLinkGeneration", device, "pcie_generation_max", fields);
    number("nvmlDeviceGetCurrPcieLinkWidth", device, "pcie_width_now", fields);
    number("nvmlDeviceGetMaxPcieLinkWidth", device, "pcie_width_max", fields);
    clock("nvmlDeviceGetClockInfo", device, 1, "sm_clock_now_mhz", fields);
    clock("nvmlDeviceGetMaxClockInfo", device, 1, "sm_clock_max_mhz", fields);
    clock("nvmlDeviceGetMaxClockInfo", device, 2, "memory_clock_max_mhz", fields);
    number("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit_milliwatt", fields);
  }

 private:
  template <class Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(dlsym(library_, name));
  }
  void number(const char* function, void* device, const char* key, Fields& fields) const {
    unsigned value = 0;
    if (const auto get = find<int (*)(void*, unsigned*)>(function); get != nullptr && get(device, &value) == 0) {
      fields.emplace_back(key, value);
    }
  }
  void clock(const char* function, void* device, int which, const char* key, Fields& fields) const {
    unsigned value = 0;
    if (const auto get = find<int (*)(void*, int, unsigned*)>(function);
        get != nullptr && get(device, which, &value) == 0) {
      fields.emplace_back(key, value);
    }
  }
  void* library_;
  bool ready_ = false;
};

constexpr unsigned long long kHoldLimit = 20'000'000, kLongHoldLimit = 250'000'000;  // nanoseconds

/// Returns when `value` stands in *gate, or after `limit`: then it stands in *expired.
__global__ void hold(const volatile unsigned* gate, unsigned value, unsigned long long limit,
                     volatile unsigned* expired) {
  if (came_within(limit, gate, value)) return;
  *expired = value;
  __threadfence_system();
}

__global__ void read_all(const uint4* words, std::uint64_t count, unsigned* sink) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned mix = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 word = __ldcs(words + i);
    mix |= word.x ^ word.y ^ word.z ^ word.w;
  }
  if (mix != 0) *sink = mix;  // never: all words are zero
}

/// Half a second of work: the device idles while the CPU is measured, and its clocks take some time to rise.
void warm_clocks(const Recorder& recorder) {
  const std::size_t bytes = std::min(device_room(recorder), std::size_t{256} << 20) >> 20 << 20;
  if (bytes == 0) return;
  const Stream stream;
  const DeviceMemory memory(bytes), sink(sizeof(unsigned));
  const auto blocks =
      4u * static_cast<unsigned>(device_attribute(cudaDevAttrMultiProcessorCount, "counting multiprocessors"));
  cuda_check(cudaMemsetAsync(memory.as<void>(), 0, bytes, stream), "clearing device memory");
  for (const auto start = Clock::now(); seconds_since(start) < 0.5;) {
    for (int i = 0; i < 16; ++i)
      launch("launching the read kernel", read_all, blocks, 512, stream, memory.as<uint4>(), bytes / sizeof(uint4),
             sink.as<unsigned>());
    stream.drain("warming up");
  }
}

/// The node of the host's memory that the device hangs on: figures of the link and of host memory on a machine with
/// several are of the threads' node, which `numactl` chooses. Nothing where the system does not say.
void add_numa_node(std::string bus, Fields& fields) {
  std::transform(bus.begin(), bus.end(), bus.begin(), [](unsigned char c) { return std::tolower(c); });
  std::ifstream file("/sys/bus/pci/devices/" + bus + "/numa_node");
  if (int node = -1; file >> node && node >= 0) fields.emplace_back("numa_node", node);
}

Fields read_passport() {
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, 0), "reading the device's properties");
  Fields fields = {{"name", properties.name}};
  int driver = 0, runtime = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess) fields.emplace_back("driver_cuda_version", version_text(driver));
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    fields.emplace_back("runtime_cuda_version", version_text(runtime));
  }
  fields.emplace_back("compute_capability", std::to_string(properties.major) + "." + std::to_string(properties.minor));
  fields.emplace_back("multiprocessors", properties.multiProcessorCount);
  fields.emplace_back("l2_bytes", properties.l2CacheSize);
  fields.emplace_back("shared_bytes_per_multiprocessor", properties.sharedMemPerMultiprocessor);
  fields.emplace_back("memory_bus_bits", properties.memoryBusWidth);
  fields.emplace_back("copy_engines", properties.asyncEngineCount);
  fields.emplace_back("ecc", properties.ECCEnabled != 0);
  std::size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "reading the device's free memory");
  fields.emplace_back("memory_bytes", total);
  fields.emplace_back("memory_free_bytes", free);
  int khz = 0;
  if (cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, 0) == cudaSuccess && khz > 0) {
    fields.emplace_back("sm_clock_peak_khz", khz);
  }
  if (cudaDeviceGetAttribute(&khz, cudaDevAttrMemoryClockRate, 0) == cudaSuccess && khz > 0) {
    fields.emplace_back("memory_clock_peak_khz", khz);
  }
  char bus[32] = {};
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, 0) == cudaSuccess) {
    fields.emplace_back("pci_bus_id", std::string(bus));
    add_numa_node(bus, fields);
  }
  Nvml().describe(bus, fields);
  return fields;
}

}  // namespace

void cuda_check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // a launch error would otherwise be reported again by the next call
  throw ProbeError(std::string("CUDA failed while ") + what + ": " + cudaGetErrorName(result) + " (" +
                   cudaGetErrorString(result) + ").");
}

bool device_stuck() {
  return stuck.load();
}

void declare_device_stuck(const std::string& why) {
  stuck.store(true);
  throw ProbeError(why);
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  cuda_check(cudaMalloc(&data_, bytes), ("taking " + std::to_string(bytes) + " bytes of device memory").c_str());
}
DeviceMemory::~DeviceMemory() {
  if (!device_stuck()) cudaFree(data_);
}

PinnedMemory::PinnedMemory(std::size_t bytes) : bytes_(bytes) {
  cuda_check(cudaMallocHost(&data_, bytes), ("taking " + std::to_string(bytes) + " bytes of pinned memory").c_str());
}
PinnedMemory::~PinnedMemory() {
  if (!device_stuck()) cudaFreeHost(data_);
}

Stream::Stream() {
  cuda_check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
}
Stream::~Stream() {
  if (!device_stuck()) cudaStreamDestroy(stream_);
}

void Stream::drain(const char* what, double limit_s) const {
  const auto start = Clock::now();
  for (;;) {
    const cudaError_t state = cudaStreamQuery(stream_);
    if (state == cudaSuccess) return;
    if (state != cudaErrorNotReady) cuda_check(state, what);
    if (seconds_since(start) > limit_s) {
      declare_device_stuck(std::string("The device did not finish while ") + what + ".");
    }
  }
}

struct EventPair::Gate {
  alignas(128) unsigned opened;
  alignas(128) unsigned expired;  // the last that was not opened in time
};

EventPair::EventPair() : gate_(sizeof(Gate)) {
  *gate_.as<Gate>() = Gate{};
  cuda_check(cudaEventCreate(&begin_), "creating an event");
  cuda_check(cudaEventCreate(&end_), "creating an event");
}
EventPair::~EventPair() {
  if (device_stuck()) return;
  cudaEventDestroy(begin_);
  cudaEventDestroy(end_);
}

double EventPair::time(const Stream& stream, const std::function<void()>& enqueue) {
  std::optional<double> seconds = time_held(stream, enqueue);
  if (!seconds && !long_holds_) {
    long_holds_ = true;
    seconds = time_held(stream, enqueue);
  }
  if (!seconds) {
    throw FigureError("The device waited " + std::to_string(kLongHoldLimit / 1'000'000) +
                      " ms and the host had not queued all of the work: its time would be the host's.");
  }
  return *seconds;
}

std::optional<double> EventPair::time_held(const Stream& stream, const std::function<void()>& enqueue) {
  Gate& gate = *gate_.as<Gate>();
  // The first goes through at once: a kernel loads at its first launch, which may wait for the device.
  for (unsigned closed = opened_ == 0 ? 0 : 1; closed <= 1; ++closed) {
    launch("holding a stream", hold, 1, 1, stream, &gate.opened, opened_ + closed,
           long_holds_ ? kLongHoldLimit : kHoldLimit, &gate.expired);
  }
  ++opened_;
  cuda_check(cudaEventRecord(begin_, stream), "recording an event");
  enqueue();
  cuda_check(cudaEventRecord(end_, stream), "recording an event");
  std::atomic_ref(gate.opened).store(opened_, std::memory_order_release);
  stream.drain("timing work on a stream");
  if (std::atomic_ref(gate.expired).load(std::memory_order_acquire) == opened_) return std::nullopt;
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading an event's time");
  return double{milliseconds} * 1e-3;
}

int calibrate_loops(EventPair& events, const Stream& stream, const std::function<void()>& enqueue, double target_s,
                    int most) {
  enqueue();
  try {
    const double once = events.time(stream, enqueue);
    return static_cast<int>(std::clamp(target_s / std::max(once, 1e-7), 1.0, static_cast<double>(most)));
  } catch (const FigureError&) {
    return 1;  // the figure says why
  }
}

std::size_t device_room(const Recorder& recorder) {
  std::size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total), "reading the device's free memory");
  return std::min(recorder.options().memory, free / 2);
}

std::size_t pinned_room(const Recorder& recorder) {
  return std::min(recorder.options().memory, available_memory() / 4);
}

StreamValue stream_value_function(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found);
  if (result != cudaSuccess) cudaGetLastError();
  return result == cudaSuccess && found == cudaDriverEntryPointSuccess ? reinterpret_cast<StreamValue>(function)
                                                                       : nullptr;
}

int device_attribute(cudaDeviceAttr attribute, const char* what) {
  int value = 0;
  cuda_check(cudaDeviceGetAttribute(&value, attribute, 0), what);
  return value;
}

GpuStatus gpu_status() {
  GpuStatus status;
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    cudaGetLastError();
    status.reason = result == cudaErrorInsufficientDriver
                        ? "There is no NVIDIA driver here, or it is older than this build's CUDA runtime (" +
                              version_text(CUDART_VERSION) + ")."
                    : result == cudaErrorNoDevice || result == cudaSuccess
                        ? "The NVIDIA driver reports no device (CUDA_VISIBLE_DEVICES may hide it)."
                        : std::string("The NVIDIA driver did not answer: ") + cudaGetErrorName(result) + " (" +
                              cudaGetErrorString(result) + ").";
    return status;
  }
  try {
    cuda_check(cudaSetDevice(0), "selecting device 0");
    cuda_check(cudaFree(nullptr), "creating the device's context");
    status.passport = read_passport();
    status.available = true;
  } catch (const ProbeError& error) {
    status.reason = error.what();
  }
  return status;
}

bool gpu_hung() {
  return device_stuck();
}

void run_gpu_section(const std::string& name, Recorder& recorder) {
  if (device_stuck()) throw ProbeError("Not run: the device stopped answering in an earlier section.");
  static bool warm = false;  // the sections of a GPU follow each other
  if (!std::exchange(warm, true)) warm_clocks(recorder);
  if (name == "bandwidth") return run_bandwidth(recorder);
  if (name == "gemm") return run_gemm(recorder);
  if (name == "launch") return run_launch(recorder);
  if (name == "calls") return run_calls(recorder);
  if (name == "link") return run_link(recorder);
  if (name == "traffic") return run_traffic(recorder);
  if (name == "handoff") return run_handoff(recorder);
  throw ProbeError("There is no GPU section '" + name + "'.");
}

}  // namespace tandem::probe
