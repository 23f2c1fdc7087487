#include "methods/fluxion/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/common/error.h"
#include "engine/device/task_queue.h"

namespace tandem {
namespace {

/// Time of worker w on a task; CPU workers come first.
double time_on(const Makespan& times, std::uint32_t worker, std::size_t task) {
  return worker < times.cpu_workers ? times.cpu[task] : times.device[task];
}

}  // namespace

std::vector<ScheduleEntry> schedule(SchedulePolicy policy, std::span<const ScheduleTask> tasks, double cpu_share) {
  std::vector<ScheduleEntry> order(tasks.size());
  for (std::uint32_t i = 0; i < tasks.size(); ++i) order[i].task = i;
  if (policy == SchedulePolicy::cpu_only) return order;
  if (policy == SchedulePolicy::priority) {
    for (ScheduleEntry& entry : order) entry.workers = kCpuBit | kDeviceBit;
    std::stable_sort(order.begin(), order.end(), [&](const ScheduleEntry& a, const ScheduleEntry& b) {
      return tasks[a.task].volume > tasks[b.task].volume;
    });
    return order;
  }
  // Task i goes to the CPU where its part of the whole brings the CPU's part nearer to its share: the two kinds of
  // tasks are spread over the order, whatever it is.
  double given = 0, seen = 0;
  for (ScheduleEntry& entry : order) {
    const double part = policy == SchedulePolicy::uniform ? 1.0 : tasks[entry.task].length;
    seen += part;
    const bool to_cpu = std::abs(given + part - cpu_share * seen) <= std::abs(given - cpu_share * seen);
    entry.workers = to_cpu ? kCpuBit : kDeviceBit;
    if (to_cpu) given += part;
  }
  return order;
}

double makespan(const Makespan& times, std::span<const ScheduleEntry> order, std::span<const std::uint64_t> work,
                std::array<double, 2> pace) {
  std::vector<std::uint8_t> allowed;
  std::vector<std::uint64_t> ordered;
  allowed.reserve(order.size());
  for (const ScheduleEntry& entry : order) {
    allowed.push_back(entry.workers);
    if (!work.empty()) ordered.push_back(work[entry.task]);
  }
  TaskQueue queue(std::move(allowed), std::move(ordered), {pace.begin(), pace.end()});
  std::vector<double> free(times.cpu_workers + times.device_workers);
  std::vector<bool> done(free.size());
  double end = 0;
  while (true) {
    std::size_t first = free.size();
    for (std::size_t w = 0; w < free.size(); ++w) {
      if (!done[w] && (first == free.size() || free[w] < free[first])) first = w;
    }
    if (first == free.size()) return end;
    const auto entry = queue.pull(first < times.cpu_workers ? 0 : 1);
    if (!entry) {
      done[first] = true;
      continue;
    }
    free[first] += time_on(times, static_cast<std::uint32_t>(first), order[*entry].task);
    end = std::max(end, free[first]);
  }
}

double lower_bound(const Makespan& times) {
  const std::size_t n = times.cpu.size();
  double longest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double best = std::numeric_limits<double>::infinity();
    if (times.cpu_workers > 0) best = times.cpu[i];
    if (times.device_workers > 0) best = std::min(best, times.device[i]);
    longest = std::max(longest, best);
  }
  const double total = std::accumulate(times.cpu.begin(), times.cpu.end(), 0.0);
  if (times.device_workers == 0) return std::max(longest, total / times.cpu_workers);
  if (times.cpu_workers == 0)
    return std::max(longest, std::accumulate(times.device.begin(), times.device.end(), 0.0) / times.device_workers);
  // Two kinds: the optimum gives the CPU those tasks that it is best at, and splits one. Both kinds end together.
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return times.cpu[a] * times.device[b] < times.cpu[b] * times.device[a];
  });
  double cpu = 0, device = std::accumulate(times.device.begin(), times.device.end(), 0.0);
  for (const std::size_t i : order) {
    const double c = times.cpu[i] / times.cpu_workers, d = times.device[i] / times.device_workers;
    const double left = device / times.device_workers;
    if (cpu + c >= left - d) {  // a share x of this task on the CPU: cpu + x c = left - x d
      const double x = std::clamp((left - cpu) / (c + d), 0.0, 1.0);
      return std::max(longest, std::max(cpu + x * c, left - x * d));
    }
    cpu += c;
    device -= times.device[i];
  }
  return std::max(longest, cpu);
}

double optimal_makespan(const Makespan& times) {
  TANDEM_CHECK(times.cpu.size() <= 14, "{} tasks are too many to try all assignments", times.cpu.size());
  std::vector<double> load(times.cpu_workers + times.device_workers);
  double best = std::numeric_limits<double>::infinity();
  const auto place = [&](const auto& self, std::size_t task) -> void {
    const double now = *std::max_element(load.begin(), load.end());
    if (now >= best) return;
    if (task == times.cpu.size()) {
      best = now;
      return;
    }
    for (std::uint32_t w = 0; w < load.size(); ++w) {
      const bool first_cpu = w == 0, first_device = w == times.cpu_workers;
      if (!first_cpu && !first_device && load[w] == load[w - 1]) continue;  // an identical worker has been tried
      load[w] += time_on(times, w, task);
      self(self, task + 1);
      load[w] -= time_on(times, w, task);
    }
  };
  place(place, 0);
  return best;
}

}  // namespace tandem
