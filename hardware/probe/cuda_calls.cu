// What a decode step pays for beside its kernels: marks, waits for other streams and for values, small copies, what is
// passed along to a kernel, and the wake-up at its end.
#include <algorithm>

#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"

namespace tandem::probe {
namespace {

constexpr int kPairs = 200;  // of a kernel and a call: all are queued before the first begins, and the queue holds 1024
constexpr std::size_t kLongest = 4096;  // bytes of a copy
constexpr std::size_t kPiece = 256;     // bytes of a piece in a batch
constexpr int kMostPieces = 256;

__global__ void count(unsigned* counter) {
  *counter += 1;
}

template <int Bytes>
struct Arguments {
  unsigned word[Bytes / sizeof(unsigned)];
};

template <int Bytes>
__global__ void count_with(unsigned* counter, const __grid_constant__ Arguments<Bytes> arguments) {
  *counter += arguments.word[Bytes / sizeof(unsigned) - 1];
}

class Event {
 public:
  explicit Event(unsigned flags) { cuda_check(cudaEventCreateWithFlags(&event_, flags), "creating an event"); }
  ~Event() {
    if (!device_stuck()) cudaEventDestroy(event_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

double microseconds(double seconds) {
  return seconds * 1e6;
}

class CallBench {
 public:
  explicit CallBench(Recorder& recorder)
      : recorder_(recorder),
        counter_(sizeof(unsigned)),
        device_(kMostPieces * kPiece),
        host_(kMostPieces * kPiece),
        plain_(cudaEventDisableTiming),
        timed_(cudaEventDefault),
        other_done_(cudaEventDisableTiming),
        blocking_(cudaEventDisableTiming | cudaEventBlockingSync) {
    cuda_check(cudaMemsetAsync(counter_.as<void>(), 0, sizeof(unsigned), stream_), "clearing a counter");
    cuda_check(cudaMemsetAsync(device_.as<void>(), 0, device_.bytes(), stream_), "clearing a buffer");
    for (int i = 0; i < kMostPieces; ++i) {
      from_[i] = host_.as<char>() + i * kPiece;
      to_[i] = device_.as<char>() + i * kPiece;
    }
    std::fill_n(sizes_, kMostPieces, kPiece);
    kernel();
    cuda_check(cudaEventRecord(other_done_, other_), "recording an event");
    stream_.drain("loading a kernel");
    other_.drain("recording an event");
  }

  /// What a call costs beside a kernel is the difference to kernels alone, which come first. False: no time for them.
  bool measure_kernels() {
    const auto samples = recorder_.collect("call_device (what=kernel alone)", [&] {
      return events_.time(stream_, [&] {
        for (int i = 0; i < kPairs; ++i) kernel();
      }) / kPairs;
    });
    if (samples) kernel_seconds_ = summarize(*samples).value;
    return samples.has_value();
  }

  void measure(const Fields& conditions, const std::function<void()>& call, int pairs = kPairs) {
    recorder_.figure(
        "call_host", "us", conditions,
        [&] {
          const auto start = Clock::now();
          for (int i = 0; i < pairs; ++i) call();
          const double seconds = seconds_since(start);
          stream_.drain("making calls");
          return seconds / pairs;
        },
        microseconds);
    recorder_.figure(
        "call_device", "us", conditions,
        [&] {
          return events_.time(stream_,
                              [&] {
                                for (int i = 0; i < pairs; ++i) {
                                  kernel();
                                  call();
                                }
                              }) /
                     pairs -
                 kernel_seconds_;
        },
        microseconds);
  }

  void measure_events() {
    for (const bool timing : {false, true}) {
      measure({{"what", "event_record"}, {"timing", timing}},
              [&] { cuda_check(cudaEventRecord(timing ? timed_ : plain_, stream_), "recording an event"); });
    }
    measure({{"what", "wait_event"}, {"state", "done"}},
            [&] { cuda_check(cudaStreamWaitEvent(stream_, other_done_, 0), "waiting for an event"); });
  }

  /// From the end of a kernel of one stream to the begin of one of another that waits for it.
  void measure_hop() {
    constexpr int kHops = 50;  // there and back
    const auto over = [&](cudaStream_t from, cudaStream_t to) {
      cuda_check(cudaEventRecord(plain_, from), "recording an event");
      cuda_check(cudaStreamWaitEvent(to, plain_, 0), "waiting for an event");
      launch("launching a kernel", count, 1, 1, to, counter_.as<unsigned>());
      ++expected_;
    };
    recorder_.figure(
        "stream_hop", "us", {{"by", "event"}},
        [&] {
          const double seconds = events_.time(stream_, [&] {
            for (int i = 0; i < kHops; ++i) {
              over(stream_, other_);
              over(other_, stream_);
            }
          });
          other_.drain("crossing streams");
          return seconds / (2 * kHops) - kernel_seconds_;
        },
        microseconds);
  }

  void measure_values() {
    const StreamValue write = stream_value_function("cuStreamWriteValue32");
    const StreamValue wait = stream_value_function("cuStreamWaitValue32");
    if (write == nullptr || wait == nullptr) {
      recorder_.skip("write_value, wait_value: the driver has no stream memory operations");
      return;
    }
    const auto value = [&](StreamValue function, void* at, unsigned number, unsigned mode, const char* name) {
      const CUresult result = function(stream_, reinterpret_cast<CUdeviceptr>(at), number, mode);
      if (result != CUDA_SUCCESS)
        throw ProbeError(std::string(name) + " failed with driver error " + std::to_string(static_cast<int>(result)) +
                         ".");
    };
    for (const bool pinned : {true, false}) {
      void* const word = pinned ? host_.as<void>() : device_.as<void>();
      const char* const memory = pinned ? "host" : "device";
      measure({{"what", "write_value"}, {"memory", memory}},
              [&] { value(write, word, 7, CU_STREAM_WRITE_VALUE_DEFAULT, "cuStreamWriteValue32"); });
      if (word_at(word) != 7) {  // a driver that takes the call and does nothing would never let a wait go
        recorder_.skip(std::string("wait_value (memory=") + memory + "): the word was not written");
        continue;
      }
      measure({{"what", "wait_value"}, {"memory", memory}, {"state", "done"}},
              [&] { value(wait, word, 7, CU_STREAM_WAIT_VALUE_GEQ, "cuStreamWaitValue32"); });
    }
  }

  void measure_copies() {
    measure({{"what", "memset"}, {"bytes", 4}},
            [&] { cuda_check(cudaMemsetAsync(device_.as<void>(), 0, 4, stream_), "clearing a word"); });
    for (const bool in : {true, false}) {
      const char* const direction = in ? "h2d" : "d2h";
      const cudaMemcpyKind kind = in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
      void* const to = in ? device_.as<void>() : host_.as<void>();
      const void* const from = in ? host_.as<void>() : device_.as<void>();
      for (const std::size_t bytes : {std::size_t{4}, kLongest}) {
        measure({{"what", "copy"}, {"direction", direction}, {"bytes", bytes}},
                [&] { cuda_check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "copying a few bytes"); });
      }
      for (const int pieces : {1, 16, kMostPieces}) {
        measure(
            {{"what", "copy_batch"}, {"direction", direction}, {"pieces", pieces}, {"piece_bytes", kPiece}},
            [&] {
              cudaMemcpyAttributes attributes{};
              attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
              attributes.flags = cudaMemcpyFlagPreferOverlapWithCompute;
              std::size_t first = 0;
              cuda_check(cudaMemcpyBatchAsync(in ? to_ : from_, in ? from_ : to_, sizes_,
                                              static_cast<std::size_t>(pieces), &attributes, &first, 1, stream_),
                         "copying a batch of pieces");
            },
            pieces == kMostPieces ? kPairs / 100 : kPairs / 10);
      }
    }
  }

  template <int Bytes>
  void measure_arguments() {
    Arguments<Bytes> arguments{};
    arguments.word[Bytes / sizeof(unsigned) - 1] = 1;
    // Few: room for arguments that wait with their kernels is not documented.
    measure(
        {{"what", "kernel"}, {"argument_bytes", Bytes}},
        [&] {
          launch("launching a kernel with arguments", count_with<Bytes>, 1, 1, stream_, counter_.as<unsigned>(),
                 arguments);
          ++expected_;
        },
        kPairs / 10);
  }

  /// How a step ends: one kernel, a mark and a wait for it.
  void measure_wake_up() {
    for (const bool sleeps : {false, true}) {
      const Event& event = sleeps ? blocking_ : plain_;
      recorder_.figure(
          "step_end", "us", {{"wait", sleeps ? "sleeping" : "spinning"}},
          [&] {
            constexpr int kRounds = 50;
            const auto start = Clock::now();
            for (int i = 0; i < kRounds; ++i) {
              kernel();
              cuda_check(cudaEventRecord(event, stream_), "recording an event");
              cuda_check(cudaEventSynchronize(event), "waiting for an event");
            }
            return seconds_since(start) / kRounds;
          },
          microseconds);
    }
  }

  void check_count() {
    const unsigned seen = word_at(counter_.as<void>());
    if (seen != expected_) {
      throw ProbeError("The kernels counted " + std::to_string(seen) + " where " + std::to_string(expected_) +
                       " were launched.");
    }
    recorder_.checked("Every kernel between the calls ran once, with its arguments: the device counted " +
                      std::to_string(seen) + ".");
  }

 private:
  unsigned word_at(const void* word) {
    unsigned seen = 0;
    cuda_check(cudaMemcpyAsync(&seen, word, sizeof seen, cudaMemcpyDefault, stream_), "reading a word");
    stream_.drain("reading a word");
    return seen;
  }

  void kernel() {
    launch("launching a kernel", count, 1, 1, stream_, counter_.as<unsigned>());
    ++expected_;
  }

  Recorder& recorder_;
  Stream stream_, other_;
  EventPair events_;
  DeviceMemory counter_, device_;
  PinnedMemory host_;
  Event plain_, timed_, other_done_, blocking_;
  double kernel_seconds_ = 0;
  unsigned expected_ = 0;
  void *from_[kMostPieces], *to_[kMostPieces];
  std::size_t sizes_[kMostPieces];
};

}  // namespace

void run_calls(Recorder& recorder) {
  CallBench bench(recorder);
  if (!bench.measure_kernels()) return;
  bench.measure_events();
  bench.measure_hop();
  bench.measure_copies();
  bench.measure_arguments<8>();
  bench.measure_arguments<1024>();
  bench.measure_arguments<3072>();
  bench.measure_values();
  bench.measure_wake_up();
  bench.check_count();
}

}  // namespace tandem::probe
