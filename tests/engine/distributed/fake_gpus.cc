// Stands in for NVIDIA's driver and NCCL: two GPUs whose memory is this process's, streams that are threads, and
// communicators that hand a message over when both ends have come for it. Built as a library of its own and loaded by
// name, as the real ones are. TANDEM_FAKE_GPUS: how many there are.
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace {

std::atomic<int> async_error{0};
std::atomic<int> alive{0};     // objects that were made and not given back
std::atomic<int> refused{-1};  // streams and allocations until one is refused; below 0: none is

/// Work in order, on a thread.
class Stream {
 public:
  Stream() : thread_([this] { work(); }) { ++alive; }
  ~Stream() {
    put({});
    thread_.join();
    --alive;
  }
  void put(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }

 private:
  void work() {
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      const std::function<void()> task = tasks_.front();
      if (!task) return;
      lock.unlock();
      task();
      lock.lock();
      tasks_.pop_front();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

/// What the two ranks of a communicator meet at: one message at a time, from either side.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  const void* offered[2] = {};  // by sender
  bool came[2] = {};            // each rank's first call
  bool aborted = false;
};
struct Comm {
  std::shared_ptr<Meeting> meeting;
  int rank = 0;
};

/// A call between ncclGroupStart and ncclGroupEnd.
struct Call {
  std::shared_ptr<Meeting> meeting;
  int rank;
  Stream* stream;
  std::function<void()> task;
};
thread_local int groups = 0;
thread_local std::vector<Call> grouped;

/// A first call waits for the other rank's, inside the host's call and for good, as NCCL's does: here for a second, so
/// that a test fails instead of hanging.
int begin(const std::vector<Call>& calls) {
  for (const Call& call : calls) {
    const std::lock_guard lock(call.meeting->mutex);
    call.meeting->came[call.rank] = true;
    call.meeting->changed.notify_all();
  }
  for (const Call& call : calls) {
    std::unique_lock lock(call.meeting->mutex);
    const auto both = [&] { return (call.meeting->came[0] && call.meeting->came[1]) || call.meeting->aborted; };
    if (!call.meeting->changed.wait_for(lock, std::chrono::seconds(1), both)) return 3;
  }
  for (const Call& call : calls) call.stream->put(call.task);
  return 0;
}
int begin_or_group(Call call) {
  if (groups == 0) return begin({std::move(call)});
  grouped.push_back(std::move(call));
  return 0;
}

}  // namespace

// The names are those of the driver and of NCCL.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

void fake_async_error(int result) {
  async_error = result;
}
int fake_alive() {
  return alive;
}
void fake_refuse(int after) {
  refused = after;
}

int cuInit(unsigned) {
  return 0;
}
int cuDeviceGetCount(int* count) {
  const char* value = std::getenv("TANDEM_FAKE_GPUS");
  *count = value == nullptr ? 2 : std::atoi(value);
  return 0;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  static int contexts[16];
  *context = &contexts[device];
  ++alive;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  --alive;
  return 0;
}
int cuCtxSetCurrent(void*) {
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  if (refused-- == 0) return 2;
  *stream = new Stream;
  return 0;
}
int cuStreamDestroy_v2(void* stream) {
  delete static_cast<Stream*>(stream);
  return 0;
}
int cuStreamQuery(void* stream) {
  return static_cast<Stream*>(stream)->idle() ? 0 : 600;
}
int cuMemAlloc_v2(unsigned long long* at, std::size_t bytes) {
  if (refused-- == 0) return 2;
  *at = std::bit_cast<unsigned long long>(std::malloc(bytes));
  ++alive;
  return 0;
}
int cuMemFree_v2(unsigned long long at) {
  std::free(std::bit_cast<void*>(at));
  --alive;
  return 0;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void* stream) {
  static_cast<Stream*>(stream)->put([=] { std::memcpy(std::bit_cast<void*>(to), from, bytes); });
  return 0;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void* stream) {
  static_cast<Stream*>(stream)->put([=] { std::memcpy(to, std::bit_cast<void*>(from), bytes); });
  return 0;
}
int cuGetErrorString(int, const char** text) {
  *text = "a driver's error";
  return 0;
}

int ncclCommInitAll(void** comms, int count, const int*) {
  const auto meeting = std::make_shared<Meeting>();
  for (int rank = 0; rank < count; ++rank) {
    comms[rank] = new Comm{meeting, rank};
    ++alive;
  }
  return 0;
}
int ncclCommAbort(void* comm) {
  auto* own = static_cast<Comm*>(comm);
  {
    const std::lock_guard lock(own->meeting->mutex);
    own->meeting->aborted = true;
    own->meeting->changed.notify_all();
  }
  delete own;
  --alive;
  return 0;
}
int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  --alive;
  return 0;
}
int ncclCommGetAsyncError(void*, int* result) {
  *result = async_error;
  return 0;
}
int ncclGroupStart() {
  ++groups;
  return 0;
}
int ncclGroupEnd() {
  return --groups == 0 ? begin(std::exchange(grouped, {})) : 0;
}
int ncclSend(const void* from, std::size_t, int, int, void* comm, void* stream) {
  const auto* own = static_cast<Comm*>(comm);
  const auto task = [from, meeting = own->meeting, rank = own->rank] {
    std::unique_lock lock(meeting->mutex);
    meeting->offered[rank] = from;
    meeting->changed.notify_all();
    meeting->changed.wait(lock, [&] { return meeting->offered[rank] == nullptr || meeting->aborted; });
  };
  return begin_or_group({own->meeting, own->rank, static_cast<Stream*>(stream), task});
}
int ncclRecv(void* to, std::size_t bytes, int, int peer, void* comm, void* stream) {
  const auto* own = static_cast<Comm*>(comm);
  const auto task = [=, meeting = own->meeting] {
    std::unique_lock lock(meeting->mutex);
    meeting->changed.wait(lock, [&] { return meeting->offered[peer] != nullptr || meeting->aborted; });
    if (meeting->aborted) return;
    std::memcpy(to, meeting->offered[peer], bytes);
    meeting->offered[peer] = nullptr;
    meeting->changed.notify_all();
  };
  return begin_or_group({own->meeting, own->rank, static_cast<Stream*>(stream), task});
}
const char* ncclGetErrorString(int) {
  return "NCCL's error";
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
