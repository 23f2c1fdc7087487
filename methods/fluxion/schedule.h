// Who attends to which retrieval group (Fluxion, section 6): the order and the sides of a batch's tasks under each
// policy, and a model of the time that a policy takes, with bounds to hold it against.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem {

/// `priority`: one queue, the largest volume first; each worker takes the next task when it is done with its last.
/// The others assign before anything runs: all to the CPU; a share of the tasks, by their number; a share of the
/// sequences' host tokens.
enum class SchedulePolicy : std::uint8_t { cpu_only, uniform, length, priority };

struct ScheduleTask {
  double volume = 0;         // V(blk*) of Eq. 3
  std::uint32_t length = 0;  // host tokens of its sequence
};

inline constexpr std::uint8_t kCpuBit = 1, kDeviceBit = 2;

struct ScheduleEntry {
  std::uint32_t task = 0;
  std::uint8_t workers = kCpuBit;  // who may take it
};

/// All tasks, in the order in which they are taken. `cpu_share`: of `uniform` and `length`, what the CPU gets. Ties
/// keep the order of `tasks`.
std::vector<ScheduleEntry> schedule(SchedulePolicy policy, std::span<const ScheduleTask> tasks, double cpu_share);

/// Times of the tasks on either kind of worker. Workers of a kind are identical.
struct Makespan {
  std::vector<double> cpu, device;  // [task]
  std::uint32_t cpu_workers = 1, device_workers = 1;
};

/// When the last task ends, where each worker takes its next task when it is free; of equals the CPU's first worker
/// takes first. With `work` of each task and the `pace` of CPU and device, guarded (TaskQueue): neither side takes a
/// task that it would end later than the other would end all that is left, by these estimates.
double makespan(const Makespan& times, std::span<const ScheduleEntry> order, std::span<const std::uint64_t> work = {},
                std::array<double, 2> pace = {1, 1});

/// No assignment, even of parts of tasks, ends earlier: the linear program's optimum, and the longest task on its
/// faster worker.
double lower_bound(const Makespan& times);

/// The least makespan of any assignment, by trying them all: at most 14 tasks.
double optimal_makespan(const Makespan& times);

}  // namespace tandem
