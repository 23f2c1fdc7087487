#include "eval/reproduce/reproduce.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <tuple>

#include "engine/common/error.h"
#include "tests/eval/reproduce/changed.h"

namespace tandem::eval {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// A small one: two methods of a 1B shape, one free parameter.
std::string small(const std::string& published_idle = "0.5") {
  return R"({
 "name": "small", "title": "A small experiment", "source": "made up",
 "hardware": "fluxion-a100", "model": "llama-3.2-1b", "workload": "published", "notes": ["a note"],
 "free": [{"name": "share", "meaning": "what the CPU attends", "low": 0.001, "high": 0.9, "kind": "real", "cell": "idle"}],
 "runs": [
  {"name": "hybrid", "method": "hybrid-fixed:budget={share},window=64,sinks=16", "context": 4096, "batch": 2, "steps": 4, "rule": "exactly"},
  {"name": "full", "method": "full", "context": 4096, "batch": 2, "steps": 4, "rule": "exactly"},
  {"name": "many", "method": "full", "context": 4096, "batch": 4, "steps": 4, "rule": "as many as fit"}],
 "cells": [
  {"name": "idle", "figure": "1", "quantity": "idle_ratio", "run": "hybrid", "published": )" +
         published_idle + R"(, "aim": 0.1},
  {"name": "gain", "figure": "2", "quantity": "speed_up", "run": "full", "over": "hybrid", "published": 2, "aim": 0.25}],
 "orders": [{"figure": "2", "says": "hybrid below full", "slowest_first": ["hybrid", "full"]},
            {"figure": "3", "says": "full below hybrid", "slowest_first": ["full", "hybrid"]},
            {"figure": "3", "says": "more is more", "slowest_first": ["full", "many"]}]
})";
}

TEST(Experiment, SaysWhatIsWrong) {
  const auto parse = [](const std::string& text) { return [text] { parse_experiment(text, "x.json"); }; };
  EXPECT_NO_THROW(parse(small())());
  EXPECT_THAT(parse(changed(small(), "\"run\": \"full\"", "\"run\": \"fool\"")),
              ThrowsMessage<InputError>(HasSubstr("x.json: the cell 'gain' names the run 'fool'")));
  EXPECT_THAT(parse(changed(small(), "{share}", "0.5")), ThrowsMessage<InputError>(HasSubstr("{share}")));
  EXPECT_THAT(parse(changed(small(), "\"cell\": \"idle\"", "\"cell\": \"gain\"")),
              ThrowsMessage<InputError>(HasSubstr("no cell of quantity idle_ratio or idle_ms")));
  EXPECT_THAT(parse(changed(small(), "idle_ratio", "idle")), ThrowsMessage<InputError>(HasSubstr("cells 1")));
  EXPECT_THAT(parse(changed(small(), "\"steps\": 4", "\"steps\": 1")), ThrowsMessage<InputError>(HasSubstr("steps")));
  EXPECT_THAT(parse(changed(small(), "\"high\": 0.9", "\"high\": 0.0001")),
              ThrowsMessage<InputError>(HasSubstr("high")));
  EXPECT_THAT([] { load_experiment("scot"); }, ThrowsMessage<InputError>(HasSubstr("scout")));
}

TEST(Experiment, AFittedRunHasOneFreeParameter) {
  std::string text = changed(
      small(), "\"cell\": \"idle\"}]",
      "\"cell\": \"idle\"},"
      " {\"name\": \"sinks\", \"meaning\": \"m\", \"low\": 1, \"high\": 9, \"kind\": \"whole\", \"cell\": \"idle\"}]");
  text = changed(text, "sinks=16", "sinks={sinks}");
  EXPECT_THAT([&] { parse_experiment(text, "x.json"); }, ThrowsMessage<InputError>(HasSubstr("a run of its own")));
}

TEST(Experiment, ShippedOnesAreRead) {
  for (const std::string& name : experiment_names()) {
    const Experiment experiment = load_experiment(name);
    EXPECT_EQ(experiment.name, name);
    EXPECT_LE(experiment.free.size(), 2u);
    EXPECT_GT(experiment.cells.size(), experiment.free.size());
  }
}

// Orders are counted whole: each has neighbours that no other order of its kind has, next to each other or further
// apart.
TEST(Experiment, EveryShippedOrderSaysSomethingOfItsOwn) {
  using Pair = std::tuple<std::string, std::string, bool>;
  for (const std::string& name : experiment_names()) {
    const std::vector<Order> orders = load_experiment(name).orders;
    std::map<Pair, int> said;
    for (const Order& order : orders) {
      for (std::size_t i = 0; i < order.runs.size(); ++i)
        for (std::size_t j = i + 1; j < order.runs.size(); ++j) ++said[{order.runs[i], order.runs[j], order.by_idle}];
    }
    for (const Order& order : orders) {
      bool own = false;
      for (std::size_t i = 0; i + 1 < order.runs.size(); ++i)
        own = own || said[{order.runs[i], order.runs[i + 1], order.by_idle}] == 1;
      EXPECT_TRUE(own) << name << ": '" << order.says << "'";
    }
  }
}

// Values that are fitted or a source of the workload stand in an order by construction, so that it predicts nothing.
TEST(Experiment, AnOrderOfWhatWasPutInIsNoPrediction) {
  for (const std::string& name : experiment_names()) {
    const Experiment e = load_experiment(name);
    const auto put_in = [&](const std::string& run, const std::string& over) {
      return std::any_of(e.cells.begin(), e.cells.end(), [&](const Cell& cell) {
        return (e.fitted(cell) || cell.source) && cell.run == run && cell.over == over;
      });
    };
    for (const Order& order : e.orders) {
      for (std::size_t i = 0; i + 1 < order.runs.size(); ++i) {
        const std::string &first = order.runs[i], &second = order.runs[i + 1];
        const bool decided = (put_in(first, "") && put_in(second, "")) || put_in(second, first);
        EXPECT_TRUE(order.source || !decided)
            << name << ": '" << order.says << "' of '" << first << "', '" << second << "'";
      }
    }
  }
  // These follow from what heads need by budget rule and by error, which the workload's file says.
  for (const Order& order : load_experiment("fluxion").orders) {
    const bool by_needs = order.says.starts_with("budgets:") || order.figure == "10";
    EXPECT_TRUE(order.source || !by_needs) << order.says;
  }
}

// An aim in points above the published share could be met by anything that is smaller.
TEST(Experiment, ASmallShareIsComparedByItsRatio) {
  CellOutcome outcome;
  outcome.cell.quantity = Quantity::idle_ratio;
  outcome.cell.published = 0.06;
  outcome.cell.aim = 0.25;
  outcome.ours = 0.0015;
  EXPECT_FALSE(outcome.cell.by_difference());
  EXPECT_NEAR(outcome.error_of(*outcome.ours), -0.975, 1e-9);
  EXPECT_FALSE(outcome.within_aim());
  outcome.ours = 0.05;
  EXPECT_TRUE(outcome.within_aim());
  outcome.cell.published = 0.57;
  outcome.ours = 0.4;
  EXPECT_TRUE(outcome.cell.by_difference());
  EXPECT_NEAR(outcome.error_of(*outcome.ours), -0.17, 1e-9);
  for (const std::string& name : experiment_names()) {
    for (const Cell& shipped : load_experiment(name).cells)
      EXPECT_LT(shipped.aim, shipped.by_difference() ? shipped.published : 1) << name << ": " << shipped.name;
  }
}

TEST(Reproduce, FitsOneCellAndPredictsTheOthers) {
  const Reproduction result = reproduce(parse_experiment(small(), "small"), {});
  ASSERT_EQ(result.fitted.size(), 1u);
  EXPECT_NEAR(result.fitted[0].reached, 0.5, 0.01);
  EXPECT_GT(result.fitted[0].value, 0.001);
  ASSERT_EQ(result.cells.size(), 2u);
  EXPECT_TRUE(result.cells[0].fitted);
  EXPECT_DOUBLE_EQ(result.cells[0].ours.value(), result.fitted[0].reached);
  EXPECT_FALSE(result.cells[1].fitted);
  const auto rate = [&](std::size_t run) { return 1e3 * result.runs[run].batch / result.runs[run].row.step_ms; };
  EXPECT_DOUBLE_EQ(result.cells[1].ours.value(), rate(1) / rate(0));
  EXPECT_EQ(result.cells[1].within_aim(), std::abs(*result.cells[1].ours / 2 - 1) <= 0.25);
  EXPECT_FALSE(result.cells[0].range) << "a fitted cell is what it was fitted to";
  ASSERT_TRUE(result.cells[1].range);
  EXPECT_LT(result.cells[1].range->low, *result.cells[1].ours);
  EXPECT_GT(result.cells[1].range->high, *result.cells[1].ours);
  EXPECT_EQ(result.runs[2].batch, 4u);  // of a room for many more
  ASSERT_EQ(result.orders.size(), 3u);
  EXPECT_TRUE(result.orders[0].holds);
  EXPECT_FALSE(result.orders[1].holds);
  EXPECT_TRUE(result.orders[2].holds);
  for (const bool markdown : {false, true}) {
    const std::string text = reproduction_text(result, markdown);
    EXPECT_THAT(text, HasSubstr("fitted"));
    EXPECT_THAT(text, HasSubstr("a note"));
    EXPECT_THAT(text, HasSubstr("simulated"));
  }
  EXPECT_EQ(reproduction_json(result), reproduction_json(reproduce(parse_experiment(small(), "small"), {})));
}

/// HGCA's threshold is above the mean weight, so a number of tokens is another threshold at every context.
TEST(Reproduce, SalientTokensAreAsManyAtEveryContext) {
  std::string text = changed(small("0.3"), "\"kind\": \"real\"", "\"kind\": \"salient\", \"window\": 1024");
  text = changed(text, "\"low\": 0.001, \"high\": 0.9", "\"low\": 50, \"high\": 2000");
  text = changed(text, "hybrid-fixed:budget={share},window=64,sinks=16", "hgca:device_kv=1024,beta={share}");
  text = changed(text, "\"method\": \"full\", \"context\": 4096",
                 "\"method\": \"hgca:device_kv=1024,beta={share}\", \"context\": 2048");
  const Reproduction result = reproduce(parse_experiment(text, "small"), {});
  const double tokens = result.fitted[0].value;
  EXPECT_GT(tokens, 50);
  // What the CPU attends, without the window on the device: half of the shorter context.
  for (const std::size_t run : {0u, 1u}) EXPECT_NEAR(result.runs[run].row.attended_host, tokens, 0.05 * tokens) << run;
  EXPECT_NE(result.runs[0].method, result.runs[1].method);
}

TEST(Reproduce, PagesAreGivenAsTokens) {
  std::string text = changed(small(), "\"kind\": \"real\"", "\"kind\": \"pages\"");
  text = changed(text, "\"low\": 0.001, \"high\": 0.9", "\"low\": 1, \"high\": 64");
  text = changed(text, "hybrid-fixed:budget={share},window=64,sinks=16",
                 "infinigen:budget={share},alpha=1e9,scope=layer,dense_layers=0");
  const Reproduction result = reproduce(parse_experiment(text, "small"), {});
  EXPECT_EQ(result.fitted[0].value, std::round(result.fitted[0].value));
  EXPECT_THAT(result.runs[0].method,
              HasSubstr("budget=" + std::to_string(32 * std::lround(result.fitted[0].value)) + ","));
}

TEST(Reproduce, ThreadsChangeNothing) {
  ReproduceOptions one, many;
  one.threads = 1;
  many.threads = 3;
  const Experiment experiment = parse_experiment(small(), "small");
  EXPECT_EQ(reproduction_json(reproduce(experiment, one)), reproduction_json(reproduce(experiment, many)));
}

TEST(Reproduce, AFigureAloneRunsWhatItNeeds) {
  ReproduceOptions options;
  options.figure = "2";
  const Reproduction result = reproduce(parse_experiment(small(), "small"), options);
  EXPECT_EQ(result.runs.size(), 2u);
  EXPECT_EQ(result.orders.size(), 1u);
  options.figure = "4";
  EXPECT_THROW(reproduce(parse_experiment(small(), "small"), options), InputError);
}

TEST(Reproduce, ACellOutOfReachIsASentence) {
  EXPECT_THAT([] { reproduce(parse_experiment(small("0.999"), "small"), {}); },
              ThrowsMessage<InputError>(HasSubstr("'idle' is published as 0.999")));
}

}  // namespace
}  // namespace tandem::eval
