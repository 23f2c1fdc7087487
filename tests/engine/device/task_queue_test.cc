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

TEST(TaskQueue, APullerLeavesWhatAnotherWouldEndBefore) {
  // Puller 1 is ten times slower: it takes a task of at most a tenth of what is left.
  const auto guarded = [] { return TaskQueue({3, 3, 3, 3, 3, 2}, {50, 20, 12, 10, 5, 3}, {1, 10}); };
  {
    TaskQueue queue = guarded();
    EXPECT_EQ(queue.pull(1), 3u);  // 100 of 100
    EXPECT_EQ(queue.pull(1), 4u);  // 50 of 90
    EXPECT_EQ(queue.pull(1), 5u);  // nobody else may
    EXPECT_EQ(queue.pull(1), std::nullopt);
    for (const std::uint32_t task : {0u, 1u, 2u}) EXPECT_EQ(queue.pull(0), task);
    EXPECT_EQ(queue.pull(0), std::nullopt);
  }
  {
    TaskQueue queue = guarded();
    for (const std::uint32_t task : {0u, 1u, 2u}) EXPECT_EQ(queue.pull(0), task);
    EXPECT_EQ(queue.pull(1), 5u);  // neither 10 nor 5 of the 18 that are left
    for (const std::uint32_t task : {3u, 4u}) EXPECT_EQ(queue.pull(0), task);
  }
  TaskQueue equals({3, 3}, {5, 5}, {1, 1});  // no more is in a task than is left
  EXPECT_EQ(equals.pull(1), 0u);
  EXPECT_EQ(equals.pull(1), 1u);
}

constexpr int kSchedules = 100000, kBatch = 2500;

/// What the three threads of a batch share: they pass through its queues in turn, each when it comes.
struct Round {
  std::unique_ptr<TaskQueue> queue;
  std::vector<std::uint8_t> allowed;
  std::array<std::vector<std::uint32_t>, 3> got;
};

std::vector<Round> random_rounds(std::mt19937& random) {
  std::vector<Round> rounds(kBatch);
  for (Round& round : rounds) {
    // Few tasks: what races is the first and the last ones.
    round.allowed.resize(random() % 8);
    for (std::uint8_t& bits : round.allowed) bits = static_cast<std::uint8_t>(1 + random() % 3);
    if (random() % 2 == 0) {
      round.queue = std::make_unique<TaskQueue>(round.allowed);
      continue;
    }
    std::vector<std::uint64_t> work(round.allowed.size());
    for (std::uint64_t& w : work) w = 1 + random() % 100;
    round.queue =
        std::make_unique<TaskQueue>(round.allowed, std::move(work), std::vector<double>{1, double(1 + random() % 20)});
  }
  return rounds;
}

void empty_in_turn(std::vector<Round>& rounds, std::size_t thread, std::uint32_t puller, unsigned seed,
                   std::atomic<int>& ready) {
  std::minstd_rand pace(seed);
  ++ready;
  while (ready < 3) std::this_thread::yield();
  for (Round& round : rounds) {
    round.got[thread].reserve(round.allowed.size());
    while (const auto task = round.queue->pull(puller)) {
      round.got[thread].push_back(*task);
      if (pace() / 64 % 32 == 0) std::this_thread::yield();
    }
  }
}

/// Random queues, guarded ones too, each emptied by three threads that start together: two of puller 0, one of
/// puller 1. How far each gets before it lets the others run is random too.
TEST(TaskQueue, RandomSchedulesOnThreadsLoseAndRepeatNothing) {
  std::mt19937 random(7);
  std::uint64_t mixed = 0, wrong = 0;
  for (int done = 0; done < kSchedules; done += kBatch) {
    std::vector<Round> rounds = random_rounds(random);
    std::atomic<int> ready = 0;
    std::vector<std::thread> threads;
    for (std::uint32_t t = 0; t < 3; ++t) {
      const auto seed = static_cast<unsigned>(random());
      threads.emplace_back([&rounds, &ready, t, seed] { empty_in_turn(rounds, t, t == 2 ? 1 : 0, seed, ready); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Round& round : rounds) {
      std::array<std::uint8_t, 8> taken{};
      for (std::size_t thread = 0; thread < 3; ++thread) {
        const std::vector<std::uint32_t>& got = round.got[thread];
        for (std::size_t i = 0; i < got.size(); ++i) {
          ASSERT_LT(got[i], round.allowed.size());
          ++taken[got[i]];
          wrong += (round.allowed[got[i]] & (thread == 2 ? 2 : 1)) == 0 ? 1 : 0;
          wrong += i > 0 && got[i - 1] >= got[i] ? 1 : 0;  // in the queue's order
        }
      }
      for (std::size_t i = 0; i < round.allowed.size(); ++i) wrong += taken[i] == 1 ? 0 : 1;
      mixed += !round.got[0].empty() && !round.got[2].empty() ? 1 : 0;
    }
    ASSERT_EQ(wrong, 0u);
  }
  EXPECT_GT(mixed, 0u);
}

}  // namespace
}  // namespace tandem
