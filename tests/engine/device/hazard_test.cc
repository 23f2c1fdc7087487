#include "engine/device/hazard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <set>

#include "engine/device/sim_device.h"
#include "tests/engine/device/judge.h"
#include "tests/engine/device/test_profile.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Form = ScheduleOp::Form;

Access touch(bool write, BufferId buffer, Range pages = {}, Range heads = {}, std::uint32_t sequence = 0,
             std::uint32_t layer = 0) {
  return {{buffer, sequence, layer, heads, pages}, write};
}
Access reads(BufferId buffer, Range pages = {}, Range heads = {}) {
  return touch(false, buffer, pages, heads);
}
Access writes(BufferId buffer, Range pages = {}, Range heads = {}) {
  return touch(true, buffer, pages, heads);
}

ScheduleOp on(LaneId lane, const char* name, std::vector<Access> access, std::vector<Event> after = {}) {
  ScheduleOp op;
  op.name = name;
  op.lane = lane;
  op.access = std::move(access);
  op.after = std::move(after);
  return op;
}

ScheduleOp host_wait(Event event) {
  ScheduleOp op = on(0, "host wait", {}, {event});
  op.form = Form::host_wait;
  return op;
}

ScheduleOp host_access(Access access) {
  ScheduleOp op = on(0, access.write ? "host write" : "host read", {access});
  op.form = Form::host_access;
  return op;
}

std::optional<std::string> first_hazard(const std::vector<ScheduleOp>& schedule) {
  HazardChecker checker;
  try {
    for (const ScheduleOp& op : schedule) checker.add(op);
  } catch (const HazardError& error) {
    return error.what();
  }
  return std::nullopt;
}

TEST(Hazard, EachKindIsFoundAndEachEdgeResolvesIt) {
  for (const auto& [first, second, kind] :
       std::vector<std::tuple<Access, Access, std::string>>{{writes(1), reads(1), "read after write"},
                                                            {reads(1), writes(1), "write after read"},
                                                            {writes(1), writes(1), "write after write"}}) {
    EXPECT_THAT(first_hazard({on(1, "first", {first}), on(2, "second", {second})}).value_or(""), HasSubstr(kind));
    EXPECT_EQ(first_hazard({on(1, "first", {first}), on(2, "second", {second}, {{1, 1}})}), std::nullopt);
    EXPECT_EQ(first_hazard({on(1, "first", {first}), on(1, "second", {second})}), std::nullopt);
    EXPECT_EQ(first_hazard({on(1, "first", {first}), host_wait({1, 1}), on(2, "second", {second})}), std::nullopt);
  }
  EXPECT_EQ(first_hazard({on(1, "first", {reads(1)}), on(2, "second", {reads(1)})}), std::nullopt);
}

TEST(Hazard, OrderThroughOtherLanes) {
  const std::vector<ScheduleOp> chain = {on(1, "a", {writes(1)}), on(2, "b", {}, {{1, 1}}), on(2, "c", {}),
                                         on(3, "d", {reads(1)}, {{2, 2}})};
  EXPECT_EQ(first_hazard(chain), std::nullopt);
  std::vector<ScheduleOp> broken = chain;
  broken[1].after.clear();
  EXPECT_NE(first_hazard(broken), std::nullopt);
}

TEST(Hazard, OnlyOverlappingExtentsConflict) {
  const auto conflict = [](Access a, Access b) { return first_hazard({on(1, "a", {a}), on(2, "b", {b})}).has_value(); };
  EXPECT_TRUE(conflict(writes(1, {0, 4}), reads(1, {3, 5})));
  EXPECT_FALSE(conflict(writes(1, {0, 4}), reads(1, {4, 5})));
  EXPECT_FALSE(conflict(writes(1, {0, 4}, {0, 2}), reads(1, {0, 4}, {2, 3})));
  EXPECT_TRUE(conflict(writes(1, {0, 4}, {0, 3}), reads(1, {0, 4}, {2, 3})));
  EXPECT_FALSE(conflict(writes(1), reads(2)));
  EXPECT_FALSE(conflict(touch(true, 1, {}, {}, 0, 0), touch(false, 1, {}, {}, 1, 0)));
  EXPECT_FALSE(conflict(touch(true, 1, {}, {}, 0, 0), touch(false, 1, {}, {}, 0, 1)));
}

TEST(Hazard, TheControlThreadTakesPart) {
  EXPECT_EQ(first_hazard({host_access(writes(1)), on(1, "kernel", {reads(1)})}), std::nullopt);
  EXPECT_THAT(first_hazard({on(1, "kernel", {writes(1)}), host_access(reads(1))}).value_or(""), HasSubstr("host read"));
  EXPECT_THAT(first_hazard({on(1, "kernel", {reads(1)}), host_access(writes(1))}).value_or(""),
              HasSubstr("host write"));
  EXPECT_EQ(first_hazard({on(1, "kernel", {writes(1)}), host_wait({1, 1}), host_access(reads(1))}), std::nullopt);
}

TEST(Hazard, TheSentenceNamesEverything) {
  const ScheduleNames names{{"control", "device", "d2h"}, [](BufferId) { return std::string("kv.host"); }};
  HazardChecker checker(&names);
  ScheduleOp append = on(1, "append kv", {touch(true, 9, {4, 8}, {0, 2}, 3, 7)});
  append.layer = 7;
  checker.add(append);
  ScheduleOp attend = on(2, "attend", {touch(false, 9, {6, 12}, {1, 2}, 3, 7)});
  attend.layer = 8;
  try {
    checker.add(attend);
    FAIL();
  } catch (const HazardError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("append kv"), HasSubstr("attend"), HasSubstr("device"), HasSubstr("d2h"),
                                    HasSubstr("kv.host"), HasSubstr("sequence 3"), HasSubstr("layer 8"),
                                    HasSubstr("meet in heads 1..2 pages 6..8")));
  }
  attend.after = {{1, 1}};
  EXPECT_NO_THROW(checker.add(attend));  // the refused entry was not appended
}

TEST(Hazard, ADominatedAccessStillProtects) {
  // The read on lane 1 is inside the later, ordered write of lane 2, which stands for it.
  EXPECT_NE(first_hazard(
                {on(1, "r", {reads(1, {2, 3})}), on(2, "w", {writes(1)}, {{1, 1}}), on(3, "w2", {writes(1, {2, 3})})}),
            std::nullopt);
  // A read does not stand for the write before it.
  EXPECT_NE(first_hazard({on(1, "w", {writes(1)}), on(2, "r", {reads(1)}, {{1, 1}}), on(3, "r2", {reads(1)})}),
            std::nullopt);
}

TEST(Hazard, MemoryIsBoundedByWhatTheControlThreadHasNotSeen) {
  HazardChecker checker;
  for (std::uint64_t i = 1; i <= 20000; ++i) {
    checker.add(on(1, "write",
                   {touch(true, static_cast<BufferId>(i % 100), {0, 8}, {}, 0, static_cast<std::uint32_t>(i % 7))}));
    if (i % 50 == 0) checker.add(host_wait({1, i}));
  }
  EXPECT_LT(checker.kept(), 5000u);
  HazardChecker repeated;
  for (std::uint64_t i = 1; i <= 20000; ++i) repeated.add(on(1 + i % 2, "read", {reads(5)}));
  EXPECT_LT(repeated.kept(), 10u);
}

// Oracle: reachability over the whole graph, all pairs of accesses, no clocks, no pruning.
bool has_hazard_slowly(const std::vector<ScheduleOp>& schedule) {
  const std::size_t n = schedule.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  std::vector<std::vector<std::size_t>> values(16);
  std::vector<std::size_t> controls;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::size_t> edges = controls;
    if (schedule[i].form == Form::op && !values[schedule[i].lane].empty())
      edges.push_back(values[schedule[i].lane].back());
    for (const Event& e : schedule[i].after) edges.push_back(values[e.lane][e.value - 1]);
    for (const std::size_t e : edges) {
      before[e][i] = true;
      for (std::size_t k = 0; k < e; ++k) {
        if (before[k][e]) before[k][i] = true;
      }
    }
    if (schedule[i].form == Form::op) values[schedule[i].lane].push_back(i);
    if (schedule[i].form != Form::op) controls.push_back(i);
  }
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < j; ++i) {
      if (before[i][j]) continue;
      for (const Access& a : schedule[i].access) {
        for (const Access& b : schedule[j].access) {
          if (!a.write && !b.write) continue;
          const Extent &x = a.extent, &y = b.extent;
          std::set<std::uint32_t> pages, heads;
          for (std::uint32_t p = x.pages.begin; p < x.pages.end; ++p) pages.insert(p);
          for (std::uint32_t h = x.heads.begin; h < x.heads.end; ++h) heads.insert(h);
          bool page = false, head = false;
          for (std::uint32_t p = y.pages.begin; p < y.pages.end; ++p) page = page || pages.contains(p);
          for (std::uint32_t h = y.heads.begin; h < y.heads.end; ++h) head = head || heads.contains(h);
          if (x.buffer == y.buffer && x.sequence == y.sequence && x.layer == y.layer && page && head) return true;
        }
      }
    }
  }
  return false;
}

std::vector<ScheduleOp> random_schedule(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  std::vector<ScheduleOp> schedule;
  std::vector<Event> events;
  std::vector<std::uint64_t> count(4);
  const std::uint32_t size = 4 + below(12);
  for (std::uint32_t i = 0; i < size; ++i) {
    const auto access = [&] {
      const std::uint32_t p = below(4), h = below(2);
      return touch(below(3) == 0, 1 + below(2), {p, p + 1 + below(3)}, {h, h + 1 + below(2)}, 0, below(2));
    };
    if (!events.empty() && below(6) == 0) {
      schedule.push_back(host_wait(events[below(static_cast<std::uint32_t>(events.size()))]));
      continue;
    }
    if (below(10) == 0) {
      schedule.push_back(host_access(access()));
      continue;
    }
    const LaneId lane = 1 + below(3);
    ScheduleOp op = on(lane, "op", {});
    for (std::uint32_t a = below(4); a > 0; --a) op.access.push_back(access());
    for (std::uint32_t e = below(4); e > 0 && !events.empty(); --e) {
      op.after.push_back(events[below(static_cast<std::uint32_t>(events.size()))]);
    }
    schedule.push_back(op);
    events.push_back({lane, ++count[lane]});
  }
  return schedule;
}

TEST(Hazard, AgreesWithReachabilityOnRandomSchedules) {
  int with = 0, without = 0;
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const std::vector<ScheduleOp> schedule = random_schedule(seed);
    const bool expected = has_hazard_slowly(schedule);
    ASSERT_EQ(first_hazard(schedule).has_value(), expected) << seed;
    ++(expected ? with : without);
  }
  EXPECT_GT(with, 300);
  EXPECT_GT(without, 300);
}

TEST(JudgeEdge, CaughtImpliedAndMissed) {
  const std::vector<ScheduleOp> schedule = {
      on(1, "produce", {writes(1)}),
      on(2, "consume", {reads(1)}, {{1, 1}}),       // caught
      on(3, "late", {reads(1)}, {{1, 1}, {2, 1}}),  // the first is implied by the second; the second is not needed ...
      on(2, "unrelated", {reads(2)}, {{3, 1}}),     // missed
      host_wait({2, 2}),                            // caught by the read below
      host_access(writes(1)),
  };
  const auto verdict = [&](std::size_t op, std::size_t edge) { return judge_edge(schedule, op, edge).verdict; };
  EXPECT_EQ(verdict(1, 0), EdgeVerdict::caught);
  EXPECT_EQ(verdict(2, 0), EdgeVerdict::implied);
  EXPECT_EQ(verdict(2, 1), EdgeVerdict::missed);  // ... since the first orders it after "produce"
  EXPECT_EQ(verdict(3, 0), EdgeVerdict::caught);  // the host write would race with "late"
  EXPECT_EQ(verdict(4, 0), EdgeVerdict::caught);
  const EdgeReport report = judge_edge(schedule, 1, 0);
  EXPECT_THAT(report.hazard, AllOf(HasSubstr("produce"), HasSubstr("consume")));
  EXPECT_THROW(judge_edge(schedule, 0, 0), LogicError);
  EXPECT_EQ(judge_all_edges(schedule).size(), 5u);
}

TEST(JudgeEdge, AllEdgesAgreeWithTheOracle) {
  int judged[3] = {};
  for (std::uint32_t seed = 0; seed < 3000; ++seed) {
    const std::vector<ScheduleOp> schedule = random_schedule(seed);
    if (has_hazard_slowly(schedule)) continue;
    for (const EdgeReport& report : judge_all_edges(schedule)) {
      std::vector<ScheduleOp> changed = schedule;
      std::vector<Event>& after = changed[report.op_index].after;
      after.erase(after.begin() + static_cast<std::ptrdiff_t>(report.edge_index));
      ASSERT_EQ(has_hazard_slowly(changed), report.verdict == EdgeVerdict::caught) << seed;
      ASSERT_EQ(judge_edge(schedule, report.op_index, report.edge_index).verdict, report.verdict);
      ++judged[static_cast<int>(report.verdict)];
    }
  }
  for (const int count : judged) EXPECT_GT(count, 50);
}

TEST(JudgeEdge, TwoThousandOperationsTakeSeconds) {
  // A ring of four lanes over a buffer per layer; every edge is needed.
  std::vector<ScheduleOp> schedule;
  std::vector<std::uint64_t> count(4);
  Event last;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const LaneId lane = 1 + i % 3;
    ScheduleOp op = on(lane, "op", {touch(i % 2 == 0, 1, {0, 16}, {}, 0, 0), touch(false, 2, {i, i + 1})});
    for (std::uint32_t k = 0; k < 8; ++k) op.access.push_back(touch(false, 3, {k * 2, k * 2 + 1}, {}, k, i % 32));
    if (last.valid()) op.after.push_back(last);
    schedule.push_back(op);
    last = {lane, ++count[lane]};
  }
  const std::vector<EdgeReport> reports = judge_all_edges(schedule);
  EXPECT_EQ(reports.size(), 1999u);
  for (const EdgeReport& report : reports) EXPECT_NE(report.verdict, EdgeVerdict::implied);
}

TEST(SimHazard, TheDeviceChecksAndRecords) {
  SimOptions options;
  std::vector<ScheduleOp> schedule;
  options.schedule = &schedule;
  auto sim = make_sim_device(round_profile(), options);
  const DeviceBuffer buffer = sim->allocate_device(64, "shared rows");
  Op write;
  write.name = "write rows";
  write.access = {buffer.writes(0, 4)};
  const Event written = sim->submit(sim->lane(LaneKind::device_compute), write);
  Op read;
  read.name = "copy rows";
  read.access = {buffer.reads(2, 3)};
  try {
    sim->submit(sim->lane(LaneKind::d2h), read);
    FAIL();
  } catch (const HazardError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("write rows"), HasSubstr("copy rows"), HasSubstr("shared rows"), HasSubstr("d2h")));
  }
  read.after = {written};
  sim->host_wait(sim->submit(sim->lane(LaneKind::d2h), read));
  sim->drain();
  ASSERT_EQ(schedule.size(), 4u);  // write, read, wait, drain
  const std::vector<EdgeReport> reports = judge_all_edges(schedule, &schedule_names(*sim));
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].verdict, EdgeVerdict::caught);
  EXPECT_THAT(reports[0].hazard, HasSubstr("shared rows"));
  EXPECT_EQ(reports[1].verdict, EdgeVerdict::missed);
}

TEST(SimHazard, SettledAccessesReplaceDeclaredOnes) {
  auto sim = make_sim_device(round_profile());
  const HostBuffer buffer = sim->allocate_host(64, "pages");
  Op gather;
  gather.name = "gather";
  gather.access = {buffer.reads()};
  gather.body = [=](BodyContext& context) { context.settle(Cost{}, {buffer.reads(0, 2)}); };
  sim->submit(sim->lane(LaneKind::host_workers), gather);
  Op append;
  append.name = "append";
  append.access = {buffer.writes(2, 3)};
  EXPECT_NO_THROW(sim->submit(sim->lane(LaneKind::d2h), append));
  append.access = {buffer.writes(1, 2)};
  EXPECT_THROW(sim->submit(sim->lane(LaneKind::d2h), append), HazardError);
}

TEST(SettledAccess, LiesWithinWhatWasDeclared) {
  const auto extent = [](Range pages, Range heads = {0, 4}, BufferId buffer = 1) {
    return Extent{.buffer = buffer, .sequence = 2, .layer = 3, .heads = heads, .pages = pages};
  };
  const std::vector<Access> declared = {{extent({0, 4}), false}, {extent({4, 8}, {0, 2}), true}};
  const auto refusal = [&](const Extent& settled, bool write) {
    try {
      check_settled_inside("op", declared, {{settled, write}}, {});
    } catch (const LogicError& error) {
      return std::string(error.what());
    }
    return std::string("inside");
  };
  EXPECT_EQ(refusal(extent({1, 3}), false), "inside");
  EXPECT_EQ(refusal(extent({1, 7}, {0, 2}), false), "inside") << "of two that lie side by side";
  EXPECT_EQ(refusal(extent({5, 8}, {1, 2}), true), "inside");
  EXPECT_EQ(refusal(extent({4, 4}), false), "inside") << "no page of it";
  EXPECT_THAT(refusal(extent({1, 7}), false), HasSubstr("had not declared")) << "heads 2 and 3";
  EXPECT_THAT(refusal(extent({3, 5}, {0, 2}), true), HasSubstr("a write of 'buffer 1'"));
  EXPECT_THAT(refusal(extent({7, 9}, {0, 2}), false), HasSubstr("had not declared"));
  EXPECT_THAT(refusal(extent({4, 4}, {0, 4}, 9), false), HasSubstr("had not declared")) << "another buffer";
}

}  // namespace
}  // namespace tandem
