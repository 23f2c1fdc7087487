#include "tests/engine/kernels/cuda_emulator/streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "tests/engine/kernels/cuda_emulator/stream_order.h"

namespace tandem {
namespace cuda_emulator {
namespace {

class Stream {
 public:
  Stream() : thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// `work` is not run behind an error, `told` is, with it.
  void enqueue(std::function<void()> work, std::function<void(std::exception_ptr)> told = {}) {
    Clock host = idle() ? Clock() : known_here();
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back({std::move(work), std::move(told), std::move(host)});
    }
    changed_.notify_all();
  }
  bool is_settled() {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) learn_here(order_.clock());
    return queue_.empty();
  }
  void settle() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty(); });
    learn_here(order_.clock());
  }
  void wait() {
    settle();
    const std::lock_guard lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }
  bool failed() {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }

 private:
  struct Item {
    std::function<void()> work;
    std::function<void(std::exception_ptr)> told;
    Clock host;  // what the host knew when it was enqueued
  };
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      Item& item = queue_.front();
      std::exception_ptr error = error_;
      lock.unlock();
      order_.begin_work(item.host);
      try {
        if (item.work && !error) item.work();
      } catch (...) {
        error = std::current_exception();
      }
      if (item.told) item.told(error);
      order_.end_work();
      lock.lock();
      error_ = error;
      queue_.pop_front();
      if (queue_.empty()) changed_.notify_all();
    }
  }

  StreamOrder order_;  // of the stream's thread while something is at work
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> queue_;  // the first one is at work
  std::exception_ptr error_;
  bool ending_ = false;
  std::thread thread_;
};

std::mutex streams_mutex;
std::set<Stream*> streams;

Stream* of(CudaStream stream) {
  return static_cast<Stream*>(stream.handle);
}

/// A point in a stream, once it was recorded.
struct Point {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point time;
  std::exception_ptr error;  // of the stream before it
  Clock clock;               // of the stream there

  /// By the stream at work, or by the host in the default stream's place.
  void reach(std::exception_ptr what) {
    const std::lock_guard lock(mutex);
    time = std::chrono::steady_clock::now();
    error = std::move(what);
    clock = known_here();
    reached = true;
    changed.notify_all();
  }
  bool is_reached() {
    const std::lock_guard lock(mutex);
    return reached;
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reached; });
    learn_here(clock);
    if (error) std::rethrow_exception(error);
  }
};
using PointRef = std::shared_ptr<Point>;

PointRef& point_of(void* handle) {
  return *static_cast<PointRef*>(handle);
}

}  // namespace

void enqueue(CudaStream stream, std::function<void()> work) {
  if (stream.handle == nullptr) {
    work();
  } else {
    of(stream)->enqueue(std::move(work));
  }
}

namespace {
std::atomic<std::uint64_t> counted[4];  // by Call
std::atomic<bool> idling = false;
}  // namespace

bool asked(Call call) {
  ++counted[static_cast<std::size_t>(call)];
  return !idling || call == Call::mark || call == Call::wait;
}

std::atomic<Lack> lacked = Lack::nothing;

Lacking::Lacking(Lack what) {
  lacked = what;
}
Lacking::~Lacking() {
  lacked = Lack::nothing;
}
Lack lack() {
  return lacked;
}

void be_idle() {
  idling = true;
}
bool idle() {
  return idling;
}

Calls calls() {
  const auto of = [](Call call) { return counted[static_cast<std::size_t>(call)].load(); };
  return {of(Call::kernel), of(Call::copy), of(Call::mark), of(Call::wait)};
}

bool is_settled(CudaStream stream) {
  return stream.handle == nullptr || of(stream)->is_settled();
}

void settle_all() {
  const std::lock_guard lock(streams_mutex);
  for (Stream* stream : streams) stream->settle();
}

}  // namespace cuda_emulator

using cuda_emulator::enqueue;

OwnedStream::OwnedStream() {
  auto stream = std::make_unique<cuda_emulator::Stream>();
  const std::lock_guard lock(cuda_emulator::streams_mutex);
  cuda_emulator::streams.insert(stream.get());
  stream_.handle = stream.release();
}
OwnedStream::~OwnedStream() {
  {
    const std::lock_guard lock(cuda_emulator::streams_mutex);
    cuda_emulator::streams.erase(cuda_emulator::of(stream_));
  }
  delete cuda_emulator::of(stream_);
}

void cuda_wait(CudaStream stream) {
  if (stream.handle != nullptr) cuda_emulator::of(stream)->wait();
}

bool cuda_failed(CudaStream stream) {
  return stream.handle != nullptr && cuda_emulator::of(stream)->failed();
}

CudaMark::CudaMark(Waiting) : handle_(new cuda_emulator::PointRef) {}
CudaMark::~CudaMark() {
  delete static_cast<cuda_emulator::PointRef*>(handle_);
}
void CudaMark::record(CudaStream stream) {
  cuda_emulator::asked(cuda_emulator::Call::mark);
  const auto point = cuda_emulator::point_of(handle_) = std::make_shared<cuda_emulator::Point>();
  if (stream.handle == nullptr) {
    point->reach(nullptr);
    return;
  }
  cuda_emulator::of(stream)->enqueue({}, [point](std::exception_ptr error) { point->reach(std::move(error)); });
}
void CudaMark::wait() const {
  if (const auto point = cuda_emulator::point_of(handle_)) point->wait();
}
void CudaMark::hold(CudaStream stream) const {
  cuda_emulator::asked(cuda_emulator::Call::wait);
  if (const auto point = cuda_emulator::point_of(handle_)) enqueue(stream, [point] { point->wait(); });
}
double CudaMark::seconds_after(const CudaMark& other) const {
  const auto time = [](void* handle) {
    const auto point = cuda_emulator::point_of(handle);
    if (point == nullptr || !point->is_reached()) throw CudaError("CUDA failed while reading a time: not ready.");
    return point->time;
  };
  return std::chrono::duration<double>(time(handle_) - time(other.handle_)).count();
}

void cuda_await_count(CudaStream stream, const std::uint32_t* count, std::uint32_t value) {
  cuda_emulator::asked(cuda_emulator::Call::wait);
  if (cuda_emulator::lack() == cuda_emulator::Lack::operations)
    throw CudaError("CUDA failed while having a stream wait for the host: driver error 801.");
  enqueue(stream, [count, value] {
    while (cuda_emulator::lack() == cuda_emulator::Lack::waits) std::this_thread::yield();
    const std::atomic_ref<std::uint32_t> now(*const_cast<std::uint32_t*>(count));
    while (static_cast<std::int32_t>(now.load(std::memory_order_acquire) - value) < 0) std::this_thread::yield();
    cuda_emulator::count_seen(count, value);
  });
}

void cuda_write_count(CudaStream stream, std::uint32_t* count, std::uint32_t value) {
  cuda_emulator::asked(cuda_emulator::Call::mark);
  if (cuda_emulator::lack() == cuda_emulator::Lack::writes) return;
  enqueue(stream, [count, value] {
    cuda_emulator::count_raised(count, value);
    std::atomic_ref<std::uint32_t>(*count).store(value, std::memory_order_release);
  });
}

bool cuda_count_reached(const std::uint32_t* count, std::uint32_t value) {
  const std::atomic_ref<std::uint32_t> now(*const_cast<std::uint32_t*>(count));
  if (static_cast<std::int32_t>(now.load(std::memory_order_acquire) - value) < 0) return false;
  cuda_emulator::count_seen(count, value);
  return true;
}

void cuda_raise_count(std::uint32_t* count) {
  const std::atomic_ref<std::uint32_t> now(*count);
  cuda_emulator::count_raised(count, now.load(std::memory_order_relaxed) + 1);
  now.fetch_add(1, std::memory_order_release);
}

double cuda_seconds(CudaStream stream, const std::function<void()>& run) {
  const auto begin = std::chrono::steady_clock::now();
  run();
  cuda_wait(stream);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace tandem
