#include "engine/kernels/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <sched.h>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/common/error.h"

namespace tandem {
namespace {

TEST(ThreadPool, CallsEachIndexOnce) {
  for (const unsigned threads : {1u, 2u, 3u, 7u}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::size_t n : {0u, 1u, 2u, 5u, 100u, 1000u}) {
      std::vector<int> calls(n, 0);
      pool.parallel_for(n, [&](std::size_t i) { ++calls[i]; });
      EXPECT_EQ(calls, std::vector<int>(n, 1));
    }
  }
}

TEST(ThreadPool, WorksAgainAfterItsThreadsWentToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> count{0};
    pool.parallel_for(50, [&](std::size_t) { ++count; });
    EXPECT_EQ(count, 50);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPool, UsesSeveralThreads) {
  ThreadPool pool(2);
  std::atomic<int> inside{0};
  // Neither index can finish before both have begun, which takes two threads.
  pool.parallel_for(2, [&](std::size_t) {
    ++inside;
    while (inside < 2) std::this_thread::yield();
  });
  EXPECT_EQ(inside, 2);
}

TEST(ThreadPool, WritesOfTasksAreSeenAfterTheLoop) {
  ThreadPool pool(3);
  std::vector<std::uint64_t> values(64);
  for (std::uint64_t round = 1; round <= 500; ++round) {
    pool.parallel_for(values.size(), [&](std::size_t i) { values[i] += i + round; });
    ASSERT_EQ(values[63], 63 * round + round * (round + 1) / 2);
  }
}

TEST(ThreadPool, AnExceptionReachesTheCaller) {
  for (const unsigned threads : {1u, 3u}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 20; ++round) {
      try {
        pool.parallel_for(100, [](std::size_t i) {
          if (i == 17) throw std::runtime_error("seventeen");
        });
        FAIL() << "nothing was thrown";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "seventeen");
      }
    }
    std::atomic<int> count{0};
    pool.parallel_for(10, [&](std::size_t) { ++count; });
    EXPECT_EQ(count, 10);
  }
}

TEST(ThreadPool, ANestedLoopRunsOnItsOwnThread) {
  ThreadPool pool(3);
  std::atomic<int> count{0};
  std::atomic<bool> same_thread{true};
  pool.parallel_for(8, [&](std::size_t) {
    const std::thread::id outer = std::this_thread::get_id();
    pool.parallel_for(8, [&](std::size_t) {
      if (std::this_thread::get_id() != outer) same_thread = false;
      ++count;
    });
  });
  EXPECT_EQ(count, 64);
  EXPECT_TRUE(same_thread);
}

TEST(ThreadPool, ServesSeveralCallersAtOnce) {
  ThreadPool pool(2);
  std::atomic<std::size_t> count{0};
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 4; ++c)
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) pool.parallel_for(20, [&](std::size_t) { ++count; });
      });
  }
  EXPECT_EQ(count, 4u * 50u * 20u);
}

TEST(ThreadPool, ALoopWaitsForAnotherThreadsAndThenHasAllThreads) {
  ThreadPool pool(3);
  std::atomic<int> running{0};
  std::atomic<bool> asked{false};
  std::jthread first([&] {
    pool.parallel_for(2, [&](std::size_t) {
      ++running;
      while (!asked) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    });
  });
  while (running < 2) std::this_thread::yield();
  asked = true;
  // None of the three can finish before all have begun, each on a thread of its own.
  std::atomic<int> inside{0}, missed{0};
  pool.parallel_for(3, [&](std::size_t) {
    ++inside;
    const auto begin = std::chrono::steady_clock::now();
    while (inside < 3) {
      std::this_thread::yield();
      if (std::chrono::steady_clock::now() - begin < std::chrono::seconds(5)) continue;
      ++missed;
      break;
    }
  });
  EXPECT_EQ(missed, 0);
  first.join();
}

// Loops of two pools inside each other, from several threads: whoever waits for a pool holds none.
TEST(ThreadPool, NestedLoopsOfTwoPoolsNeverWaitForEachOther) {
  ThreadPool a(3), b(2);
  std::atomic<std::size_t> count{0};
  {
    std::vector<std::jthread> callers;
    for (int c = 0; c < 4; ++c)
      callers.emplace_back([&, c] {
        ThreadPool &outer = c % 2 == 0 ? a : b, &inner = c % 2 == 0 ? b : a;
        for (int round = 0; round < 100; ++round) {
          outer.parallel_for(4, [&](std::size_t i) {
            inner.parallel_for(3, [&](std::size_t) { ++count; });
            outer.parallel_for(i, [&](std::size_t) { ++count; });
          });
        }
      });
  }
  EXPECT_EQ(count, 4u * 100u * (4u * 3u + 0u + 1u + 2u + 3u));
}

TEST(ThreadPool, UsableThreadsFollowTheAffinityMask) {
  EXPECT_GE(usable_threads(), 1u);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(usable_threads(), static_cast<unsigned>(CPU_COUNT(&before)));
  std::jthread([&] {  // the mask of a thread of its own
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &before)) {
        CPU_SET(cpu, &one);
        break;
      }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_threads(), 1u);
  })
      .join();
}

// TANDEM_PIN while it lives.
class Pinning {
 public:
  explicit Pinning(const char* value) : before_(std::getenv("TANDEM_PIN") ? std::getenv("TANDEM_PIN") : "") {
    setenv("TANDEM_PIN", value, 1);
  }
  ~Pinning() { setenv("TANDEM_PIN", before_.c_str(), 1); }
  Pinning(const Pinning&) = delete;
  Pinning& operator=(const Pinning&) = delete;

 private:
  std::string before_;
};

cpu_set_t mask_here() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

// The masks of all threads of the pool, the caller's first.
std::vector<cpu_set_t> masks_of(ThreadPool& pool) {
  std::vector<cpu_set_t> masks(pool.size());
  std::atomic<unsigned> inside{0}, others{0};
  const std::thread::id caller = std::this_thread::get_id();
  pool.parallel_for(pool.size(), [&](std::size_t) {
    masks[std::this_thread::get_id() == caller ? 0 : 1 + others++] = mask_here();
    ++inside;
    while (inside < pool.size()) std::this_thread::yield();  // so that each thread takes one index
  });
  return masks;
}

TEST(ThreadPool, PinsOneThreadPerCpuWhereItUsesThemAll) {
  const Pinning on("1");
  const cpu_set_t before = mask_here();
  const auto cpus = static_cast<unsigned>(CPU_COUNT(&before));
  if (cpus < 2 || usable_threads() != cpus) GTEST_SKIP() << "needs two CPUs without a quota";
  ThreadPool pool(cpus);
  EXPECT_TRUE(pool.pinned());
  const std::vector<cpu_set_t> masks = masks_of(pool);
  EXPECT_TRUE(CPU_EQUAL(&masks[0], &before)) << "the caller's mask changed";
  cpu_set_t all;
  CPU_ZERO(&all);
  for (unsigned i = 1; i < cpus; ++i) {
    EXPECT_EQ(CPU_COUNT(&masks[i]), 1);
    CPU_OR(&all, &all, &masks[i]);
  }
  EXPECT_EQ(CPU_COUNT(&all), static_cast<int>(cpus) - 1) << "two threads share a CPU";
  pool.parallel_for(100, [&](std::size_t) { EXPECT_EQ(usable_threads(), cpus) << "seen from a pinned thread"; });
}

TEST(ThreadPool, LeavesSpareCpusToOthersAndPinsAllTheSame) {
  const Pinning on("1");
  const cpu_set_t before = mask_here();
  const auto cpus = static_cast<unsigned>(CPU_COUNT(&before));
  if (cpus < 3 || usable_threads() != cpus) GTEST_SKIP() << "needs three CPUs without a quota";
  ThreadPool pool(cpus - 1, 1);
  EXPECT_TRUE(pool.pinned());
  cpu_set_t all, free;
  CPU_ZERO(&all);
  for (const cpu_set_t& mask : masks_of(pool))
    if (CPU_COUNT(&mask) == 1) CPU_OR(&all, &all, &mask);
  EXPECT_EQ(CPU_COUNT(&all), static_cast<int>(cpus) - 2);
  CPU_XOR(&free, &before, &all);  // the first two: the caller's, and the spare one
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  EXPECT_TRUE(CPU_ISSET(first, &free));
  EXPECT_FALSE(ThreadPool(cpus, 1).pinned());  // which would leave none
}

TEST(ThreadPool, PinsNothingWithMoreThreadsThanCpusOrWhenToldNotTo) {
  const cpu_set_t before = mask_here();
  const auto cpus = static_cast<unsigned>(CPU_COUNT(&before));
  for (const char* wanted : {"1", "0"}) {
    const Pinning pinning(wanted);
    ThreadPool pool(*wanted == '1' ? cpus + 1 : cpus);
    EXPECT_FALSE(pool.pinned());
    for (const cpu_set_t& mask : masks_of(pool)) EXPECT_TRUE(CPU_EQUAL(&mask, &before));
  }
}

TEST(ThreadPool, RefusesAnUnknownPinning) {
  const Pinning typo("yes");
  try {
    ThreadPool pool(2);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(),
                 "The environment variable TANDEM_PIN is 'yes'; it can be 1 (threads stay on one CPU each) or 0.");
  }
}

TEST(ThreadPool, TheSharedPoolIsOne) {
  EXPECT_EQ(&ThreadPool::shared(), &ThreadPool::shared());
  EXPECT_EQ(ThreadPool::shared().size(), usable_threads());
}

}  // namespace
}  // namespace tandem
