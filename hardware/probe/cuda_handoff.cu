// Signals between CPU and GPU. Three ways are compared: a host callback (cudaLaunchHostFunc), stream memory operations
// on pinned flags (cuStreamWriteValue32, cuStreamWaitValue32), and kernels that write or spin on pinned flags.
//
// Every wait has a limit. Where the host gives up, it releases all flags; a device that does not finish then is
// declared stuck, and the probe goes on without it.
#include <algorithm>
#include <atomic>

#include "hardware/probe/cuda_common.h"
#include "hardware/probe/device.cuh"

namespace tandem::probe {
namespace {

constexpr double kHostLimit = 2.0;                             // seconds the host waits for one flag
constexpr unsigned long long kDeviceLimit = 3'000'000'000ull;  // nanoseconds a kernel spins
constexpr unsigned kReleased = 0x3FFFFFFFu;                    // beyond every value used, in signed cyclic order

/// Flags in pinned memory, each on its own 128 bytes.
struct Flags {
  alignas(128) unsigned to_host;
  alignas(128) unsigned from_host;
  alignas(128) unsigned stored;     // written by a kernel as its last act
  alignas(128) unsigned arrived;    // written by a kernel just before the stream waits
  alignas(128) unsigned timed_out;  // a kernel gave up
};

/// False where the value did not come in time, which *timed_out says then too.
__device__ bool spin(const volatile unsigned* flag, unsigned value, volatile unsigned* timed_out) {
  const bool came = came_within(kDeviceLimit, flag, value);
  if (!came) *timed_out = 1;
  __threadfence_system();
  return came;
}

__global__ void work(unsigned* counter) {
  *counter += 1;
}

__global__ void store_flag(volatile unsigned* flag, unsigned value) {
  __threadfence_system();
  *flag = value;
}

__global__ void wait_flag(const volatile unsigned* flag, unsigned value, volatile unsigned* timed_out) {
  spin(flag, value, timed_out);
}

/// `rounds` answers from one running kernel: no launch, no stream, only the link.
__global__ void ping_pong(volatile unsigned* to_host, const volatile unsigned* from_host, unsigned first, int rounds,
                          volatile unsigned* timed_out) {
  for (int i = 0; i < rounds; ++i) {
    *to_host = first + static_cast<unsigned>(i);
    __threadfence_system();
    // Its answer, not *timed_out, which lies in host memory: to read that too would add a round trip to each round.
    if (!spin(from_host, first + static_cast<unsigned>(i), timed_out)) return;
  }
}

unsigned load(unsigned& flag) {
  return std::atomic_ref(flag).load(std::memory_order_acquire);
}
void store(unsigned& flag, unsigned value) {
  std::atomic_ref(flag).store(value, std::memory_order_release);
}
bool host_reached(unsigned& flag, unsigned value) {
  return static_cast<int>(load(flag) - value) >= 0;
}

struct CallbackWork {
  unsigned* signal = nullptr;    // set to `value` on entry, where given
  unsigned* wait_for = nullptr;  // then spun on until `value`, where given
  unsigned value = 0;
};

void CUDART_CB callback(void* data) {
  const auto& item = *static_cast<const CallbackWork*>(data);
  if (item.signal != nullptr) store(*item.signal, item.value);
  const auto start = Clock::now();
  while (item.wait_for != nullptr && !host_reached(*item.wait_for, item.value) && seconds_since(start) < kHostLimit) {
  }
}

enum class Out { write_value, store_kernel, host_callback };
enum class In { wait_value, wait_kernel, host_callback };
const char* name_of(Out out) {
  return out == Out::write_value ? "stream_write_value" : out == Out::store_kernel ? "store_kernel" : "host_callback";
}
const char* name_of(In in) {
  return in == In::wait_value ? "stream_wait_value" : in == In::wait_kernel ? "wait_kernel" : "host_callback";
}

class HandoffBench {
 public:
  explicit HandoffBench(Recorder& recorder)
      : recorder_(recorder), memory_(sizeof(Flags)), counter_(sizeof(unsigned)), flags_(*memory_.as<Flags>()) {
    flags_ = Flags{};
    wait_value_ = stream_value_function("cuStreamWaitValue32");
    write_value_ = stream_value_function("cuStreamWriteValue32");
    cuda_check(cudaMemsetAsync(counter_.as<void>(), 0, sizeof(unsigned), stream_), "clearing a counter");
    // Kernels load at their first launch, which may wait for the device: none may load while another spins.
    launch("launching a signal", store_flag, 1, 1, stream_, &flags_.to_host, 0);
    launch("launching a wait", wait_flag, 1, 1, stream_, &flags_.from_host, 0, &flags_.timed_out);
    launch("launching the ping-pong kernel", ping_pong, 1, 1, stream_, &flags_.to_host, &flags_.from_host, 0, 0,
           &flags_.timed_out);
    enqueue_work();
    stream_.drain("loading kernels");
  }

  bool stream_operations() const { return wait_value_ != nullptr && write_value_ != nullptr; }

  void measure_ping_pong() {
    constexpr int kRounds = 200;
    recorder_.figure(
        "round_trip", "us", {{"gpu_to_cpu", "running_kernel"}, {"cpu_to_gpu", "running_kernel"}},
        [&] {
          const unsigned first = next_;
          next_ += kRounds;
          const auto start = Clock::now();
          launch("launching the ping-pong kernel", ping_pong, 1, 1, stream_, &flags_.to_host, &flags_.from_host, first,
                 kRounds, &flags_.timed_out);
          wait_host(flags_.to_host, first, start);
          const auto begin = Clock::now();  // the kernel runs; its first signal is the start
          for (unsigned i = 0; i < kRounds; ++i) {
            wait_host(flags_.to_host, first + i, begin);
            store(flags_.from_host, first + i);
          }
          stream_.drain("playing ping-pong");
          const double seconds = seconds_since(begin) / kRounds;
          check_timed_out();
          return seconds;
        },
        [](double seconds) { return seconds * 1e6; });
  }

  /// Rounds of [work kernel, signal, wait] on one stream; the host answers each signal. All are queued behind a gate
  /// before the clock starts, so that launches are not part of the figure.
  void measure_round_trip(Out out, In in) {
    recorder_.figure(
        "round_trip", "us", {{"gpu_to_cpu", name_of(out)}, {"cpu_to_gpu", name_of(in)}},
        [&] { return run_chain(out, in, true); }, [](double seconds) { return seconds * 1e6; });
  }

  /// The same chain without signals: what to subtract for the work kernel.
  void measure_baseline() {
    recorder_.figure(
        "round_trip", "us", {{"gpu_to_cpu", "none"}, {"cpu_to_gpu", "none"}},
        [&] { return run_chain(Out::store_kernel, In::wait_kernel, false); },
        [](double seconds) { return seconds * 1e6; });
  }

  /// Time between a kernel's own store to a pinned flag and the mechanism's signal behind that kernel, both seen by one
  /// spinning CPU thread: no clocks need to agree. A flag store itself takes about half a running kernel's round trip.
  /// Both are queued behind a gate: else the store would be there before the thread has queued the signal.
  void measure_gpu_to_cpu(Out out) {
    one_way("gpu_to_cpu_after_store", name_of(out), [&](unsigned value) {
      launch("launching a wait", wait_flag, 1, 1, stream_, &flags_.from_host, value, &flags_.timed_out);
      launch("launching a signal", store_flag, 1, 1, stream_, &flags_.stored, value);
      enqueue_signal(out, value);
      settle();
      const auto begin = Clock::now();
      store(flags_.from_host, value);
      wait_host(flags_.stored, value, begin);
      const auto seen = Clock::now();
      wait_host(flags_.to_host, value, seen);
      return seconds_since(seen);
    });
  }

  void measure_gpu_to_cpu_synchronize() {
    one_way("gpu_to_cpu_after_store", "cudaStreamSynchronize", [&](unsigned value) {
      launch("launching a signal", store_flag, 1, 1, stream_, &flags_.stored, value);
      const auto begin = Clock::now();
      wait_host(flags_.stored, value, begin);
      const auto seen = Clock::now();
      cuda_check(cudaStreamSynchronize(stream_), "waiting for a stream");
      return seconds_since(seen);
    });
  }

  /// From the host's store (or call) to the store of the kernel behind the wait, seen by the host.
  void measure_cpu_to_gpu(In in) {
    one_way("cpu_to_gpu_to_cpu_store", name_of(in), [&](unsigned value) {
      CallbackWork& item = items_[0];
      launch("launching a signal", store_flag, 1, 1, stream_, &flags_.arrived, value);
      enqueue_wait(in, value, item);
      launch("launching a signal", store_flag, 1, 1, stream_, &flags_.stored, value);
      wait_host(flags_.arrived, value, Clock::now());
      settle();
      const auto begin = Clock::now();
      store(flags_.from_host, value);
      wait_host(flags_.stored, value, begin);
      return seconds_since(begin);
    });
  }

  void measure_cpu_to_gpu_launch() {
    one_way("cpu_to_gpu_to_cpu_store", "kernel_launch", [&](unsigned value) {
      settle();
      const auto begin = Clock::now();
      launch("launching a signal", store_flag, 1, 1, stream_, &flags_.stored, value);
      wait_host(flags_.stored, value, begin);
      return seconds_since(begin);
    });
  }

  /// Lets everything queued finish: nothing waits for the host any more. ProbeError where the device is stuck.
  void release() {
    store(flags_.from_host, kReleased);
    stream_.drain("releasing the queue after a failed hand-off", 10);
  }

  void verify() {
    unsigned seen = 0;
    cuda_check(cudaMemcpyAsync(&seen, counter_.as<void>(), sizeof seen, cudaMemcpyDeviceToHost, stream_),
               "reading a counter");
    stream_.drain("reading a counter");
    if (seen != worked_) {
      throw ProbeError("The work kernels counted " + std::to_string(seen) + " rounds where " + std::to_string(worked_) +
                       " were queued.");
    }
    recorder_.checked("Every round's kernel ran once (" + std::to_string(seen) +
                      "), and no wait reached its time limit.");
  }

 private:
  static constexpr int kChain = 64;

  void stream_value(StreamValue function, unsigned& flag, unsigned value, unsigned mode, const char* name) {
    const CUresult result = function(stream_, reinterpret_cast<CUdeviceptr>(&flag), value, mode);
    if (result != CUDA_SUCCESS) {
      fail(std::string(name) + " failed with driver error " + std::to_string(static_cast<int>(result)) + ".");
    }
  }

  void enqueue_work() {
    launch("launching a kernel", work, 1, 1, stream_, counter_.as<unsigned>());
    ++worked_;
  }

  void enqueue_callback(CallbackWork& item, unsigned* signal, unsigned* wait_for, unsigned value) {
    item = {signal, wait_for, value};
    cuda_check(cudaLaunchHostFunc(stream_, callback, &item), "queueing a host callback");
  }

  void enqueue_signal(Out out, unsigned value, int item = kChain) {
    if (out == Out::write_value) {
      stream_value(write_value_, flags_.to_host, value, CU_STREAM_WRITE_VALUE_DEFAULT, "cuStreamWriteValue32");
    } else if (out == Out::store_kernel) {
      launch("launching a signal", store_flag, 1, 1, stream_, &flags_.to_host, value);
    } else {
      enqueue_callback(items_[item], &flags_.to_host, nullptr, value);
    }
  }

  void enqueue_wait(In in, unsigned value, CallbackWork& item) {
    if (in == In::wait_value) {
      stream_value(wait_value_, flags_.from_host, value, CU_STREAM_WAIT_VALUE_GEQ, "cuStreamWaitValue32");
    } else if (in == In::wait_kernel) {
      launch("launching a wait", wait_flag, 1, 1, stream_, &flags_.from_host, value, &flags_.timed_out);
    } else {
      enqueue_callback(item, nullptr, &flags_.from_host, value);
    }
  }

  double run_chain(Out out, In in, bool signals) {
    const unsigned gate = next_, first = gate + 1;
    next_ += kChain + 1;
    // A lone callback is both directions: the stream goes on when it returns, so it signals and needs no wait behind
    // it.
    const bool callback_only = out == Out::host_callback && in == In::host_callback;
    enqueue_wait(in, gate, items_[kChain]);
    for (int i = 0; i < kChain; ++i) {
      enqueue_work();
      if (!signals) continue;
      enqueue_signal(out, first + static_cast<unsigned>(i), i);
      if (!callback_only) enqueue_wait(in, first + static_cast<unsigned>(i), items_[kChain + 1 + i]);
    }
    settle();
    const auto begin = Clock::now();
    store(flags_.from_host, gate);
    for (unsigned i = 0; signals && i < kChain; ++i) {
      wait_host(flags_.to_host, first + i, Clock::now());
      if (!callback_only) store(flags_.from_host, first + i);
    }
    stream_.drain("running a chain of hand-offs");
    const double seconds = seconds_since(begin) / kChain;
    check_timed_out();
    return seconds;
  }

  void one_way(const char* name, const char* how, const std::function<double(unsigned)>& once) {
    constexpr int kRounds = 20;
    recorder_.figure(
        name, "us", {{"by", how}},
        [&] {
          double seconds = 0;
          for (int i = 0; i < kRounds; ++i) {
            seconds += once(next_++);
            stream_.drain("passing a signal");
          }
          check_timed_out();
          return seconds / kRounds;
        },
        [](double seconds) { return seconds * 1e6; });
  }

  /// Gives the device time to reach the wait that the clock will start from.
  static void settle() {
    const auto start = Clock::now();
    while (seconds_since(start) < 50e-6) {
    }
  }

  void wait_host(unsigned& flag, unsigned value, Clock::time_point since) {
    for (unsigned polls = 1; !host_reached(flag, value); ++polls) {
      if (polls % 1024 == 0 && seconds_since(since) > kHostLimit) {
        fail("The GPU's signal did not reach the CPU within " + std::to_string(static_cast<int>(kHostLimit)) + " s.");
      }
    }
  }

  [[noreturn]] void fail(const std::string& sentence) {
    release();
    throw ProbeError(sentence);
  }

  void check_timed_out() {
    if (load(flags_.timed_out) != 0) throw ProbeError("A kernel waited 3 s for the CPU's signal and gave up.");
  }

  Recorder& recorder_;
  Stream stream_;
  PinnedMemory memory_;
  DeviceMemory counter_;
  Flags& flags_;
  CallbackWork items_[2 * kChain + 1];
  StreamValue wait_value_ = nullptr, write_value_ = nullptr;
  unsigned next_ = 1;
  unsigned worked_ = 0;
};

}  // namespace

void run_handoff(Recorder& recorder) {
  // On the heap and not freed while the device may still call back: a stuck device keeps pointers into it.
  auto* bench = new HandoffBench(recorder);
  try {
    bench->measure_ping_pong();
    bench->measure_baseline();
    bench->measure_round_trip(Out::store_kernel, In::wait_kernel);
    bench->measure_round_trip(Out::host_callback, In::host_callback);
    for (const Out out : {Out::store_kernel, Out::host_callback}) bench->measure_gpu_to_cpu(out);
    bench->measure_gpu_to_cpu_synchronize();
    for (const In in : {In::wait_kernel, In::host_callback}) bench->measure_cpu_to_gpu(in);
    bench->measure_cpu_to_gpu_launch();
    // Last, because a driver that accepts these and then does nothing costs the device.
    if (bench->stream_operations()) {
      bench->measure_gpu_to_cpu(Out::write_value);
      bench->measure_cpu_to_gpu(In::wait_value);
      bench->measure_round_trip(Out::write_value, In::wait_value);
      bench->measure_round_trip(Out::store_kernel, In::wait_value);
      bench->measure_round_trip(Out::write_value, In::wait_kernel);
      bench->measure_round_trip(Out::host_callback, In::wait_value);
    } else {
      recorder.skip("cuStreamWaitValue32 and cuStreamWriteValue32: the driver does not offer them");
    }
    bench->verify();
  } catch (...) {
    // Freeing waits for the device, and a stream may wait for a value that nobody would write any more.
    try {
      if (!device_stuck()) bench->release();
    } catch (const ProbeError&) {
      // It is stuck, which the next line asks for.
    }
    if (!device_stuck()) delete bench;
    throw;
  }
  delete bench;
}

}  // namespace tandem::probe
