#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/reproduce/reproduce.h"
#include "tests/eval/reproduce/changed.h"

namespace tandem::eval {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// KV of 32 sequences of 128K takes 137 GB, the weights 2.5: one device has 80 GB, two have 160.
constexpr const char* kSplit = R"({
 "name": "split", "title": "One device or two", "source": "made up",
 "hardware": "fluxion-a100", "model": "llama-3.2-1b", "workload": "published", "notes": [], "free": [],
 "runs": [
  {"name": "one", "method": "full", "context": 131072, "batch": 32, "devices": 1, "steps": 2, "rule": "exactly"},
  {"name": "two", "method": "full", "context": 131072, "batch": 32, "devices": 2, "steps": 2, "rule": "exactly"},
  {"name": "half", "method": "full", "context": 131072, "batch": 16, "steps": 2, "rule": "exactly"},
  {"name": "half on two", "method": "full", "context": 131072, "batch": 16, "devices": 2, "steps": 2, "rule": "exactly"}],
 "cells": [],
 "orders": [{"figure": "1", "says": "one device is too small", "slowest_first": ["one", "two"]},
            {"figure": "1", "says": "devices take turns", "slowest_first": ["half", "half on two"]},
            {"figure": "2", "says": "more sequences gain more", "slowest_first": ["half on two", "two"], "over": ["half", "half"]}]
})";

TEST(HgcaExperiment, DevicesThatTakeTurnsAddMemoryAlone) {
  const Reproduction result = reproduce(parse_experiment(kSplit, "split"), {});
  ASSERT_EQ(result.orders.size(), 3u);
  EXPECT_FALSE(result.orders[0].values[0]) << "it does not fit";
  EXPECT_TRUE(result.orders[0].values[1]);
  EXPECT_TRUE(result.orders[0].holds);
  EXPECT_EQ(result.orders[1].values[0], result.orders[1].values[1]);
  EXPECT_DOUBLE_EQ(result.orders[2].values[0].value(), 1);
  EXPECT_GT(result.orders[2].values[1].value(), 1);
  for (const bool markdown : {false, true})
    EXPECT_THAT(reproduction_text(result, markdown), HasSubstr("1.00\u00d7 < 1."));
  EXPECT_THAT(reproduction_json(result), HasSubstr("\"speed_up\""));
}

TEST(HgcaExperiment, SaysWhatIsWrong) {
  const auto parse = [](const char* from, const char* to) {
    return [=] { parse_experiment(changed(kSplit, from, to), "x.json"); };
  };
  EXPECT_THAT(parse("\"devices\": 2", "\"devices\": 0"), ThrowsMessage<InputError>(HasSubstr("devices")));
  EXPECT_THAT(parse("[\"half\", \"half\"]", "[\"half\"]"), ThrowsMessage<InputError>(HasSubstr("over")));
  EXPECT_THAT(parse("[\"half\", \"half\"]", "[\"half\", \"third\"]"),
              ThrowsMessage<InputError>(HasSubstr("the run 'third'")));
}

/// tokens/s = 1000 batch / step.
RunOutcome run(std::uint32_t batch, double step_ms) {
  RunOutcome outcome;
  outcome.batch = batch;
  outcome.row.step_ms = step_ms;
  outcome.step_ms = {step_ms, step_ms};
  return outcome;
}

TEST(HgcaExperiment, AnOrderOfSpeedUpsComparesEachWithItsOwn) {
  const RunOutcome a = run(1, 10), b = run(8, 40), slow_a = run(1, 20), slow_b = run(8, 160);
  const RunsByName known = {{"a", &a}, {"b", &b}, {"slow a", &slow_a}, {"slow b", &slow_b}};
  Order order{.figure = "1", .says = "", .runs = {"a", "b"}, .over = {"slow a", "slow b"}};
  EXPECT_THAT(judge(order, known).values, ElementsAre(2, 4));
  EXPECT_TRUE(judge(order, known).holds);
  EXPECT_TRUE(judge(order, known).over_last.empty()) << "steps of other batches";
  order.over = {"slow a", "missing"};
  EXPECT_FALSE(judge(order, known).values[1]);
  EXPECT_FALSE(judge(order, known).holds);
}

// "Comparable" is neither a gain nor a loss, on either side.
TEST(HgcaExperiment, APublishedSpeedUpOfOneMayBeMissedUpwards) {
  CellOutcome outcome;
  outcome.cell.quantity = Quantity::speed_up;
  outcome.cell.published = 1;
  outcome.cell.aim = 0.25;
  for (const auto& [ours, within] : {std::pair(0.9, true), {1.1, true}, {1.3, false}, {0.7, false}}) {
    outcome.ours = ours;
    EXPECT_EQ(outcome.within_aim(), within) << ours;
  }
}

TEST(HgcaExperiment, TokensPerSecondFallBehindTheWindow) {
  ReproduceOptions options;
  options.figure = "15";
  const Reproduction result = reproduce(load_experiment("hgca"), options);
  ASSERT_EQ(result.orders.size(), 1u);
  EXPECT_TRUE(result.orders[0].holds);
  ASSERT_EQ(result.cells.size(), 1u);
  EXPECT_GT(result.cells[0].ours.value(), 26.03e9 / 768e6) << "ms that the weights alone take";
}

}  // namespace
}  // namespace tandem::eval
