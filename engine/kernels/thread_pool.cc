#include "engine/kernels/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/common/cgroup.h"
#include "engine/common/cpus.h"
#include "engine/common/error.h"

namespace tandem {
namespace {

// Polls of an atomic before a pinned thread sleeps, some 20 us: waking a sleeping thread costs about 40 us.
constexpr int kSpins = 2000;

thread_local bool inside_task = false;
thread_local int unpinned_cpus = 0;  // CPUs of the mask that a pinned thread had before

bool pinning_wanted() {
  const char* value = std::getenv("TANDEM_PIN");
  const std::string text = value ? value : "";
  if (!text.empty() && text != "0" && text != "1")
    throw_input_error("The environment variable TANDEM_PIN is '{}'; it can be 1 (threads stay on one CPU each) or 0.",
                      text);
  return text != "0";
}

void pause() {
  __builtin_ia32_pause();
}

struct Loop {
  const std::function<void(std::size_t)>* task;
  std::size_t n;
  std::atomic<std::size_t> next{0};
  std::mutex error_mutex;
  std::exception_ptr error;

  void work() {
    inside_task = true;
    try {
      for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < n;) (*task)(i);
    } catch (...) {
      next.store(n, std::memory_order_relaxed);
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    inside_task = false;
  }
};

}  // namespace

unsigned usable_threads() {
  unsigned count = std::max(1u, std::thread::hardware_concurrency());
  if (unpinned_cpus > 0)
    count = static_cast<unsigned>(unpinned_cpus);
  else if (const std::size_t allowed = usable_cpus().size(); allowed > 0)
    count = static_cast<unsigned>(allowed);
  const double quota = cgroup_cpus();
  if (quota < count) count = std::max(1u, static_cast<unsigned>(std::ceil(quota)));
  return count;
}

struct ThreadPool::State {
  std::mutex busy;  // held by the thread whose loop is running
  std::mutex mutex;
  std::condition_variable wake;      // a loop began, or the end
  std::condition_variable finished;  // the last helper left the loop
  std::atomic<std::uint64_t> generation{0};
  std::atomic<unsigned> helpers{0};  // inside the current loop; changes under `mutex`
  Loop* loop = nullptr;              // under `mutex`
  bool stop = false;                 // under `mutex`
  std::vector<std::thread> threads;
  bool pinned = false;
  int spins = 0;

  ~State() {
    {
      const std::lock_guard lock(mutex);
      stop = true;
      generation.fetch_add(1, std::memory_order_release);
    }
    wake.notify_all();
    for (std::thread& thread : threads) thread.join();
  }

  void run_pinned_helper(int cpu, std::size_t cpus) {
    unpinned_cpus = static_cast<int>(cpus);
    run_on({cpu});  // where a container forbids it the thread stays unpinned and works
    run_helper();
  }

  void run_helper() {
    std::uint64_t seen = 0;
    for (;;) {
      for (int i = 0; i < spins && generation.load(std::memory_order_acquire) == seen; ++i) pause();
      std::unique_lock lock(mutex);
      wake.wait(lock, [&] { return stop || generation.load(std::memory_order_relaxed) != seen; });
      if (stop) return;
      seen = generation.load(std::memory_order_relaxed);
      Loop* current = loop;
      if (!current) continue;  // it is over already
      helpers.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      current->work();
      lock.lock();
      if (helpers.fetch_sub(1, std::memory_order_release) == 1) finished.notify_one();
    }
  }
};

ThreadPool::ThreadPool(unsigned threads, unsigned spare) : state_(std::make_unique<State>()) {
  if (threads == 0) threads = usable_threads();
  const std::vector<int> cpus = usable_cpus();
  // A quota of 1.5 CPUs makes two threads, which must not spin it away.
  state_->pinned = pinning_wanted() && threads > 1 && threads + spare == cpus.size() &&
                   threads + spare == usable_threads() && cgroup_cpus() >= threads + spare;
  state_->spins = state_->pinned ? kSpins : 0;
  State* state = state_.get();
  state->threads.reserve(threads - 1);
  try {
    for (unsigned i = 1; i < threads; ++i) {
      if (state->pinned)
        state->threads.emplace_back(
            [state, cpu = cpus[i + spare], all = cpus.size()] { state->run_pinned_helper(cpu, all); });
      else
        state->threads.emplace_back([state] { state->run_helper(); });
    }
  } catch (const std::system_error& error) {  // a limit on processes
    throw_run_error("Thread {} of {} cannot be started ({}): ask for fewer with --threads.", state->threads.size() + 2,
                    threads, error.what());
  }
}

ThreadPool::~ThreadPool() = default;

unsigned ThreadPool::size() const {
  return static_cast<unsigned>(state_->threads.size()) + 1;
}

bool ThreadPool::pinned() const {
  return state_->pinned;
}

void ThreadPool::parallel_for(std::size_t n, const std::function<void(std::size_t)>& task) {
  State& state = *state_;
  if (n <= 1 || state.threads.empty() || inside_task) {
    for (std::size_t i = 0; i < n; ++i) task(i);
    return;
  }
  // Who waits here is in no task of any pool, so no loop that is running waits for this thread's.
  const std::lock_guard busy(state.busy);
  Loop loop{.task = &task, .n = n, .next = {}, .error_mutex = {}, .error = nullptr};
  {
    const std::lock_guard lock(state.mutex);
    state.loop = &loop;
    state.generation.fetch_add(1, std::memory_order_release);
  }
  state.wake.notify_all();
  loop.work();
  {
    const std::lock_guard lock(state.mutex);
    state.loop = nullptr;  // nobody joins from here on
  }
  for (int i = 0; i < state.spins && state.helpers.load(std::memory_order_acquire) != 0; ++i) pause();
  {
    std::unique_lock lock(state.mutex);
    state.finished.wait(lock, [&] { return state.helpers.load(std::memory_order_relaxed) == 0; });
  }
  if (loop.error) std::rethrow_exception(loop.error);
}

ThreadPool& ThreadPool::shared() {
  static ThreadPool pool;
  return pool;
}

}  // namespace tandem
