// Device memory by size: read by a kernel, write by a kernel, copy by the runtime and by a kernel. Sizes below the L2
// cache measure the cache; the curve is what a profile wants.
#include <algorithm>

#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"

namespace tandem::probe {
namespace {

constexpr int kThreads = 512;

__global__ void fill_pattern(std::uint32_t* words, std::uint64_t count, std::uint64_t first) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    words[i] = pattern_word(first + i);
  }
}

/// Sum of all words added to sum[0], 16 bytes a load and four loads in flight per thread. With sum[1] set, the sum is
/// only compared to a value it never has: timed runs then end without thousands of atomics on one word.
__global__ void read_words(const uint4* data, std::uint64_t count, unsigned long long* sum) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  unsigned long long mine = 0;
  const auto add = [&mine](const uint4& v) { mine += std::uint64_t{v.x} + v.y + (std::uint64_t{v.z} + v.w); };
  for (; i + 3 * stride < count; i += 4 * stride) {
    const uint4 a = __ldcs(data + i), b = __ldcs(data + i + stride);
    const uint4 c = __ldcs(data + i + 2 * stride), d = __ldcs(data + i + 3 * stride);
    add(a);
    add(b);
    add(c);
    add(d);
  }
  for (; i < count; i += stride) add(__ldcs(data + i));
  for (int offset = 16; offset > 0; offset /= 2) mine += __shfl_down_sync(0xFFFFFFFFu, mine, offset);
  if (threadIdx.x % 32 == 0 && (sum[1] == 0 || mine == ~0ull)) atomicAdd(sum, mine);
}

__global__ void write_words(uint4* data, std::uint64_t count, std::uint32_t value) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    data[i] = make_uint4(value, value, value, value);
  }
}

__global__ void copy_words(uint4* to, const uint4* from, std::uint64_t count) {
  const std::uint64_t stride = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + stride < count; i += 2 * stride) {
    const uint4 a = from[i], b = from[i + stride];
    to[i] = a;
    to[i + stride] = b;
  }
  for (; i < count; i += stride) to[i] = from[i];
}

class BandwidthBench {
 public:
  explicit BandwidthBench(Recorder& recorder)
      : recorder_(recorder),
        most_(device_room(recorder) / 2 >> 20 << 20),
        source_(std::max<std::size_t>(most_, 1 << 20)),
        target_(std::max<std::size_t>(most_, 1 << 20)),
        sum_(2 * sizeof(unsigned long long)),
        blocks_(static_cast<unsigned>(device_attribute(cudaDevAttrMultiProcessorCount, "counting multiprocessors")) *
                4) {
    fill(source_, 0);
  }

  std::size_t most() const { return most_; }

  void verify() {
    const std::size_t bytes = std::min<std::size_t>(most_, std::size_t{64} << 20);
    unsigned long long expected = 0;
    for (std::uint64_t i = 0; i < bytes / 4; ++i) expected += pattern_word(i);
    expect_sum(source_, bytes, expected, "The read kernel");
    for (const bool by_kernel : {false, true}) {
      cuda_check(cudaMemsetAsync(target_.as<void>(), 0, bytes, stream_), "clearing device memory");
      enqueue_copy(bytes, by_kernel);
      expect_sum(target_, bytes, expected, by_kernel ? "The copy kernel" : "The runtime's device copy");
    }
    recorder_.checked("read kernel, copy kernel and runtime copy: checksum of " + std::to_string(bytes) +
                      " bytes equals the host's.");
    set_sum(1);
  }

  void measure(std::size_t bytes) {
    const auto figure = [&](const char* name, double moved, const char* how, const std::function<void()>& once) {
      const int loops = calibrate_loops(events_, stream_, once, 2e-3, 200);
      recorder_.figure(
          name, "GB/s", {{"bytes", bytes}, {"method", how}, {"runs_per_repeat", loops}},
          [&] {
            return events_.time(stream_, [&] {
              for (int i = 0; i < loops; ++i) once();
            }) / loops;
          },
          [&](double seconds) { return moved / seconds * 1e-9; });
    };
    const double size = static_cast<double>(bytes);
    figure("device_read", size, "kernel", [&] { enqueue_read(source_, bytes); });
    figure("device_write", size, "kernel", [&] {
      launch("launching the write kernel", write_words, blocks_, kThreads, stream_, target_.as<uint4>(), bytes / 16, 7);
    });
    // A copy moves every byte twice, once in and once out.
    figure("device_copy", 2 * size, "kernel", [&] { enqueue_copy(bytes, true); });
    figure("device_copy", 2 * size, "cudaMemcpyAsync", [&] { enqueue_copy(bytes, false); });
  }

 private:
  void fill(const DeviceMemory& memory, std::uint64_t first) {
    launch("launching the fill kernel", fill_pattern, blocks_, kThreads, stream_, memory.as<std::uint32_t>(),
           memory.bytes() / 4, first);
    stream_.drain("filling device memory");
  }
  void enqueue_read(const DeviceMemory& memory, std::size_t bytes) {
    launch("launching the read kernel", read_words, blocks_, kThreads, stream_, memory.as<uint4>(), bytes / 16,
           sum_.as<unsigned long long>());
  }
  void enqueue_copy(std::size_t bytes, bool by_kernel) {
    if (by_kernel) {
      launch("launching the copy kernel", copy_words, blocks_, kThreads, stream_, target_.as<uint4>(),
             source_.as<uint4>(), bytes / 16);
    } else {
      cuda_check(cudaMemcpyAsync(target_.as<void>(), source_.as<void>(), bytes, cudaMemcpyDeviceToDevice, stream_),
                 "copying on the device");
    }
  }
  /// sum = 0; mode 0: kernels add their sums, mode 1: they only read.
  void set_sum(unsigned long long mode) {
    const unsigned long long words[2] = {0, mode};
    cuda_check(cudaMemcpyAsync(sum_.as<void>(), words, sizeof words, cudaMemcpyHostToDevice, stream_),
               "clearing a sum");
    stream_.drain("clearing a sum");
  }
  void expect_sum(const DeviceMemory& memory, std::size_t bytes, unsigned long long expected, const std::string& who) {
    set_sum(0);
    enqueue_read(memory, bytes);
    unsigned long long sum = 0;
    cuda_check(cudaMemcpyAsync(&sum, sum_.as<void>(), sizeof sum, cudaMemcpyDeviceToHost, stream_), "reading a sum");
    stream_.drain("reading a sum");
    if (sum != expected) throw ProbeError(who + " gave a wrong checksum over " + std::to_string(bytes) + " bytes.");
  }

  Recorder& recorder_;
  std::size_t most_;
  Stream stream_;
  EventPair events_;
  DeviceMemory source_, target_, sum_;
  unsigned blocks_;
};

}  // namespace

void run_bandwidth(Recorder& recorder) {
  BandwidthBench bench(recorder);
  if (bench.most() < (std::size_t{1} << 20)) throw ProbeError("Less than 1 MiB of device memory may be used.");
  bench.verify();
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = std::size_t{256} << 10; bytes < bench.most(); bytes *= recorder.quick() ? 32 : 4) {
    sizes.push_back(bytes);
  }
  sizes.push_back(bench.most());
  // Large sizes first: they are what decode needs, and the time cap cuts from the end.
  std::reverse(sizes.begin(), sizes.end());
  for (const std::size_t bytes : sizes) bench.measure(bytes);
}

}  // namespace tandem::probe
