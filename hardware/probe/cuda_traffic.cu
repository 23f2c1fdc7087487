// Copies that share the link: both directions at once, and a small one beside a large one, as a query's partial result
// is beside an offload.
#include <algorithm>
#include <vector>

#include "hardware/probe/cuda_common.h"

namespace tandem::probe {
namespace {

constexpr std::size_t kSmall = 16 << 10;  // bytes: partial attention of a few sequences
constexpr std::size_t kLarge = std::size_t{64} << 20, kLeast = std::size_t{8} << 20;

enum class Beside { nothing, same_direction, other_direction };
const char* name_of(Beside beside) {
  return beside == Beside::nothing          ? "nothing"
         : beside == Beside::same_direction ? "dma_same_direction"
                                            : "dma_other_direction";
}

class TrafficBench {
 public:
  TrafficBench(Recorder& recorder, std::size_t large)
      : recorder_(recorder),
        large_(large),
        host_in_(large),
        host_out_(large),
        host_small_(kSmall),
        device_in_(large),
        device_out_(large),
        device_small_(kSmall) {
    cuda_check(cudaEventCreateWithFlags(&begun_, cudaEventDisableTiming), "creating an event");
    cuda_check(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "creating an event");
    cuda_check(cudaMemsetAsync(device_out_.as<void>(), 0, large_, stream_), "clearing a buffer");
    cuda_check(cudaMemsetAsync(device_in_.as<void>(), 2, large_, stream_), "filling a buffer");
    std::fill_n(host_out_.as<char>(), large_, char{2});
    stream_.drain("clearing a buffer");
    std::fill_n(host_in_.as<char>(), large_, char{1});
  }
  ~TrafficBench() {
    if (device_stuck()) return;
    cudaEventDestroy(begun_);
    cudaEventDestroy(ended_);
  }
  TrafficBench(const TrafficBench&) = delete;
  TrafficBench& operator=(const TrafficBench&) = delete;

  void measure_both_ways() {
    recorder_.figure(
        "link_both_ways", "GB/s", {{"method", "dma"}, {"bytes_each_way", large_}},
        [&] {
          return events_.time(stream_, [&] {
            cuda_check(cudaEventRecord(begun_, stream_), "recording an event");
            cuda_check(cudaStreamWaitEvent(other_, begun_, 0), "waiting for an event");
            copy(stream_, true);
            copy(other_, false);
            cuda_check(cudaEventRecord(ended_, other_), "recording an event");
            cuda_check(cudaStreamWaitEvent(stream_, ended_, 0), "waiting for an event");
          });
        },
        [&](double seconds) { return 2.0 * static_cast<double>(large_) / seconds * 1e-9; });
  }

  /// Both sides were filled with other bytes than they must hold now.
  void check_both_ways() {
    std::vector<char> arrived(large_);
    copy(stream_, true);
    copy(other_, false);
    cuda_check(cudaMemcpyAsync(arrived.data(), device_in_.as<void>(), large_, cudaMemcpyDeviceToHost, stream_),
               "reading what arrived");
    stream_.drain("reading what arrived");
    other_.drain("copying many bytes");
    const auto all = [](const char* bytes, std::size_t count, char value) {
      return std::all_of(bytes, bytes + count, [value](char byte) { return byte == value; });
    };
    if (!all(arrived.data(), large_, 1) || !all(host_out_.as<char>(), large_, 0))
      throw ProbeError("Copies in both directions at once arrived wrong.");
    recorder_.checked("Large copies in both directions at once: every byte arrived.");
  }

  /// The large copy is under way when the small one begins, and takes longer than it takes to queue both.
  void measure_small(bool in, Beside beside) {
    recorder_.figure(
        "small_copy", "us",
        {{"direction", in ? "h2d" : "d2h"},
         {"bytes", kSmall},
         {"beside", name_of(beside)},
         {"beside_bytes", beside == Beside::nothing ? std::size_t{0} : large_}},
        [&] {
          other_.drain("copying many bytes");  // of a time that threw
          const double seconds = events_.time(stream_, [&] {
            if (beside != Beside::nothing) copy(other_, beside == Beside::same_direction ? in : !in);
            cuda_check(cudaMemcpyAsync(in ? device_small_.as<void>() : host_small_.as<void>(),
                                       in ? host_small_.as<void>() : device_small_.as<void>(), kSmall,
                                       in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream_),
                       "copying a few bytes");
          });
          other_.drain("copying many bytes");
          return seconds;
        },
        [](double seconds) { return seconds * 1e6; });
  }

 private:
  void copy(const Stream& stream, bool in) {
    cuda_check(cudaMemcpyAsync(in ? device_in_.as<void>() : host_out_.as<void>(),
                               in ? host_in_.as<void>() : device_out_.as<void>(), large_,
                               in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream),
               "copying many bytes");
  }

  Recorder& recorder_;
  std::size_t large_;
  Stream stream_, other_;
  EventPair events_;
  PinnedMemory host_in_, host_out_, host_small_;
  DeviceMemory device_in_, device_out_, device_small_;
  cudaEvent_t begun_ = nullptr, ended_ = nullptr;
};

}  // namespace

void run_traffic(Recorder& recorder) {
  const std::size_t large = std::min({kLarge, pinned_room(recorder) / 3, device_room(recorder) / 3});
  if (large < kLeast) {
    throw ProbeError(
        "Copies beside each other need 24M of pinned and of device memory; --memory or the machine allows "
        "less.");
  }
  TrafficBench bench(recorder, large);
  bench.check_both_ways();
  bench.measure_both_ways();
  for (const bool in : {true, false})
    for (const Beside beside : {Beside::nothing, Beside::same_direction, Beside::other_direction})
      bench.measure_small(in, beside);
}

}  // namespace tandem::probe
