// A fixed set of threads for data-parallel loops inside one kernel call.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace tandem {

/// CPUs this process may use: those of its affinity mask, or fewer where a cgroup cpu quota allows fewer. At least 1.
unsigned usable_threads();

/// Runs loops on `threads` threads, the caller among them. Indices are handed out dynamically, so results must not
/// depend on which thread runs an index.
///
/// A pool that is to use every CPU of the process but `spare` pins each thread of its own to one CPU and leaves the
/// first CPU to the caller, whose mask it does not touch, and the next `spare` to others; its threads spin for some
/// microseconds after a loop, then sleep. A pool of more or fewer threads than CPUs, or beyond a cgroup quota, does
/// neither: its threads could hold up others. The environment variable TANDEM_PIN=0 turns pinning and spinning off,
/// where another program is to share the CPUs.
class ThreadPool {
 public:
  /// `threads` counts the caller; 0 means usable_threads(). `spare`: CPUs of threads that look at a device all the
  /// time. Throws InputError where TANDEM_PIN is neither 0 nor 1.
  explicit ThreadPool(unsigned threads = 0, unsigned spare = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  unsigned size() const;
  bool pinned() const;

  /// Calls task(0) .. task(n - 1), each exactly once, and returns when all have returned. If tasks throw, indices not
  /// yet begun are dropped and the first exception is rethrown here. Called from inside a task, of this pool
  /// or another, the loop runs on the calling thread alone, so nesting never deadlocks. While another thread's loop is
  /// running it waits for that: a task must not wait for another thread's loop, nor the caller hold a lock that tasks
  /// take.
  void parallel_for(std::size_t n, const std::function<void(std::size_t)>& task);

  /// The pool of the process, created at first use with usable_threads() threads.
  static ThreadPool& shared();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tandem
