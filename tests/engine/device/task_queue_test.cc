// Nothing is lost and nothing is taken twice, whatever threads pull and whenever.
#include "engine/device/task_queue.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
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

TEST(TaskQueue, OneOfSeveralWorkersNeedsAsLongForATaskAsAllForThatMany) {
  // Four workers of puller 0 do a unit in 1 together, so one does in 4; puller 1 does in 2.
  TaskQueue queue({3, 3, 3}, {10, 10, 4}, {1, 2}, {4, 1});
  EXPECT_EQ(queue.pull(0), 0u);  // 40 of the other one's 48
  EXPECT_EQ(queue.pull(0), 2u);  // not 40 of 28, but 16
  EXPECT_EQ(queue.pull(0), std::nullopt);
  EXPECT_EQ(queue.pull(1), 1u);  // in 20, although four would do it in 10: none of them in less than 40
  EXPECT_EQ(queue.pull(1), std::nullopt);
}

constexpr int kTogether = 10;
/// TANDEM_QUEUE_SCHEDULES=100000 asks for more than a quick run has, for the thread sanitizer say.
int schedules() {
  const char* asked = std::getenv("TANDEM_QUEUE_SCHEDULES");
  return std::max(asked == nullptr ? 0 : std::atoi(asked), 5000);
}
constexpr std::size_t kThreads = 3;

/// What the threads share: queues that they begin together and pass through in turn.
struct Round {
  std::unique_ptr<TaskQueue> queue;
  std::vector<std::uint8_t> allowed;
  std::array<std::vector<std::uint32_t>, kThreads> got;
};

Round random_round(std::mt19937& random) {
  Round round;
  round.allowed.resize(random() % 32);
  for (std::uint8_t& bits : round.allowed) bits = static_cast<std::uint8_t>(1 + random() % 3);
  if (random() % 2 == 0) {
    round.queue = std::make_unique<TaskQueue>(round.allowed);
  } else {
    std::vector<std::uint64_t> work(round.allowed.size());
    for (std::uint64_t& w : work) w = 1 + random() % 100;
    std::vector<double> time = {1, double(1 + random() % 20)};
    std::vector<std::uint32_t> workers = {static_cast<std::uint32_t>(1 + random() % 8), 1};
    round.queue = std::make_unique<TaskQueue>(round.allowed, std::move(work), std::move(time), std::move(workers));
  }
  for (std::vector<std::uint32_t>& got : round.got) got.reserve(round.allowed.size());
  return round;
}

/// Threads wait here for each other, so that none has emptied a queue before the others come.
class Gate {
 public:
  void pass() {
    const std::size_t turn = turn_.load();
    if (++arrived_ == kThreads) {
      arrived_ = 0;
      ++turn_;
      return;
    }
    while (turn_.load() == turn) std::this_thread::yield();
  }

 private:
  std::atomic<std::size_t> arrived_ = 0, turn_ = 0;
};

void empty_in_turn(std::vector<Round>& rounds, std::size_t thread, std::uint32_t puller, unsigned seed, Gate& gate) {
  std::minstd_rand pace(seed);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    if (i % kTogether == 0) gate.pass();
    while (const auto task = rounds[i].queue->pull(puller)) {
      rounds[i].got[thread].push_back(*task);
      if (pace() / 64 % 32 == 0) std::this_thread::yield();
    }
  }
}

/// Whether a thread took tasks both before and after another one's: they were at work at the same time.
bool interleaved(const Round& round) {
  for (const std::vector<std::uint32_t>& a : round.got) {
    for (const std::vector<std::uint32_t>& b : round.got) {
      if (&a == &b || a.empty()) continue;
      for (const std::uint32_t task : b) {
        if (a.front() < task && task < a.back() && round.allowed[task] == 3) return true;
      }
    }
  }
  return false;
}

/// Random queues, guarded ones too, each emptied by three threads: two of puller 0, one of puller 1. How far each gets
/// before it lets the others run is random too.
TEST(TaskQueue, RandomSchedulesOnThreadsLoseAndRepeatNothing) {
  std::mt19937 random(7);
  std::vector<Round> rounds;
  const int count = schedules();
  rounds.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) rounds.push_back(random_round(random));
  Gate gate;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (std::uint32_t t = 0; t < kThreads; ++t) {
    const auto seed = static_cast<unsigned>(random());
    threads.emplace_back([&rounds, &gate, t, seed] { empty_in_turn(rounds, t, t == 2 ? 1 : 0, seed, gate); });
  }
  for (std::thread& thread : threads) thread.join();
  std::uint64_t raced = 0, mixed = 0, wrong = 0;
  for (const Round& round : rounds) {
    std::array<std::uint8_t, 32> taken{};
    for (std::size_t thread = 0; thread < kThreads; ++thread) {
      const std::vector<std::uint32_t>& got = round.got[thread];
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_LT(got[i], round.allowed.size());
        ++taken[got[i]];
        wrong += (round.allowed[got[i]] & (thread == 2 ? 2 : 1)) == 0 ? 1 : 0;
        wrong += i > 0 && got[i - 1] >= got[i] ? 1 : 0;  // in the queue's order
      }
    }
    for (std::size_t i = 0; i < round.allowed.size(); ++i) wrong += taken[i] == 1 ? 0 : 1;
    raced += interleaved(round) ? 1 : 0;
    mixed += !round.got[2].empty() && (!round.got[0].empty() || !round.got[1].empty()) ? 1 : 0;
  }
  EXPECT_EQ(wrong, 0u);
  // Were the queues emptied one thread after the other, none would be; in turns on a single core, hundreds are.
  EXPECT_GT(raced, 100u);
  EXPECT_GT(mixed, 100u);
  RecordProperty("schedules", count);
  RecordProperty("raced", static_cast<int>(raced));
}

}  // namespace
}  // namespace tandem
