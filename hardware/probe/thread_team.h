// Pinned threads that start together, and memory they touch first.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tandem::probe {

/// `threads` threads, thread i pinned to the i-th allowed CPU (unpinned where the system refuses).
class ThreadTeam {
 public:
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }
  /// Calls work(thread) on every thread and waits. Seconds from the moment all are ready to the end of the last one.
  /// `work` must not throw.
  double run(const std::function<void(int)>& work);

 private:
  void loop(int index, int cpu);
  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  const std::function<void(int)>* work_ = nullptr;
  std::size_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::atomic<int> ready_{0};
  std::atomic<bool> go_{false};
  std::vector<double> ends_;
  std::chrono::steady_clock::time_point start_;
  std::vector<std::thread> threads_;
};

/// Anonymous memory, page aligned, asked to be of huge pages. ProbeError when there is none.
class HostBuffer {
 public:
  explicit HostBuffer(std::size_t bytes);
  ~HostBuffer();
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace tandem::probe
