#include "hardware/probe/thread_team.h"

#include <algorithm>
#include <string>
#include <sys/mman.h>

#include "engine/common/cpus.h"
#include "hardware/probe/machine.h"
#include "hardware/probe/probe.h"

namespace tandem::probe {

ThreadTeam::ThreadTeam(int threads) : ends_(static_cast<std::size_t>(threads)) {
  const std::vector<int> cpus = allowed_cpus();
  for (int i = 0; i < threads; ++i) {
    const int cpu = cpus[static_cast<std::size_t>(i) % cpus.size()];
    threads_.emplace_back([this, i, cpu] { loop(i, cpu); });
  }
}

ThreadTeam::~ThreadTeam() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

double ThreadTeam::run(const std::function<void(int)>& work) {
  std::unique_lock lock(mutex_);
  work_ = &work;
  running_ = size();
  ready_.store(0);
  go_.store(false);
  ++generation_;
  wake_.notify_all();
  // Waking takes tens of microseconds and differs from thread to thread; it must not be part of the figure. The lock is
  // given up while threads get ready, then the start is taken and all are let go at once.
  lock.unlock();
  while (ready_.load(std::memory_order_acquire) < size()) std::this_thread::yield();
  start_ = Clock::now();
  go_.store(true, std::memory_order_release);
  lock.lock();
  finished_.wait(lock, [&] { return running_ == 0; });
  return *std::max_element(ends_.begin(), ends_.end());
}

void ThreadTeam::loop(int index, int cpu) {
  run_on({cpu});
  std::size_t seen = 0;
  for (;;) {
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || generation_ != seen; });
      if (stop_) return;
      seen = generation_;
      work = work_;
    }
    ready_.fetch_add(1, std::memory_order_acq_rel);
    // Yields, so that a machine with fewer free CPUs than threads still gets everyone ready.
    while (!go_.load(std::memory_order_acquire)) std::this_thread::yield();
    (*work)(index);
    ends_[static_cast<std::size_t>(index)] = seconds_since(start_);
    {
      const std::lock_guard lock(mutex_);
      if (--running_ == 0) finished_.notify_all();
    }
  }
}

HostBuffer::HostBuffer(std::size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw ProbeError("The host refused " + std::to_string(bytes) + " bytes of memory.");
  data_ = memory;
  madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: the passport says what the system does with it
}

HostBuffer::~HostBuffer() {
  munmap(data_, bytes_);
}

}  // namespace tandem::probe
