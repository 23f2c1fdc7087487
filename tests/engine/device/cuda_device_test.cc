#include "engine/device/cuda_device.h"

#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>

#include "engine/common/error.h"
#include "engine/device/emu_device.h"
#include "engine/device/launch_context.h"
#include "engine/trace/idle.h"
#include "tests/engine/device/any_gpu_test.h"
#include "tests/engine/device/in_stream.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class CudaDeviceTest : public AnyGpuTest {};

TEST_F(CudaDeviceTest, OneOfEachLaneAndAClockThatSaysMeasured) {
  const auto cuda = make_cuda_device({.host_worker_threads = 2});
  const std::string gpu = cuda_device().name;
  EXPECT_EQ(cuda->clock_name(), "measured on " + gpu + ", host " + cpu_model_name() + ", 2 threads");
  EXPECT_EQ(cuda->gpu_name(), gpu);
  EXPECT_FALSE(cuda->simulated());
  EXPECT_TRUE(cuda->is_gpu());
  EXPECT_FALSE(cuda->has_peer());
  for (const LaneKind kind : {LaneKind::control, LaneKind::device_compute, LaneKind::h2d, LaneKind::recall,
                              LaneKind::d2h, LaneKind::side_compute, LaneKind::host_workers})
    EXPECT_EQ(cuda->lanes().at(cuda->lane(kind)).kind, kind);
  EXPECT_THROW(make_cuda_device({.host_worker_threads = 0}), InputError);
}

// Streams and host lanes are threads that run when they get there: an edge that is not honoured, in either direction,
// reads a cell before it is written.
TEST_F(CudaDeviceTest, EdgesOrderStreamsAndThreads) {
  const auto cuda = make_cuda_device();
  constexpr std::size_t kCells = 8;
  const HostBuffer cells = cuda->allocate_host(kCells * sizeof(int), "cells");
  std::ranges::fill(cuda->host_write<int>(cells), 0);
  std::vector<LaneId> lanes = {cuda->lane(LaneKind::control), cuda->lane(LaneKind::device_compute),
                               cuda->lane(LaneKind::h2d), cuda->lane(LaneKind::d2h)};
  for (const LaneId worker : cuda->worker_lanes()) lanes.push_back(worker);
  std::mt19937 random(3);
  std::vector<Event> last(kCells);
  int expected[kCells] = {};
  for (int i = 0; i < 4000; ++i) {
    const std::size_t from = random() % kCells, to = random() % kCells;
    const bool slow = random() % 64 == 0;
    const auto step = [from, to, slow](int* at) {
      if (slow) std::this_thread::sleep_for(std::chrono::microseconds(100));
      at[to] = (at[from] * 3 + at[to] + 1) % 10007;
    };
    Op op;
    op.name = "add";
    op.access = {cells.writes()};
    op.after = {last[from], last[to]};
    op.body = [&cells, step](BodyContext& ctx) { step(ctx.write<int>(cells)); };
    op.launch = [&](LaunchContext& ctx) { in_stream(ctx.stream(), [step, at = ctx.write<int>(cells)] { step(at); }); };
    last[from] = last[to] = cuda->submit(lanes[random() % lanes.size()], std::move(op));
    expected[to] = (expected[from] * 3 + expected[to] + 1) % 10007;
    if (random() % 500 == 0) cuda->drain();  // events of before are done
  }
  for (const Event& event : last) cuda->host_wait(event);
  const auto found = cuda->host_read<int>(cells);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), expected));
}

TEST_F(CudaDeviceTest, WhatHasNoLaunchIsRefused) {
  const auto cuda = make_cuda_device();
  Op op;
  op.name = "new idea";
  op.body = [](BodyContext&) {};
  EXPECT_THAT([&] { cuda->submit(cuda->lane(LaneKind::device_compute), op); },
              ThrowsMessage<InputError>(HasSubstr("'new idea' has no CUDA code yet")));
  EXPECT_THAT([&] { cuda->submit(cuda->lane(LaneKind::peer_compute), op); },
              ThrowsMessage<InputError>(HasSubstr("peer device")));
  op.body = nullptr;  // nothing to do is done
  cuda->host_wait(cuda->submit(cuda->lane(LaneKind::device_compute), op));
}

TEST_F(CudaDeviceTest, TheCpuDoesNotTouchTheGpusMemory) {
  const auto cuda = make_cuda_device();
  const DeviceBuffer buffer = cuda->allocate_device(64, "far away");
  Op op;
  op.name = "peek";
  op.access = {buffer.reads()};
  op.body = [&](BodyContext& ctx) { ctx.read<int>(buffer); };
  const Event event = cuda->submit(cuda->lane(LaneKind::host_workers), op);
  EXPECT_THAT([&] { cuda->host_wait(event); }, ThrowsMessage<LogicError>(HasSubstr("'far away' on the GPU")));
}

TEST_F(CudaDeviceTest, TheGpuDoesNotTouchWhatOnlyTheHostReaches) {
  const auto cuda = make_cuda_device();
  const HostBuffer own = cuda->allocate_host_only(std::size_t{3} << 20, "at home"),
                   other = cuda->allocate_host(64, "x");
  EXPECT_NE(own.id(), other.id());
  EXPECT_EQ(cuda->host_read<int>(own)[0], 0);
  Op op;
  op.name = "reach";
  op.access = {own.writes()};
  op.launch = [&](LaunchContext& ctx) { ctx.write<int>(own); };
  EXPECT_THAT([&] { cuda->submit(cuda->lane(LaneKind::d2h), op); },
              ThrowsMessage<LogicError>(HasSubstr("'at home', which only the CPU reaches")));
  op.body = [&](BodyContext& ctx) { ctx.write<int>(own)[1] = 5; };
  cuda->host_wait(cuda->submit(cuda->lane(LaneKind::host_workers), op));
  EXPECT_EQ(cuda->host_read<int>(own)[1], 5);
}

// A stream that has failed writes no more words for host lanes.
TEST_F(CudaDeviceTest, BehindAnErrorHostLanesWaitForNoStream) {
  const auto cuda = make_cuda_device();
  const LaneId host = cuda->lane(LaneKind::host_workers), compute = cuda->lane(LaneKind::device_compute);
  std::atomic<bool> held = true;
  Op fails, runs, waits;
  fails.name = "fails";
  fails.body = [](BodyContext&) { throw RunError("The disk is gone."); };
  runs.name = "runs";
  runs.launch = [&](LaunchContext& ctx) {
    in_stream(ctx.stream(), [&] {
      while (held) std::this_thread::yield();
    });
  };
  waits.name = "waits";
  cuda->submit(host, fails);
  waits.after = {cuda->submit(compute, runs)};
  const Event waited = cuda->submit(host, waits);
  EXPECT_THROW(cuda->host_wait(waited), RunError);  // though the stream is still held
  held = false;
  cuda->drain();
}

TEST_F(CudaDeviceTest, AnErrorOfAHostLaneIsToldOnceAndNothingHangs) {
  const auto cuda = make_cuda_device();
  const LaneId host = cuda->lane(LaneKind::host_workers), compute = cuda->lane(LaneKind::device_compute);
  std::atomic<int> ran = 0;
  Op fails, counts, waits;
  fails.name = "fails";
  fails.body = [](BodyContext&) { throw RunError("The disk is gone."); };
  counts.name = "counts";
  counts.body = [&](BodyContext&) { ++ran; };
  const Event failed = cuda->submit(host, fails);
  const Event after = cuda->submit(host, counts);
  waits.name = "waits";
  waits.after = {failed, after};
  const Event waited = cuda->submit(compute, waits);
  EXPECT_THAT(
      [&] {
        cuda->host_wait(waited);
        cuda->host_wait(after);
      },
      ThrowsMessage<RunError>(HasSubstr("The disk is gone.")));
  EXPECT_EQ(ran, 0);
  cuda->drain();
  cuda->host_wait(cuda->submit(host, counts));
  EXPECT_EQ(ran, 1);
  cuda->submit(host, fails);
  EXPECT_THROW(cuda->drain(), RunError);
}

TEST_F(CudaDeviceTest, TheTraceOfAStepAddsUp) {
  const auto cuda = make_cuda_device();
  const LaneId host = cuda->lane(LaneKind::host_workers), compute = cuda->lane(LaneKind::device_compute);
  cuda->end_step(Device::kSetupStep, {});
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); };
  for (std::uint32_t step = 0; step < 3; ++step) {
    Op first, on_host, second;
    first.name = "first";
    first.launch = [&](LaunchContext& ctx) { in_stream(ctx.stream(), pause); };
    const Event begun = cuda->submit(compute, first);
    on_host.name = "on the host";
    on_host.after = {begun};
    on_host.body = [&](BodyContext&) { pause(); };
    second.name = "second";
    second.after = {cuda->submit(host, on_host)};
    second.launch = [&](LaunchContext& ctx) { in_stream(ctx.stream(), pause); };
    cuda->end_step(step, cuda->submit(compute, second));
  }
  const Trace trace = cuda->drain();
  const IdleReport idle = account_idle(trace);  // checks that all sums are right
  ASSERT_EQ(idle.steps.size(), 4u);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_GE(idle.steps[i].busy, 4'000'000);
    EXPECT_GE(idle.steps[i].idle, 2'000'000);
    EXPECT_GE(idle.steps[i].by_cause[static_cast<std::size_t>(Cause::host_attention)], 1'900'000);
  }
}

TEST_F(CudaDeviceTest, ALaunchThatThrowsLeavesNothingBehind) {
  const auto cuda = make_cuda_device({.upload_bytes = 4096});
  const LaneId compute = cuda->lane(LaneKind::device_compute);
  std::atomic<bool> done = false;
  Op half;
  half.name = "half";
  half.cost.h2d = 1000;  // of an operation that never was
  half.launch = [&](LaunchContext& ctx) {
    ctx.upload(std::vector<int>(500));
    in_stream(ctx.stream(), [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      done = true;
    });
    throw RunError("The other half is missing.");
  };
  EXPECT_THAT([&] { cuda->submit(compute, half); }, ThrowsMessage<RunError>(HasSubstr("other half")));
  EXPECT_TRUE(done);
  Op whole;
  whole.name = "whole";
  whole.launch = [&](LaunchContext& ctx) { ctx.upload(std::vector<int>(900)); };
  for (int i = 0; i < 20; ++i) cuda->host_wait(cuda->submit(compute, whole));
  EXPECT_EQ(account_idle(cuda->drain()).total.h2d, 0u);
}

TEST_F(CudaDeviceTest, TimesOfStreamsAreTheControlThreads) {
  const auto cuda = make_cuda_device();
  const LaneId compute = cuda->lane(LaneKind::device_compute);
  cuda->drain();  // both clocks are known from here on
  std::vector<Nanos> done(20);
  for (Nanos& at : done) {
    Op op;
    op.name = "sleep";
    op.launch = [&](LaunchContext& ctx) {
      in_stream(ctx.stream(), [&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        at = cuda->now();
      });
    };
    cuda->submit(compute, op);
  }
  const Trace trace = cuda->drain();  // nobody has seen any of them before
  std::vector<Nanos> apart;
  for (const TraceRecord& record : trace.records) {
    if (std::string_view(record.name) != "sleep") continue;
    EXPECT_GE(record.end - record.start, 900'000);
    apart.push_back(std::abs(record.end - done.at(apart.size())));
  }
  ASSERT_EQ(apart.size(), done.size());
  std::nth_element(apart.begin(), apart.begin() + 10, apart.end());
  EXPECT_LT(apart[10], 1'000'000);  // a thread may be held up between the two looks at the clock
}

TEST_F(CudaDeviceTest, CountsAreSettled) {
  const auto cuda = make_cuda_device();
  const HostBuffer counted = cuda->allocate_host(sizeof(std::uint32_t), "counted");  // in_stream() runs on the host
  Op op;
  op.name = "count";
  op.access = {counted.writes()};
  op.cost.h2d = 1000;
  op.cost.upper_bound = true;
  op.launch = [&](LaunchContext& ctx) {
    auto* const count = ctx.write<std::uint32_t>(counted);
    in_stream(ctx.stream(), [count] { *count = 7; });
    Cost without, each;
    without.h2d = 5;
    without.pieces = 0;
    each.h2d = 100;
    ctx.settle_by(count, 1, each, without);
  };
  cuda->submit(cuda->lane(LaneKind::h2d), op);
  const Trace trace = cuda->drain();
  const auto record = std::find_if(trace.records.begin(), trace.records.end(),
                                   [](const TraceRecord& r) { return std::string_view(r.name) == "count"; });
  ASSERT_NE(record, trace.records.end());
  EXPECT_EQ(record->cost.h2d, 705u);
  EXPECT_EQ(record->cost.pieces, 7u);
  EXPECT_FALSE(record->cost.upper_bound);
}

}  // namespace
}  // namespace tandem
