// Fluxion's schedules in a pure model: two kinds of workers, bounds, and what priority is worth on mixed lengths.
#include "methods/fluxion/schedule.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <random>

#include "methods/fluxion/selector.h"

namespace tandem {
namespace {

TEST(FluxionSchedule, PoliciesOrderAndAssign) {
  const std::vector<ScheduleTask> tasks = {{10, 100}, {30, 300}, {30, 100}, {20, 300}, {5, 200}};
  const auto names = [&](SchedulePolicy policy, double share) {
    std::string text;
    for (const ScheduleEntry& e : schedule(policy, tasks, share))
      text += std::to_string(e.task) + (e.workers == kCpuBit ? "c" : e.workers == kDeviceBit ? "d" : "*") + " ";
    return text;
  };
  EXPECT_EQ(names(SchedulePolicy::cpu_only, 0.5), "0c 1c 2c 3c 4c ");
  EXPECT_EQ(names(SchedulePolicy::priority, 0.5), "1* 2* 3* 0* 4* ");  // equal volumes keep their order
  EXPECT_EQ(names(SchedulePolicy::uniform, 1), "0c 1c 2c 3c 4c ");
  EXPECT_EQ(names(SchedulePolicy::uniform, 0), "0d 1d 2d 3d 4d ");
  EXPECT_EQ(names(SchedulePolicy::uniform, 0.5), "0c 1d 2c 3d 4c ");
  EXPECT_EQ(names(SchedulePolicy::length, 0.5), "0c 1d 2c 3c 4d ");  // 500 of 1000 host tokens to the CPU
}

TEST(FluxionSchedule, SharesComeOutAsAsked) {
  std::mt19937 random(3);
  std::vector<ScheduleTask> tasks(400);
  for (ScheduleTask& t : tasks) t = {1, static_cast<std::uint32_t>(1000 + random() % 9000)};
  for (const double share : {0.1, 0.37, 0.7}) {
    double count = 0, tokens = 0, all = 0;
    for (const ScheduleEntry& e : schedule(SchedulePolicy::uniform, tasks, share)) count += e.workers == kCpuBit;
    for (const ScheduleEntry& e : schedule(SchedulePolicy::length, tasks, share)) {
      all += tasks[e.task].length;
      tokens += e.workers == kCpuBit ? tasks[e.task].length : 0;
    }
    EXPECT_NEAR(count / 400, share, 1.0 / 400);
    EXPECT_NEAR(tokens / all, share, 10000 / all);
  }
}

TEST(FluxionSchedule, LargestFirstOnIdenticalWorkersIsWithinFourThirdsOfTheOptimum) {
  std::mt19937 random(5);
  double worst = 1;
  for (int i = 0; i < 300; ++i) {
    Makespan times;
    times.cpu_workers = static_cast<std::uint32_t>(2 + random() % 3);
    times.device_workers = 0;
    std::vector<ScheduleTask> tasks(3 + random() % 8);
    for (ScheduleTask& t : tasks) {
      t.volume = static_cast<double>(1 + random() % 40);
      times.cpu.push_back(t.volume);
    }
    times.device = times.cpu;
    const double lpt = makespan(times, schedule(SchedulePolicy::priority, tasks, 0));
    const double optimum = optimal_makespan(times);
    const double m = times.cpu_workers;
    EXPECT_LE(lpt, (4.0 / 3 - 1 / (3 * m)) * optimum + 1e-9);
    EXPECT_LE(lower_bound(times), optimum + 1e-9);
    // A guard knows nothing better among equals.
    std::vector<std::uint64_t> work;
    for (const ScheduleTask& t : tasks) work.push_back(static_cast<std::uint64_t>(t.volume));
    EXPECT_EQ(makespan(times, schedule(SchedulePolicy::priority, tasks, 0), work), lpt);
    worst = std::max(worst, lpt / optimum);
  }
  EXPECT_GT(worst, 1.05);  // the cases are hard enough for largest first to miss the optimum
  // Graham's own worst case for two workers: 7/6 of the optimum.
  Makespan graham{{3, 3, 2, 2, 2}, {3, 3, 2, 2, 2}, 2, 0};
  std::vector<ScheduleTask> tasks;
  for (const double t : graham.cpu) tasks.push_back({t, 1});
  EXPECT_EQ(makespan(graham, schedule(SchedulePolicy::priority, tasks, 0)), 7);
  EXPECT_EQ(optimal_makespan(graham), 6);
}

TEST(FluxionSchedule, NoAssignmentBeatsTheBound) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    Makespan times;
    times.cpu_workers = static_cast<std::uint32_t>(1 + random() % 2);
    const std::size_t n = 1 + random() % 8;
    double total_cpu = 0;
    for (std::size_t t = 0; t < n; ++t) {
      times.cpu.push_back(static_cast<double>(1 + random() % 30));
      times.device.push_back(static_cast<double>(1 + random() % 30));
      total_cpu += times.cpu.back();
    }
    const double bound = lower_bound(times), optimum = optimal_makespan(times);
    EXPECT_LE(bound, optimum + 1e-9);
    EXPECT_GT(bound, 0);
    EXPECT_LE(optimum, total_cpu);
  }
  // Two equal tasks, one worker of each kind, the device twice as slow: parts of tasks would end at 4/3.
  EXPECT_NEAR(lower_bound({{1, 1}, {2, 2}, 1, 1}), 4.0 / 3, 1e-12);
  EXPECT_NEAR(optimal_makespan({{1, 1}, {2, 2}, 1, 1}), 2, 1e-12);
}

/// Mean and half width of the 95 % interval of a paired difference.
std::pair<double, double> paired(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  double mean = 0, square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) mean += (a[i] - b[i]) / n;
  for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i] - mean) * (a[i] - b[i] - mean);
  return {mean, 2.093 * std::sqrt(square / (n - 1) / n)};  // t of 19 degrees of freedom
}

/// The paper's mixed batches: 8 sequences of lengths U(16K, 64K), 8 KV heads each, head properties that vary. A task's
/// time on either worker is its volume with a long tail that nobody can predict.
struct MixedBatch {
  std::vector<ScheduleTask> tasks;
  std::vector<std::uint64_t> work;
  Makespan times;
};

MixedBatch mixed_batch(unsigned seed, double cpu_ns, double device_ns) {
  MixedBatch batch;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> length(16384, 65536), noise(0, 1);
  for (int sequence = 0; sequence < 8; ++sequence) {
    const auto tokens = static_cast<std::uint32_t>(length(random));
    for (int group = 0; group < 8; ++group) {
      std::vector<HeadProperties> heads(4);
      for (HeadProperties& head : heads) {
        const double skewed = noise(random);
        head = {static_cast<float>(0.1 * skewed * skewed * skewed), static_cast<float>(0.01 * noise(random)),
                noise(random) < 0.6};
      }
      const GroupChoice choice = choose_granularity(heads, tokens, SelectorStage::skip);
      if (!choice.retrieval) continue;
      batch.tasks.push_back({choice.volume, tokens});
      batch.work.push_back(static_cast<std::uint64_t>(choice.volume));
      const double tail = 0.8 - 0.2 * std::log(1 - noise(random));  // the union of what heads choose, and the memory
      batch.times.cpu.push_back(choice.volume * tail * cpu_ns);
      batch.times.device.push_back(choice.volume * tail * device_ns);
    }
  }
  return batch;
}

TEST(FluxionSchedule, PriorityIsFasterOnMixedLengths) {
  constexpr double kCpuNs = 1, kDeviceNs = 57.0 / 25;     // host memory at 57 GB/s, the link at 25
  const double share = kDeviceNs / (kCpuNs + kDeviceNs);  // both sides end together
  std::vector<double> by_policy[4];
  for (unsigned seed = 0; seed < 20; ++seed) {
    const MixedBatch batch = mixed_batch(seed, kCpuNs, kDeviceNs);
    for (const SchedulePolicy policy :
         {SchedulePolicy::cpu_only, SchedulePolicy::uniform, SchedulePolicy::length, SchedulePolicy::priority}) {
      const double span = makespan(batch.times, schedule(policy, batch.tasks, share));
      EXPECT_GE(span, lower_bound(batch.times) - 1e-6);
      by_policy[static_cast<int>(policy)].push_back(span / lower_bound(batch.times));
    }
  }
  const std::vector<double>& priority = by_policy[3];
  const char* names[] = {"cpu-only", "uniform", "length", "priority"};
  for (int p = 0; p < 4; ++p) {
    const auto [mean, half] = paired(by_policy[p], priority);
    std::printf("%s: %.4f of the bound; longer than priority by %.4f +- %.4f\n", names[p],
                std::accumulate(by_policy[p].begin(), by_policy[p].end(), 0.0) / 20, mean, half);
    if (p == 3) continue;
    EXPECT_GT(mean - half, 0) << names[p];  // the whole interval
  }
  EXPECT_LT(*std::max_element(priority.begin(), priority.end()), 1.1);
}

/// Without a guard the slow side takes the largest task and ends long after everything else. What the guard believes of
/// the two sides' rates may be off by half or twice.
TEST(FluxionSchedule, AGuardKeepsTheLargestTasksFromASideThatIsManyTimesSlower) {
  for (const double ratio : {1.0, 2.28, 5.0, 10.0, 20.0, 50.0, 200.0}) {
    double greedy = 0, guarded[3] = {0, 0, 0};
    constexpr double kBelieved[3] = {1, 0.5, 2};  // times the true ratio
    for (unsigned seed = 0; seed < 20; ++seed) {
      const MixedBatch batch = mixed_batch(seed, 1, ratio);
      const auto order = schedule(SchedulePolicy::priority, batch.tasks, 0);
      const double bound = lower_bound(batch.times);
      greedy += makespan(batch.times, order) / bound / 20;
      for (int i = 0; i < 3; ++i)
        guarded[i] += makespan(batch.times, order, batch.work, {1, ratio * kBelieved[i]}) / bound / 20;
    }
    std::printf("one side %g times slower: %.4f of the bound; guarded %.4f, believing half of it %.4f, twice %.4f\n",
                ratio, greedy, guarded[0], guarded[1], guarded[2]);
    EXPECT_LE(guarded[0], greedy + 0.001) << ratio;
    EXPECT_LT(guarded[0], 1.1) << ratio;
    if (ratio < 50) continue;
    for (const double g : guarded) EXPECT_LT(g, greedy - 0.5) << ratio;
  }
}

}  // namespace
}  // namespace tandem
