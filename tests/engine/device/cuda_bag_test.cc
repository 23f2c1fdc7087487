// Bags of tasks that threads of the host and a stream empty together.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "engine/common/error.h"
#include "engine/device/cuda_device.h"
#include "engine/device/launch_context.h"
#include "tests/engine/device/any_gpu_test.h"
#include "tests/engine/device/in_stream.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::uint8_t kHost = 1, kDevice = 2, kBoth = 3;
constexpr std::chrono::microseconds kLong{500};

/// Counts who took what. Two host lanes and the compute stream pull.
struct Bag {
  struct Taken {
    std::atomic<int> host = 0, device = 0;
  };
  explicit Bag(std::vector<std::uint8_t> allowed) : taken(allowed.size()) {
    bag.allowed = std::move(allowed);
    const std::vector<LaneId> workers = cuda->worker_lanes();
    pullers = {{workers[0], 0}, {workers[1], 0}, {cuda->lane(LaneKind::device_compute), 1}};
    bag.ops = [this](std::uint32_t task, std::uint32_t puller) {
      std::vector<Op> ops(1);
      ops[0].name = puller == 2 ? "over the link" : "on the host";
      if (puller == 2) {
        ops[0].launch = [this, task](LaunchContext& ctx) { launch(ctx, task); };
      } else {
        ops[0].cost.dram = 100;
        ops[0].body = [this, task](BodyContext&) { run(task); };
      }
      return ops;
    };
  }
  void launch(LaunchContext& ctx, std::uint32_t task) {
    if (launched == device_fails_at) throw RunError("The stream is closed.");
    most_ahead = std::max(most_ahead, ++launched - finished);
    in_stream(ctx.stream(), [this, task] {
      std::this_thread::sleep_for(kLong);
      ++taken[task].device;
      ++finished;
    });
  }
  void run(std::uint32_t task) {
    std::this_thread::sleep_for(kLong);
    if (++on_host == host_fails_at) throw RunError("The host gives up.");
    ++taken[task].host;
  }
  std::vector<Event> submit() { return cuda->submit_queued(pullers, bag); }

  std::unique_ptr<Device> cuda = make_cuda_device({.host_worker_threads = 2});
  QueuedTasks bag;
  std::vector<Puller> pullers;
  std::deque<Taken> taken;
  std::atomic<int> finished = 0, on_host = 0;
  int launched = 0, most_ahead = 0, device_fails_at = -1, host_fails_at = -1;
};

class CudaBag : public AnyGpuTest {};

// The stream may not take what the host would have done sooner: one task is under way and one is behind it.
TEST_F(CudaBag, EachTaskIsTakenOnceByWhoeverIsFree) {
  std::vector<std::uint8_t> allowed(80, kBoth);
  for (std::size_t i = 0; i < 5; ++i) {
    allowed[7 * i + 1] = kHost;
    allowed[7 * i + 3] = kDevice;
  }
  Bag bag(allowed);
  const std::vector<Event> last = bag.submit();
  for (const Event& event : last) {
    EXPECT_TRUE(event.valid());
    bag.cuda->host_wait(event);
  }
  int host = 0, device = 0;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    const Bag::Taken& t = bag.taken[i];
    EXPECT_EQ(t.host + t.device, 1) << i;
    EXPECT_TRUE(allowed[i] & (t.host > 0 ? kHost : kDevice)) << i;
    host += t.host;
    device += t.device;
  }
  EXPECT_LE(bag.most_ahead, 2);
  std::uint64_t dram = 0;
  int launched = 0;
  for (const TraceRecord& record : bag.cuda->drain().records) {
    if (record.name == std::string_view("on the host")) dram += record.cost.dram;
    if (record.name == std::string_view("over the link")) ++launched;
  }
  EXPECT_EQ(dram, 100u * static_cast<unsigned>(host));
  EXPECT_EQ(launched, device);
}

TEST_F(CudaBag, NoSideWaitsForWhatIsNotDeclared) {
  for (const std::uint8_t side : {kHost, kDevice}) {
    Bag bag(std::vector<std::uint8_t>(4, side));
    const LaneId copies = bag.cuda->lane(LaneKind::h2d);
    Op copy;
    copy.name = "copy";
    const Event copied = bag.cuda->submit(copies, copy);
    bag.bag.ops = [copied, made = bag.bag.ops](std::uint32_t task, std::uint32_t puller) {
      std::vector<Op> ops = made(task, puller);
      ops[0].after = {copied};
      return ops;
    };
    const auto run = [&] {
      for (const Event& event : bag.submit()) bag.cuda->host_wait(event);
    };
    EXPECT_THROW(run(), LogicError);
    bag.cuda->drain_after_error();
    bag.bag.after.assign(2, {bag.cuda->submit(copies, copy)});
    EXPECT_NO_THROW(run());
  }
}

TEST_F(CudaBag, WhoMayTakeNothingHasNoOperation) {
  Bag for_host(std::vector<std::uint8_t>(4, kHost)), for_device(std::vector<std::uint8_t>(4, kDevice));
  const std::vector<Event> host = for_host.submit(), device = for_device.submit();
  EXPECT_TRUE(host[0].valid() && host[1].valid() && !host[2].valid());
  EXPECT_TRUE(!device[0].valid() && !device[1].valid() && device[2].valid());
  for_host.cuda->drain();
  for_device.cuda->drain();
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(for_host.taken[i].host, 1);
    EXPECT_EQ(for_device.taken[i].device, 1);
  }
}

/// 30 tasks, the first four for one side, which so comes to its fourth however busy the machine is.
std::vector<std::uint8_t> with_first(std::uint8_t side) {
  std::vector<std::uint8_t> allowed(30, kBoth);
  std::fill_n(allowed.begin(), 4, side);
  return allowed;
}

// The host's workers go on until nothing is left that they may take; the one task that failed is nobody's.
TEST_F(CudaBag, ALaunchThatThrowsLeavesTheRestToTheHost) {
  Bag bag(with_first(kDevice));
  bag.device_fails_at = 3;
  EXPECT_THAT([&] { bag.submit(); }, ThrowsMessage<RunError>(HasSubstr("stream is closed")));
  bag.cuda->drain();
  int taken = 0;
  for (const Bag::Taken& t : bag.taken) taken += t.host + t.device;
  EXPECT_EQ(taken, 29);
  bag.device_fails_at = -1;
  for (Bag::Taken& t : bag.taken) t.host = t.device = 0;
  bag.submit();
  bag.cuda->drain();
  for (const Bag::Taken& t : bag.taken) EXPECT_EQ(t.host + t.device, 1);
}

TEST_F(CudaBag, ABodyThatThrowsIsToldAndTheOthersTakeTheRest) {
  Bag bag(with_first(kHost));
  bag.host_fails_at = 4;
  const std::vector<Event> last = bag.submit();
  EXPECT_THAT(
      [&] {
        for (const Event& event : last) bag.cuda->host_wait(event);
      },
      ThrowsMessage<RunError>(HasSubstr("The host gives up.")));
  bag.cuda->drain();
  int taken = 0;
  for (const Bag::Taken& t : bag.taken) taken += t.host + t.device;
  EXPECT_EQ(taken, 29);
}

}  // namespace
}  // namespace tandem
