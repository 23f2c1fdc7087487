// What operations' bodies do on the simulated device: they compute and settle their cost, keep to what they declared,
// fail, and find memory full.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>

#include "engine/device/sim_device.h"
#include "tests/engine/device/sim_test.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(SimDevice, BodiesComputeAndSettle) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const HostBuffer in = sim->allocate_host(400, "in");
  const DeviceBuffer on_device = sim->allocate_device(400, "on device");
  const auto numbers = sim->host_write<int>(in);
  std::iota(numbers.begin(), numbers.end(), 0);
  Op copy;
  copy.name = "copy";
  copy.kind = Kind::copy;
  copy.cost.h2d = 1'000'000;
  copy.cost.kernels = 3;
  copy.cost.upper_bound = true;
  copy.access = {in.reads(), on_device.writes()};
  copy.body = [=](BodyContext& context) {
    std::copy_n(context.read<int>(in), 100, context.write<int>(on_device));
    context.settle(Cost{.h2d = 400});
  };
  const Event copied = sim->submit(lanes.h2d, copy);
  const HostBuffer out = sim->allocate_host(4, "out");
  Op sum;
  sum.name = "sum";
  sum.access = {on_device.reads(), out.writes()};
  sum.after = {copied};
  sum.body = [=](BodyContext& context) {
    const int* data = context.read<int>(on_device);
    *context.write<int>(out) = std::accumulate(data, data + 100, 0);
  };
  sim->host_wait(sim->submit(lanes.device, sum));
  EXPECT_EQ(sim->host_read<int>(out)[0], 4950);
  const Trace trace = sim->drain();
  EXPECT_EQ(find(trace, "copy").cost.h2d, 400u);
  EXPECT_EQ(find(trace, "copy").end - find(trace, "copy").start, 40);
  EXPECT_FALSE(find(trace, "copy").cost.upper_bound);
  EXPECT_EQ(find(trace, "copy").cost.kernels, 3u) << "that was known before";
}

TEST(SimDevice, UndeclaredAccessIsOurMistake) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  const HostBuffer buffer = sim->allocate_host(64, "ledger");
  Op op;
  op.name = "sneaky";
  op.access = {buffer.reads()};
  op.body = [=](BodyContext& context) { context.write<int>(buffer)[0] = 1; };
  const Event event = sim->submit(lanes.host, op);
  try {
    sim->host_wait(event);
    FAIL();
  } catch (const LogicError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("sneaky"), HasSubstr("ledger"), HasSubstr("writes")));
  }
}

TEST(SimDevice, SettlingOutsideTheDeclarationIsOurMistake) {
  auto sim = make_sim_device(round_profile());
  const HostBuffer buffer = sim->allocate_host(64, "ledger");
  Op op;
  op.name = "wanderer";
  op.access = {buffer.reads(2, 5), buffer.writes(8, 9)};
  for (const auto& [access, fine] : std::vector<std::pair<Access, bool>>{{buffer.reads(3, 5), true},
                                                                         {buffer.writes(8, 9), true},
                                                                         {buffer.reads(8, 9), true},
                                                                         {buffer.reads(4, 6), false},
                                                                         {buffer.writes(2, 3), false}}) {
    op.body = [access = access](BodyContext& context) { context.settle(Cost{}, {access}); };
    if (fine) {
      EXPECT_NO_THROW(sim->submit(Lanes(*sim).host, op));
    } else {
      EXPECT_THROW(sim->submit(Lanes(*sim).host, op), LogicError);
    }
  }
}

TEST(SimDevice, ErrorsTravelToTheWaitAndPoisonWhatFollows) {
  auto sim = make_sim_device(round_profile());
  const Lanes lanes(*sim);
  int ran = 0;
  const Event before = sim->submit(lanes.host, fixed("before", 10));
  Op failing = fixed("failing", 10);
  failing.body = [](BodyContext&) { throw RunError("disk full"); };
  const Event failed = sim->submit(lanes.host, failing);
  Op dependent = fixed("dependent", 10, {failed});
  dependent.body = [&](BodyContext&) { ++ran; };
  const Event poisoned = sim->submit(lanes.device, dependent);
  EXPECT_NO_THROW(sim->host_wait(before));
  EXPECT_THROW(sim->host_wait(poisoned), RunError);
  EXPECT_THROW(sim->host_wait(failed), RunError);
  EXPECT_EQ(ran, 0);
  EXPECT_NO_THROW(sim->drain());  // it was reported
  dependent.after.clear();
  EXPECT_NO_THROW(sim->host_wait(sim->submit(lanes.device, dependent)));
  EXPECT_EQ(ran, 1);

  sim->submit(lanes.host, failing);
  EXPECT_THROW(sim->drain(), RunError);  // nobody waited for it
  EXPECT_NO_THROW(sim->drain());
}

TEST(SimDevice, EventsFromTheFutureAndLanesThatDoNotExist) {
  auto sim = make_sim_device(round_profile());
  EXPECT_THROW(sim->host_wait({1, 1}), LogicError);
  EXPECT_THROW(sim->host_wait({77, 1}), LogicError);
  EXPECT_THROW(sim->submit(99, fixed("x", 1)), LogicError);
  EXPECT_THROW(sim->submit(1, fixed("x", 1, {{1, 1}})), LogicError);
  EXPECT_NO_THROW(sim->host_wait({}));
}

TEST(SimDevice, DeviceMemoryIsLimitedHostMemoryIsNot) {
  auto sim = make_sim_device(round_profile());  // 1 GB
  DeviceBuffer most = sim->allocate_device(900'000'000, "weights");
  try {
    sim->allocate_device(200'000'000, "kv");
    FAIL();
  } catch (const RunError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("kv"), HasSubstr("200000000"), HasSubstr("'round'")));
  }
  EXPECT_NO_THROW(sim->allocate_host(2'000'000'000, "host kv"));
  most = {};
  const DeviceBuffer again = sim->allocate_device(200'000'000, "kv");
  sim.reset();
  EXPECT_EQ(again.bytes(), 200'000'000u);  // outlives its device
}

}  // namespace
}  // namespace tandem
