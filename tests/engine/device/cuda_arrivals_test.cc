// How host lanes of `cuda` wait for streams.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/cuda_device.h"
#include "engine/device/launch_context.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"

namespace tandem {
namespace {

TEST(CudaArrivals, APointOfAStreamServesAllThatWaitForIt) {
  const auto cuda = make_cuda_device({.host_worker_threads = 2});
  const LaneId compute = cuda->lane(LaneKind::device_compute);
  const std::vector<LaneId> workers = cuda->worker_lanes();
  ASSERT_GE(workers.size(), 2u);
  const auto submit = [&](LaneId lane, std::vector<Event> after) {
    Op op;
    op.name = "nothing";
    op.after = std::move(after);
    return cuda->submit(lane, std::move(op));
  };
  std::uint64_t marks = cuda_emulator::calls().marks;
  const auto more_marks = [&] {
    const std::uint64_t before = std::exchange(marks, cuda_emulator::calls().marks);
    return marks - before;
  };
  const Event first = submit(compute, {});
  EXPECT_EQ(more_marks(), 2u);
  submit(workers[0], {first});
  EXPECT_EQ(more_marks(), 1u);
  submit(workers[0], {first});  // does so already
  const Event second = submit(compute, {}), third = submit(compute, {});
  EXPECT_EQ(more_marks(), 4u);
  submit(workers[1], {first});  // at the same point
  EXPECT_EQ(more_marks(), 0u);
  submit(workers[1], {second});
  EXPECT_EQ(more_marks(), 1u);
  submit(workers[0], {third});  // which lies behind this one too
  EXPECT_EQ(more_marks(), 0u);
  const std::uint64_t waits = cuda_emulator::calls().waits;
  for (const Event& event : {second, first, second}) submit(cuda->lane(LaneKind::d2h), {event});
  EXPECT_EQ(cuda_emulator::calls().waits - waits, 1u);  // a stream does not wait again either
  cuda->drain();
  more_marks();
  submit(workers[0], {submit(compute, {first})});  // points of before are forgotten
  EXPECT_EQ(more_marks(), 3u);
  cuda->drain();
}

// The lane does not ask the driver, and the control thread may be held up inside: another finds out.
TEST(CudaArrivals, AStreamThatHasFailedIsWaitedForNoLonger) {
  const auto cuda = make_cuda_device({.host_worker_threads = 1});
  Op fails, waits;
  fails.name = "fails";
  fails.launch = [](LaunchContext& ctx) {
    cuda_emulator::enqueue(ctx.stream(), [] { throw RunError("The GPU has fallen off the bus."); });
  };
  std::atomic<bool> ran = false;
  waits.name = "waits";
  waits.after = {cuda->submit(cuda->lane(LaneKind::device_compute), std::move(fails))};
  waits.body = [&](BodyContext&) { ran = true; };
  const Event waited = cuda->submit(cuda->worker_lanes().front(), std::move(waits));
  // Of a stream that waits for the lane, not for the one that has failed.
  Op behind;
  behind.name = "behind";
  behind.after = {waited};
  const Event last = cuda->submit(cuda->lane(LaneKind::d2h), std::move(behind));
  EXPECT_THAT([&] { cuda->host_wait(last); },
              ::testing::ThrowsMessage<RunError>(::testing::HasSubstr("fallen off the bus")));
  EXPECT_THAT([&] { cuda->drain(); }, ::testing::ThrowsMessage<RunError>(::testing::HasSubstr("fallen off the bus")));
  EXPECT_FALSE(ran);
}

// An earlier point is not taken for a later one: each lane sees all that its event promises.
TEST(CudaArrivals, APointLiesBehindTheEventThatIsWaitedFor) {
  const auto cuda = make_cuda_device({.host_worker_threads = 2});
  const LaneId compute = cuda->lane(LaneKind::device_compute);
  const std::vector<LaneId> workers = cuda->worker_lanes();
  std::mt19937 random(8);
  std::atomic<std::uint64_t> reached = 0;
  std::atomic<int> early = 0;
  std::vector<Event> events;
  for (int i = 0; i < 1500; ++i) {
    Op op;
    op.name = "arrive";
    if (random() % 2 == 0) {
      const bool slow = random() % 16 == 0;
      op.launch = [&, slow](LaunchContext& ctx) {
        cuda_emulator::enqueue(ctx.stream(), [&reached, slow] {
          if (slow) std::this_thread::sleep_for(std::chrono::microseconds(50));
          ++reached;
        });
      };
      events.push_back(cuda->submit(compute, std::move(op)));
    } else if (!events.empty()) {
      const std::size_t back = std::min<std::size_t>(random() % 6, events.size() - 1), n = events.size() - back;
      op.after = {events[n - 1]};
      op.body = [&, n](BodyContext&) { early += reached < n; };
      cuda->submit(workers[random() % workers.size()], std::move(op));
    }
    if (random() % 200 == 0) cuda->drain();
  }
  cuda->drain();
  EXPECT_EQ(early, 0);
}

}  // namespace
}  // namespace tandem
