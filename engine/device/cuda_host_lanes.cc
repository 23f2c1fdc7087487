#include "engine/device/cuda_host_lanes.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/device.h"

namespace tandem {
CudaArrivals::CudaArrivals(std::size_t lanes) : words_(lanes * kStride * sizeof(std::uint32_t)), lanes_(lanes) {
  std::fill_n(words_.as<std::uint32_t>(), lanes * kStride, 0u);
}

CudaArrival CudaArrivals::behind(Event event, CudaStream stream, std::uint64_t submitted) {
  Lane& lane = lanes_[event.lane];
  std::uint32_t* const word = words_.as<std::uint32_t>() + event.lane * kStride;
  const auto first = std::lower_bound(lane.in_front.begin(), lane.in_front.end(), event.value);
  if (first != lane.in_front.end()) {
    const auto later = static_cast<std::uint32_t>(lane.in_front.end() - first) - 1;
    return {word, lane.value - later};
  }
  cuda_write_count(stream, word, lane.value + 1);
  lane.in_front.push_back(submitted);
  return {word, ++lane.value};
}

void CudaArrivals::all_done() {
  for (Lane& lane : lanes_) lane.in_front.clear();
}

CudaHostLanes::CudaHostLanes(const std::vector<LaneInfo>& lanes, CudaTrace& trace, std::function<Nanos()> now,
                             std::function<std::exception_ptr()> failure_of_streams)
    : trace_(trace),
      now_(std::move(now)),
      failure_of_streams_(std::move(failure_of_streams)),
      counts_(lanes.size() * kCountStride * sizeof(std::uint32_t)),
      lanes_(lanes.size()) {
  std::fill_n(counts_.as<std::uint32_t>(), lanes.size() * kCountStride, 0u);
  try {
    for (const LaneInfo& info : lanes)
      if (info.kind == LaneKind::host_workers) threads_.emplace_back([this, id = info.id] { run(id); });
    watcher_ = std::thread([this] { watch(); });
  } catch (const std::system_error& error) {  // a limit on processes
    end();
    throw_run_error("A thread for a host lane of --device cuda cannot be started ({}).", error.what());
  }
}

CudaHostLanes::~CudaHostLanes() {
  end();
}

void CudaHostLanes::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (Lane& lane : lanes_) lane.filled.notify_one();
  }
  for (std::thread& thread : threads_) thread.join();
  {
    const std::lock_guard lock(mutex_);
    unwatched_ = true;
    unwatch_.notify_one();
  }
  if (watcher_.joinable()) watcher_.join();
}

void CudaHostLanes::submit(LaneId lane, Task task) {
  const std::lock_guard lock(mutex_);
  lanes_[lane].queue.push_back(std::move(task));
  lanes_[lane].filled.notify_one();
}

bool CudaHostLanes::reached(Event event) const {
  return cuda_count_reached(count_of(event.lane), static_cast<std::uint32_t>(event.value));
}

void CudaHostLanes::await(Event event) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return reached(event); });
}

// The driver is not asked: a thread that is held up inside it, where a stream's queue is full, may wait for this one.
void CudaHostLanes::wait_for(const CudaArrival& arrival) {
  if (cuda_count_reached(arrival.word, arrival.value)) return;
  ++waiting_;
  while (!failed_ && !cuda_count_reached(arrival.word, arrival.value)) std::this_thread::yield();
  --waiting_;
  if (failed_) std::rethrow_exception(failure_);
}

// Any thread of the host may be behind the stream that has failed, the control thread too, whatever it waits for.
void CudaHostLanes::watch() {
  constexpr auto kLook = std::chrono::milliseconds(200);
  std::unique_lock lock(mutex_);
  while (!unwatch_.wait_for(lock, kLook, [&] { return unwatched_; })) {
    if (waiting_ == 0 || failed_) continue;
    lock.unlock();
    if (std::exception_ptr failure = failure_of_streams_()) {
      failure_ = std::move(failure);
      failed_ = true;
    }
    lock.lock();
  }
}

std::exception_ptr CudaHostLanes::take_error() {
  const std::lock_guard lock(mutex_);
  return std::exchange(error_, nullptr);
}

void CudaHostLanes::resume() {
  const std::lock_guard lock(mutex_);
  stopped_ = failed_ = false;
}

void CudaHostLanes::run(LaneId lane) {
  std::unique_lock lock(mutex_);
  while (true) {
    lanes_[lane].filled.wait(lock, [&] { return ending_ || !lanes_[lane].queue.empty(); });
    if (lanes_[lane].queue.empty()) return;
    Task task = std::move(lanes_[lane].queue.front());
    lanes_[lane].queue.pop_front();
    done_.wait(lock,
               [&] { return std::ranges::all_of(task.events, [&](const Event& event) { return reached(event); }); });
    const bool runs = !stopped_;
    lock.unlock();
    BodyContext context(task.op, BodyContext::Reach::host);
    std::exception_ptr error;
    std::optional<Nanos> start;
    try {
      // Behind an error nothing is waited for: a stream that has failed writes no more words.
      for (const CudaArrival& arrival : task.arrivals)
        if (runs) wait_for(arrival);
      start = now_();
      if (runs && task.op.body) task.op.body(context);
    } catch (...) {
      error = std::current_exception();
    }
    const Nanos end = now_();
    task.op.body = nullptr;  // what they hold is let go before anybody learns that it is done
    task.op.launch = nullptr;
    trace_.set_times(task.record, start.value_or(end), end, context.settled_cost() ? &context.cost() : nullptr);
    lock.lock();
    if (error && !stopped_) {
      error_ = error;
      stopped_ = true;
    }
    cuda_raise_count(count_of(lane));
    done_.notify_all();
  }
}

}  // namespace tandem
