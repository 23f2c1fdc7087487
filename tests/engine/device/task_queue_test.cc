// Nothing is lost and nothing is taken twice, whatever threads pull and whenever.
#include "engine/device/task_queue.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <thread>

namespace tandem {
namespace {

TEST(TaskQueue, APullerTakesTheFirstTaskLeftThatIsItsOwn) {
  TaskQueue queue({3, 2, 1, 3});
  EXPECT_EQ(queue.pull(0), 0u);
  EXPECT_EQ(queue.pull(0), 2u);
  EXPECT_EQ(queue.pull(1), 1u);
  EXPECT_EQ(queue.pull(1), 3u);
  EXPECT_EQ(queue.pull(0), std::nullopt);
  EXPECT_EQ(queue.pull(1), std::nullopt);
  EXPECT_EQ(TaskQueue({}).pull(0), std::nullopt);
}

#if defined(__SANITIZE_THREAD__)
constexpr int kSchedules = 20000;  // a tenth of the speed
#else
constexpr int kSchedules = 100000;
#endif

/// Random queues, each emptied by three threads that start together: two of puller 0, one of puller 1. How far each
/// gets before it lets the others run is random too.
TEST(TaskQueue, RandomSchedulesOnThreadsLoseAndRepeatNothing) {
  struct Round {
    std::unique_ptr<TaskQueue> queue;
    std::vector<std::uint8_t> allowed;
    std::array<std::vector<std::uint32_t>, 3> got;
  };
  std::mt19937 random(7);
  constexpr int kBatch = 500;
  std::uint64_t mixed = 0;
  for (int done = 0; done < kSchedules; done += kBatch) {
    std::vector<Round> rounds(kBatch);
    for (Round& round : rounds) {
      round.allowed.resize(random() % 24);
      for (std::uint8_t& bits : round.allowed) bits = static_cast<std::uint8_t>(1 + random() % 3);
      round.queue = std::make_unique<TaskQueue>(round.allowed);
    }
    std::atomic<int> ready = 0;
    const auto work = [&](std::size_t thread, std::uint32_t puller, unsigned seed) {
      std::mt19937 pace(seed);
      ++ready;
      while (ready < 3) std::this_thread::yield();
      for (Round& round : rounds) {
        while (const auto task = round.queue->pull(puller)) {
          round.got[thread].push_back(*task);
          if (pace() % 8 == 0) std::this_thread::yield();
        }
      }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(work, 0, 0, random());
    threads.emplace_back(work, 1, 0, random());
    threads.emplace_back(work, 2, 1, random());
    for (std::thread& thread : threads) thread.join();
    for (const Round& round : rounds) {
      std::vector<int> taken(round.allowed.size());
      for (std::size_t thread = 0; thread < 3; ++thread) {
        for (std::size_t i = 0; i < round.got[thread].size(); ++i) {
          const std::uint32_t task = round.got[thread][i];
          ASSERT_LT(task, round.allowed.size());
          ++taken[task];
          ASSERT_NE(round.allowed[task] & (thread == 2 ? 2 : 1), 0);
          if (i == 0) continue;
          ASSERT_LT(round.got[thread][i - 1], task);  // in the queue's order
        }
      }
      ASSERT_EQ(taken, std::vector<int>(round.allowed.size(), 1));
      mixed += !round.got[0].empty() && !round.got[2].empty() ? 1 : 0;
    }
  }
  EXPECT_GT(mixed, 0u);
}

}  // namespace
}  // namespace tandem
