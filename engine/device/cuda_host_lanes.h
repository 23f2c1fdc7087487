// The host lanes of `cuda`: CPU threads that watch words in pinned memory, which streams write, and raise counts there
// that streams wait for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda_trace.h"
#include "engine/device/types.h"

namespace tandem {

/// A point in a stream: a word in pinned memory becomes at least `value` there (in the sense of cuda_await_count). A
/// thread looks at that and leaves the driver alone, which may be held up by who waits for the thread.
struct CudaArrival {
  const std::uint32_t* word = nullptr;
  std::uint32_t value = 0;
};

/// The words that streams write for threads of the host, one of each lane.
class CudaArrivals {
 public:
  explicit CudaArrivals(std::size_t lanes);
  /// A point behind the event, whose stream has got `submitted` operations so far: the first that was put there, or a
  /// new one behind whatever else is in the stream by now, as a rule nothing. One serves any number of lanes: a stream
  /// writes in its order, so a word that is at least a point's value says that all before that point is done.
  CudaArrival behind(Event event, CudaStream stream, std::uint64_t submitted);
  void all_done();  // of events until now nobody asks any more

 private:
  struct Lane {
    std::uint32_t value = 0;              // of its last point
    std::vector<std::uint64_t> in_front;  // by point since all_done: the last operation before it
  };
  static constexpr std::size_t kStride = 16;  // words of two lanes do not share a cache line
  PinnedMemory words_;
  std::vector<Lane> lanes_;
};

class CudaHostLanes {
 public:
  struct Task {
    Op op;
    std::int64_t record = -1;
    std::vector<CudaArrival> arrivals;  // of the operations of device lanes that it waits for
    std::vector<Event> events;          // those of other host lanes
  };

  /// A thread for each host lane, and one that asks `failure_of_streams` five times a second, while a lane waits for a
  /// stream, whether one has failed: the driver may hold it up, but not a lane. RunError where the system has no
  /// threads left.
  CudaHostLanes(const std::vector<LaneInfo>& lanes, CudaTrace& trace, std::function<Nanos()> now,
                std::function<std::exception_ptr()> failure_of_streams);
  ~CudaHostLanes();  // does what is queued first
  CudaHostLanes(const CudaHostLanes&) = delete;
  CudaHostLanes& operator=(const CudaHostLanes&) = delete;

  void submit(LaneId lane, Task task);
  void await(Event event);  // returns when the operation is done
  /// The lane's operations that are done, as a stream can wait for them: of 32 bits.
  std::uint32_t* count_of(LaneId lane) const { return counts_.as<std::uint32_t>() + lane * kCountStride; }

  /// What a body has thrown, once; nullptr: nothing. No body runs after that until resume().
  std::exception_ptr take_error();
  void resume();

 private:
  struct Lane {
    std::deque<Task> queue;
    std::condition_variable filled;
  };
  static constexpr std::size_t kCountStride = 16;  // counts of two lanes do not share a cache line

  bool reached(Event event) const;
  void wait_for(const CudaArrival& arrival);
  void run(LaneId lane);
  void watch();
  void end();

  CudaTrace& trace_;
  std::function<Nanos()> now_;
  std::function<std::exception_ptr()> failure_of_streams_;
  std::exception_ptr failure_;        // written before failed_
  std::atomic<bool> failed_ = false;  // a stream has
  std::atomic<int> waiting_ = 0;      // lanes that look at a stream's word
  PinnedMemory counts_;
  std::mutex mutex_;
  std::condition_variable done_, unwatch_;
  bool ending_ = false, unwatched_ = false, stopped_ = false;
  std::exception_ptr error_;
  std::vector<Lane> lanes_;  // by id
  std::vector<std::thread> threads_;
  std::thread watcher_;  // ends after them
};

}  // namespace tandem
