// Several workers of the host that take tasks side by side: virtual times computed by hand, every task once.
#include <algorithm>
#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine/common/error.h"
#include "engine/device/emu_device.h"
#include "engine/device/sim_device.h"
#include "tests/engine/device/sim_test.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

std::vector<Puller> pullers_of(const Device& device, std::uint32_t workers) {
  std::vector<Puller> pullers;
  pullers.reserve(workers + 1);
  for (const LaneId lane : device.worker_lanes()) {
    if (pullers.size() < workers) pullers.push_back({lane, 0});
  }
  pullers.push_back({device.lane(LaneKind::device_compute), 1});
  return pullers;
}

/// Of two threads.
Op reading(const char* name, std::uint64_t bytes) {
  Op op;
  op.name = name;
  op.cost = {.work = Work::attention, .dram = bytes, .threads = 2};
  return op;
}

TEST(Workers, ShareWhatTheCpuReadsAndAreWokenOnce) {
  auto sim = make_sim_device(round_profile());
  static const char* const kNames[] = {"a", "b", "c"};
  QueuedTasks bag;
  bag.allowed = {1, 1, 1};
  bag.ops = [](std::uint32_t task, std::uint32_t) {
    constexpr std::array<std::uint64_t, 3> kBytes = {4000, 2000, 1000};
    return std::vector<Op>{reading(kNames[task], kBytes[task])};
  };
  const std::vector<Event> last = sim->submit_queued(pullers_of(*sim, 2), bag);
  EXPECT_EQ(sim->now(), 90);  // the last task is taken
  const Trace trace = sim->drain();
  // Two threads read 40 bytes a ns alone, two workers 25 each. Woken at 10, the second ends b at 90 and takes c, until
  // 130; a has 1,000 of its 4,000 bytes left then and reads them alone.
  EXPECT_EQ(find(trace, "a").start, 10);
  EXPECT_EQ(find(trace, "b").start, 10);
  EXPECT_EQ(find(trace, "b").end, 90);
  EXPECT_EQ(find(trace, "c").start, 90);
  EXPECT_EQ(find(trace, "c").end, 130);
  EXPECT_EQ(find(trace, "a").end, 155);
  EXPECT_NE(find(trace, "a").lane, find(trace, "b").lane);
  EXPECT_EQ(find(trace, "c").lane, find(trace, "b").lane);
  EXPECT_EQ(std::count_if(trace.records.begin(), trace.records.end(),
                          [](const TraceRecord& r) { return std::string(r.name) == "submit"; }),
            1);
  EXPECT_EQ(last[0].value, 1u);
  EXPECT_EQ(last[1].value, 2u);
  EXPECT_FALSE(last[2].valid());
}

TEST(Workers, ShareMemoryWithTheLink) {
  HardwareProfile profile = round_profile();
  profile.host.attention_efficiency = 1;
  profile.link.h2d_curve = {{1, 25}};
  auto sim = make_sim_device(profile);
  Op copy;
  copy.name = "copy";
  copy.kind = Kind::copy;
  copy.cost.h2d = 4000;
  sim->submit(sim->lane(LaneKind::h2d), copy);
  QueuedTasks bag;
  bag.allowed = {1, 1, 1};
  bag.ops = [](std::uint32_t, std::uint32_t) { return std::vector<Op>{reading("task", 4000)}; };
  sim->submit_queued(pullers_of(*sim, 3), bag);
  const Trace trace = sim->drain();
  // Launched at 100, the copy has the link alone for 10 ns. Three workers that read 40 bytes a ns each get a third of
  // memory's 100; with the link's 25 that is 125, so that all slow down to 4/5: 26.7 each and 20. The workers end after
  // 150 ns; of the copy's 4,000 bytes 750 are left then.
  for (const TraceRecord& r : trace.records) {
    if (std::string(r.name) != "task") continue;
    EXPECT_EQ(r.start, 110);
    EXPECT_EQ(r.end, 110 + 150);
  }
  EXPECT_EQ(find(trace, "copy").start, 100);
  EXPECT_EQ(find(trace, "copy").end, 260 + 30);
}

TEST(Workers, LeaveATaskThatOneOfThemWouldEndLater) {
  for (const bool real : {false, true}) {
    const auto device = real ? make_emu_device({}) : make_sim_device(round_profile());
    const HostBuffer taken = device->allocate_host(3, "taken by");
    std::atomic<bool> others_done = false;
    Op busy;
    busy.name = "busy";
    busy.body = [&, real](BodyContext&) {  // on `sim` it runs now, and the host's workers pull first of themselves
      while (real && !others_done) std::this_thread::yield();
    };
    device->submit(device->lane(LaneKind::device_compute), busy);
    QueuedTasks bag;  // as in TaskQueue's test
    bag.allowed = {3, 3, 3};
    bag.work = {10, 10, 4};
    bag.pace = {1, 2};
    bag.ops = [&](std::uint32_t task, std::uint32_t puller) {
      Op op;
      op.name = "task";
      op.cost.work = Work::fixed;
      op.cost.fixed_ns = static_cast<Nanos>(bag.work[task]) * (puller < 4 ? 4 : 2);
      op.access = {taken.writes(task, task + 1)};
      op.body = [&taken, task, by = static_cast<std::uint8_t>(puller < 4 ? 1 : 2)](BodyContext& ctx) {
        ctx.write<std::uint8_t>(taken)[task] = by;
      };
      return std::vector<Op>{op};
    };
    const std::vector<Event> last = device->submit_queued(pullers_of(*device, 4), bag);
    for (std::size_t p = 0; p < 4; ++p) device->host_wait(last[p]);
    others_done = true;
    device->host_wait(last[4]);
    const auto by = device->host_read<std::uint8_t>(taken);
    EXPECT_EQ(std::vector<int>(by.begin(), by.begin() + 3), (std::vector<int>{1, 2, 1})) << real;
    device->drain();
  }
}

TEST(Workers, OneThatFailsLeavesTheOthersAtWork) {
  for (const bool real : {false, true}) {
    const auto device = real ? make_emu_device({}) : make_sim_device(round_profile());
    constexpr std::uint32_t kTasks = 30;
    const HostBuffer taken = device->allocate_host(kTasks, "taken");
    QueuedTasks bag;
    bag.allowed.assign(kTasks, 1);
    bool fails = true;
    bag.ops = [&](std::uint32_t task, std::uint32_t) {
      Op op = reading("task", 100);
      op.access = {taken.writes(task, task + 1)};
      op.body = [&taken, task, fails](BodyContext& ctx) {
        if (fails && task == 3) throw std::runtime_error("task 3");
        ++ctx.write<std::uint8_t>(taken)[task];
      };
      return std::vector<Op>{op};
    };
    const auto empty = [&] {
      std::uint32_t errors = 0;
      for (const Event& event : device->submit_queued(pullers_of(*device, 4), bag)) {
        try {
          device->host_wait(event);
        } catch (const std::runtime_error& e) {
          EXPECT_STREQ(e.what(), "task 3");
          ++errors;
        }
      }
      return errors;
    };
    EXPECT_EQ(empty(), 1u);  // of one worker; the others know nothing of it
    device->drain();         // and it is reported once
    EXPECT_EQ(device->host_read<std::uint8_t>(taken)[3], 0);
    for (std::uint8_t& byte : device->host_write<std::uint8_t>(taken)) byte = 0;
    fails = false;
    EXPECT_EQ(empty(), 0u);
    for (const std::uint8_t byte : device->host_read<std::uint8_t>(taken)) EXPECT_EQ(byte, 1);
    device->drain();
  }
}

TEST(Workers, TheDeviceGetsItsOwnTasksAheadWhileTheHostsWorkersCompete) {
  auto sim = make_sim_device(round_profile());
  QueuedTasks bag;
  bag.allowed = {1, 2, 1, 2};
  bag.ops = [](std::uint32_t, std::uint32_t puller) {
    Op op;
    op.name = puller == 2 ? "device" : "host";
    op.cost.work = Work::fixed;
    op.cost.fixed_ns = puller == 2 ? 700 : 300;
    return std::vector<Op>{op};
  };
  sim->submit_queued(pullers_of(*sim, 2), bag);
  const Trace trace = sim->drain();
  Nanos device_end = 0, host_end = 0;
  for (const TraceRecord& r : trace.records) {
    if (std::string(r.name) == "device") device_end = r.end;
    if (std::string(r.name) == "host") host_end = std::max(host_end, r.end);
  }
  EXPECT_EQ(device_end, 10 + 100 + 2 * 700);  // back to back
  EXPECT_EQ(host_end, 10 + 300);              // both at once
}

/// Random tasks, some of one side alone; each adds 1 to its byte.
void every_task_once(Device& device, std::uint32_t workers, std::mt19937& random) {
  const auto count = static_cast<std::uint32_t>(1 + random() % 40);
  const HostBuffer taken = device.allocate_host(2 * count, "taken by");  // [side][task]
  QueuedTasks bag;
  std::vector<std::uint64_t> bytes;
  bag.allowed.reserve(count);
  bytes.reserve(count);
  for (std::uint32_t task = 0; task < count; ++task) {
    bag.allowed.push_back(static_cast<std::uint8_t>(1 + random() % 3));
    bytes.push_back(random() % 5000);
  }
  if (random() % 2 == 0) {
    bag.pace = {1, double(1 + random() % 5)};
    bag.work = bytes;
  }
  bag.ops = [&](std::uint32_t task, std::uint32_t puller) {
    const std::uint32_t at = (puller < workers ? 0 : count) + task;
    Op op = reading("task", bytes[task]);
    op.access = {taken.writes(at, at + 1)};
    op.body = [&taken, at](BodyContext& ctx) { ++ctx.write<std::uint8_t>(taken)[at]; };
    return std::vector<Op>{op};
  };
  for (const Event& event : device.submit_queued(pullers_of(device, workers), bag)) device.host_wait(event);
  const auto by = device.host_read<std::uint8_t>(taken);
  for (std::uint32_t task = 0; task < count; ++task) {
    EXPECT_EQ(by[task] + by[count + task], 1) << task;
    EXPECT_LE(by[task], bag.allowed[task] & 1);  // of a side that may
    EXPECT_LE(by[count + task], bag.allowed[task] >> 1);
  }
  device.drain();
}

TEST(Workers, LoseAndRepeatNoTask) {
  std::mt19937 random(3);
  for (std::uint32_t workers = 1; workers <= Device::kMaxWorkers; ++workers) {
    const auto sim = make_sim_device(round_profile()), emu = make_emu_device({});
    for (int i = 0; i < 20; ++i) {
      every_task_once(*sim, workers, random);
      every_task_once(*emu, workers, random);
    }
  }
}

// Where a thread of the lane makes them it is too late to wait.
TEST(Workers, WaitForNothingThatTheirBagDoesNotDeclare) {
  for (const bool simulated : {true, false}) {
    const std::unique_ptr<Device> device = simulated ? make_sim_device(round_profile()) : make_emu_device({});
    const Event copied = device->submit(device->lane(LaneKind::h2d), fixed("copy", 10));
    const std::vector<Puller> pullers = pullers_of(*device, 1);
    QueuedTasks bag;
    bag.allowed = {1, 2};
    bag.ops = [copied](std::uint32_t, std::uint32_t) { return std::vector<Op>{fixed("task", 10, {copied})}; };
    const auto run = [&] {
      for (const Event& event : device->submit_queued(pullers, bag)) device->host_wait(event);
      device->drain();
    };
    EXPECT_THROW(run(), LogicError) << simulated;
    device->drain_after_error();
    bag.after = {{copied}};
    EXPECT_THROW(run(), LogicError) << "of one side only";
    device->drain_after_error();
    const Event again = device->submit(device->lane(LaneKind::h2d), fixed("copy", 10));
    bag.after = {{again}, {again}};  // is behind the first
    EXPECT_NO_THROW(run()) << simulated;
  }
}

}  // namespace
}  // namespace tandem
