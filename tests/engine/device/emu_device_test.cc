#include "engine/device/emu_device.h"

#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <random>
#include <sys/resource.h>
#include <thread>

#include "engine/common/cpus.h"
#include "engine/common/error.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

Op with_body(const char* name, Body body, std::vector<Event> after = {}) {
  Op op;
  op.name = name;
  op.body = std::move(body);
  op.after = std::move(after);
  return op;
}

TEST(EmuDevice, OneOfEachLaneAndAClockThatSaysMeasured) {
  auto emu = make_emu_device({.host_worker_threads = 3});
  EXPECT_THAT(emu->clock_name(), AllOf(HasSubstr("measured on "), HasSubstr("3 threads")));
  EXPECT_EQ(emu->gpu_name(), "");
  EXPECT_FALSE(emu->simulated());
  for (const LaneKind kind :
       {LaneKind::control, LaneKind::device_compute, LaneKind::h2d, LaneKind::d2h, LaneKind::host_workers}) {
    EXPECT_EQ(emu->lanes().at(emu->lane(kind)).kind, kind);
  }
  EXPECT_THROW(make_emu_device({.host_worker_threads = 0}), InputError);
}

TEST(EmuDevice, LanesStayOnTheCpusOfTheirSide) {
  const std::vector<int> cpus = usable_cpus();
  auto emu = make_emu_device({.device_cpus = {cpus.back()}, .host_cpus = {cpus.front()}});
  const auto where = [&](LaneKind kind) {
    std::vector<int> on;
    emu->host_wait(emu->submit(emu->lane(kind), with_body("look", [&](BodyContext&) { on = usable_cpus(); })));
    return on;
  };
  for (const LaneKind kind : {LaneKind::device_compute, LaneKind::side_compute, LaneKind::peer_compute})
    EXPECT_EQ(where(kind), std::vector<int>{cpus.back()});
  for (const LaneKind kind : {LaneKind::h2d, LaneKind::d2h, LaneKind::recall, LaneKind::host_workers})
    EXPECT_EQ(where(kind), std::vector<int>{cpus.front()});
  EXPECT_EQ(where(LaneKind::control), cpus);
  EXPECT_THROW(make_emu_device({.host_cpus = {-1}}), InputError);
}

TEST(EmuDevice, EdgesOrderBodiesAcrossLanes) {
  // Unsynchronised ints: a thread sanitizer sees any edge that is not honoured.
  auto emu = make_emu_device();
  std::mt19937 random(3);
  std::vector<int> cells(8);
  std::vector<Event> last(cells.size());
  int expected[8] = {};
  for (int i = 0; i < 2000; ++i) {
    const std::size_t from = random() % 8, to = random() % 8;
    const LaneId lane = static_cast<LaneId>(random() % emu->lanes().size());
    const Event event = emu->submit(lane, with_body("add",
                                                    [&cells, from, to](BodyContext&) {
                                                      cells[to] = cells[from] * 3 + cells[to] + 1;
                                                      cells[to] %= 10007;
                                                    },
                                                    {last[from], last[to]}));
    last[from] = last[to] = event;
    expected[to] = (expected[from] * 3 + expected[to] + 1) % 10007;
  }
  for (const Event& event : last) emu->host_wait(event);
  EXPECT_TRUE(std::equal(cells.begin(), cells.end(), expected));
}

TEST(EmuDevice, CopiesReallyCopy) {
  auto emu = make_emu_device();
  const HostBuffer in = emu->allocate_host(40000, "in"), out = emu->allocate_host(40000, "out");
  const DeviceBuffer device = emu->allocate_device(40000, "device");
  std::vector<int> numbers(10000);
  std::iota(numbers.begin(), numbers.end(), 7);
  std::copy(numbers.begin(), numbers.end(), emu->host_write<int>(in).begin());
  Op up = with_body("up", [=](BodyContext& c) { std::copy_n(c.read<int>(in), 10000, c.write<int>(device)); });
  up.access = {in.reads(), device.writes()};
  const Event copied = emu->submit(emu->lane(LaneKind::h2d), up);
  Op down = with_body("down",
                      [=](BodyContext& c) {
                        std::copy_n(c.read<int>(device), 10000, c.write<int>(out));
                        c.settle(Cost{.d2h = 40000});
                      },
                      {copied});
  down.access = {device.reads(), out.writes()};
  emu->host_wait(emu->submit(emu->lane(LaneKind::d2h), down));
  const auto result = emu->host_read<int>(out);
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), result.begin()));
  const Trace trace = emu->drain();
  EXPECT_EQ(trace.records.back().kind, Kind::wait);
  EXPECT_EQ(trace.records[3].cost.d2h, 40000u);
}

TEST(EmuDevice, TracesAreConsistent) {
  auto emu = make_emu_device();
  Event last;
  for (std::uint32_t step = 0; step < 20; ++step) {
    const Event a = emu->submit(emu->lane(LaneKind::device_compute), with_body("a", [](BodyContext&) {}, {last}));
    const Event b = emu->submit(emu->lane(LaneKind::host_workers), with_body("b", [](BodyContext&) {}, {a}));
    last = emu->submit(emu->lane(LaneKind::device_compute), with_body("c", [](BodyContext&) {}, {b}));
    emu->submit(emu->lane(LaneKind::control), with_body("policy", [](BodyContext&) {}));
    emu->end_step(step, last);
  }
  const Trace trace = emu->drain();
  ASSERT_EQ(trace.steps.size(), 20u);
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    EXPECT_LE(trace.steps[i].begin, trace.steps[i].end);
    if (i > 0) {
      EXPECT_EQ(trace.steps[i].begin, trace.steps[i - 1].end);
    }
    EXPECT_EQ(trace.records.at(static_cast<std::size_t>(trace.steps[i].closed_by)).end, trace.steps[i].end);
  }
  for (const TraceRecord& record : trace.records) {
    EXPECT_LE(record.start, record.end);
    if (record.critical >= 0) {
      EXPECT_LE(trace.records.at(static_cast<std::size_t>(record.critical)).end, record.start) << record.name;
    }
  }
  EXPECT_TRUE(emu->drain().records.empty());
}

TEST(EmuDevice, ErrorsTravelToTheWaitAndPoisonWhatFollows) {
  auto emu = make_emu_device();
  std::atomic<int> ran = 0;
  const LaneId host = emu->lane(LaneKind::host_workers), device = emu->lane(LaneKind::device_compute);
  const Event before = emu->submit(host, with_body("before", [&](BodyContext&) { ++ran; }));
  const Event failed = emu->submit(host, with_body("failing", [](BodyContext&) { throw RunError("disk full"); }));
  const Event poisoned = emu->submit(device, with_body("dependent", [&](BodyContext&) { ++ran; }, {failed}));
  const Event after = emu->submit(device, with_body("after", [&](BodyContext&) { ++ran; }));
  const Event control =
      emu->submit(emu->lane(LaneKind::control), with_body("control", [&](BodyContext&) { ++ran; }, {after}));
  EXPECT_NO_THROW(emu->host_wait(before));
  for (const Event& event : {failed, poisoned, after, control}) {
    try {
      emu->host_wait(event);
      FAIL();
    } catch (const RunError& error) {
      EXPECT_STREQ(error.what(), "disk full");
    }
  }
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(emu->drain().records.size(), 14u);  // 4 launches, 5 operations, 5 waits
  EXPECT_NO_THROW(emu->host_wait(emu->submit(device, with_body("again", [&](BodyContext&) { ++ran; }))));
  EXPECT_EQ(ran, 2);

  emu->submit(host, with_body("failing", [](BodyContext&) { throw RunError("disk full"); }));
  EXPECT_THROW(emu->drain(), RunError);
  EXPECT_NO_THROW(emu->drain());
}

TEST(EmuDevice, AbandonsQueuedWorkAtTheEnd) {
  std::atomic<int> ran = 0;
  {
    auto emu = make_emu_device();
    const LaneId host = emu->lane(LaneKind::host_workers);
    emu->submit(host,
                with_body("slow", [](BodyContext&) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }));
    const Event failed = emu->submit(host, with_body("failing", [](BodyContext&) { throw RunError("x"); }));
    for (int i = 0; i < 100; ++i)
      emu->submit(emu->lane(LaneKind::d2h), with_body("never", [&](BodyContext&) { ++ran; }, {failed}));
  }
  EXPECT_EQ(ran, 0);
}

TEST(EmuDevice, WhoHasNothingToDoSleepsWhileALaneWorks) {
  // On few cores every thread that is woken for nothing takes time from the kernels.
  auto emu = make_emu_device();
  constexpr int kOperations = 500;
  std::atomic<bool> go = false;
  const auto work = [](BodyContext&) {  // long enough for whoever is woken to run
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(50);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  const LaneId compute = emu->lane(LaneKind::device_compute);
  Event last = emu->submit(compute, with_body("gate", [&](BodyContext&) { go.wait(false); }));
  for (int i = 0; i < kOperations; ++i) last = emu->submit(compute, with_body("work", work));
  const Event copied = emu->submit(emu->lane(LaneKind::d2h), with_body("copy", [](BodyContext&) {}, {last}));
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  go = true;
  go.notify_all();
  emu->host_wait(copied);
  getrusage(RUSAGE_SELF, &after);
  // Of their own accord: they went to sleep again. Where every operation wakes all there are 9,000 and more; a busy
  // machine has had 65, of threads that met at a lock.
  EXPECT_LT(after.ru_nvcsw - before.ru_nvcsw, kOperations / 2);
}

TEST(EmuDevice, WrongEventsAreOurMistake) {
  auto emu = make_emu_device();
  EXPECT_THROW(emu->host_wait({1, 1}), LogicError);
  EXPECT_THROW(emu->submit(99, Op{}), LogicError);
  EXPECT_THROW(emu->submit(1, with_body("x", {}, {{2, 5}})), LogicError);
  emu->begin_segment("a");
  EXPECT_THROW(emu->begin_segment("b"), LogicError);
  emu->end_segment();
  EXPECT_THROW(emu->end_segment(), LogicError);
  EXPECT_NO_THROW(emu->host_wait({}));
}

TEST(EmuDevice, LanesEmptyABagTogether) {
  auto emu = make_emu_device({});
  const Puller pullers[] = {{emu->lane(LaneKind::host_workers), 0}, {emu->lane(LaneKind::device_compute), 1}};
  constexpr std::uint32_t kTasks = 300;
  const HostBuffer taken = emu->allocate_host(2 * kTasks, "taken by");  // [puller][task]
  QueuedTasks bag;
  for (std::uint32_t task = 0; task < kTasks; ++task)
    bag.allowed.push_back(task % 10 == 0 ? 1 : task % 10 == 1 ? 2 : 3);
  bag.ops = [&](std::uint32_t task, std::uint32_t puller) {
    Op op;
    op.name = "task";
    op.cost.dram = 7;
    op.access = {taken.writes(puller * kTasks + task, puller * kTasks + task + 1)};
    op.body = [&taken, at = puller * kTasks + task](BodyContext& ctx) { ++ctx.write<std::uint8_t>(taken)[at]; };
    return std::vector<Op>{op, op};
  };
  const std::vector<Event> last = emu->submit_queued(pullers, bag);
  for (const Event& event : last) emu->host_wait(event);
  const auto by = emu->host_read<std::uint8_t>(taken);
  for (std::uint32_t task = 0; task < kTasks; ++task) {
    EXPECT_EQ(by[task] + by[kTasks + task], 2) << task;  // both operations of one task, on one side
    EXPECT_EQ(by[task] % 2, 0);
    if (task % 10 < 2) {
      EXPECT_EQ(by[task], task % 10 == 0 ? 2 : 0);
    }
  }
  std::uint64_t bytes = 0;
  for (const TraceRecord& record : emu->drain().records) bytes += record.cost.dram;
  EXPECT_EQ(bytes, 2u * 7 * kTasks);
  bag.allowed.assign(3, 1);
  EXPECT_FALSE(emu->submit_queued(pullers, bag)[1].valid());
  emu->drain();  // the tasks write what ends with this test
}

}  // namespace
}  // namespace tandem
