// What Fluxion's figures add to experiments: free parameters of the machine, several models, mixed lengths, times per
// layer and per token, shares of selection and predictor, schedules beside their bound.
#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/reproduce/reproduce.h"
#include "tests/eval/reproduce/changed.h"

namespace tandem::eval {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::string small_fluxion() {
  return R"({
 "name": "small", "title": "A small experiment", "source": "made up",
 "hardware": "fluxion-a100", "model": "llama-3.2-1b", "workload": "published", "notes": [],
 "free": [{"name": "efficiency", "meaning": "of the CPU", "low": 0.1, "high": 1, "kind": "cpu efficiency", "cell": "idle ms"},
          {"name": "overhead", "meaning": "of a layer", "low": 0.01, "high": 9, "kind": "layer overhead", "cell": "idle"}],
 "calibrations": [{"name": "share", "run": "even", "low": 0.2, "high": 0.9, "seed": 5}],
 "runs": [
  {"name": "hybrid", "method": "hybrid-fixed:budget=0.05", "context": 8192, "batch": 2, "steps": 3, "rule": "exactly"},
  {"name": "qwen", "model": "qwen2.5-0.5b", "method": "hybrid-fixed:budget=0.05", "context": 8192, "batch": 2, "steps": 3, "rule": "exactly"},
  {"name": "fluxion", "method": "fluxion:heads=published", "context": 8192, "batch": 2, "steps": 3, "rule": "exactly"},
  {"name": "mixed", "method": "fluxion:heads=published", "lengths": [2048, 8192], "seeds": 5, "batch": 3, "steps": 3, "rule": "exactly"},
  {"name": "mixed cpu", "method": "fluxion:heads=published,policy=cpu-only", "lengths": [2048, 8192], "seeds": 5, "batch": 3, "steps": 3, "rule": "exactly"},
  {"name": "even", "method": "fluxion:heads=published,policy=uniform,cpu_share={share}", "lengths": [2048, 8192], "seeds": 5, "batch": 3, "steps": 3, "rule": "exactly"}],
 "cells": [
  {"name": "idle ms", "figure": "table1", "quantity": "idle_ms", "run": "hybrid", "published": 0.5, "aim": 0.2, "null_model": 0.55},
  {"name": "idle", "figure": "table1", "quantity": "idle_ratio", "run": "hybrid", "published": 0.4, "aim": 0.1},
  {"name": "tpot", "figure": "2", "quantity": "tpot_ms", "run": "qwen", "published": 3, "aim": 0.2, "source": true},
  {"name": "selection", "figure": "2", "quantity": "selection_share", "run": "hybrid", "published": 0.2, "aim": 0.2, "null_model": 0.5},
  {"name": "predictor", "figure": "3", "quantity": "predictor_share", "run": "fluxion", "published": 0.08, "aim": 0.08, "at_most": 0.0001},
  {"name": "gain", "figure": "3", "quantity": "speed_up", "run": "mixed", "over": "mixed cpu", "published": 1.2, "aim": 0.2, "derived": true}],
 "orders": [{"figure": "3", "says": "hybrid is idle most", "most_idle_first": ["hybrid", "fluxion"]},
            {"figure": "3", "says": "priority is faster", "slowest_first": ["mixed cpu", "mixed"]},
            {"figure": "3", "says": "qwen is slower", "slowest_first": ["qwen", "fluxion"], "source": true},
            {"figure": "3", "says": "a run is faster than itself", "slowest_first": ["mixed", "mixed"], "ours": true}]
})";
}

const RunOutcome& run_of(const Reproduction& result, const std::string& name) {
  for (const RunOutcome& run : result.runs)
    if (run.name == name) return run;
  throw std::logic_error("no run " + name);
}

TEST(FluxionExperiment, FitsTheMachineAndMeasuresEveryQuantity) {
  const Reproduction result = reproduce(parse_experiment(small_fluxion(), "small"), {});
  const auto cell = [&](std::size_t i) { return result.cells.at(i).ours.value(); };
  ASSERT_EQ(result.fitted.size(), 2u);
  EXPECT_NEAR(cell(0), 0.5, 0.0026);  // the CPU's rate: idle times do not depend on what a layer takes beside
  EXPECT_NEAR(cell(1), 0.4, 0.0026);
  const RunOutcome &hybrid = run_of(result, "hybrid"), &qwen = run_of(result, "qwen"),
                   &fluxion = run_of(result, "fluxion"), &mixed = run_of(result, "mixed"),
                   &cpu = run_of(result, "mixed cpu");
  EXPECT_EQ(hybrid.layers, 16u);
  EXPECT_EQ(qwen.layers, 24u);
  EXPECT_DOUBLE_EQ(cell(0), hybrid.row.idle_ms / 16);
  EXPECT_DOUBLE_EQ(cell(1), hybrid.row.idle_ms / hybrid.row.step_ms);
  // The overhead is in every layer of both models, on top of what the device does.
  const double overhead = result.fitted[1].value;
  EXPECT_GT(qwen.row.busy_ms, 24 * overhead);
  EXPECT_LT(qwen.row.busy_ms, 24 * overhead + 3);
  EXPECT_DOUBLE_EQ(cell(2), qwen.row.step_ms / 2);
  // Digests are 2/16 of a vector per token; what is chosen at least 5 % and at most 4 x 5 % of two.
  EXPECT_GT(cell(3), 0.125 / (0.125 + 0.4));
  EXPECT_LT(cell(3), 0.125 / (0.125 + 0.1));
  EXPECT_EQ(cell(4), fluxion.tasks.predict_ms / fluxion.row.step_ms);
  EXPECT_GT(fluxion.tasks.predict_ms, 16 * 4 * 0.002);  // four kernels a layer
  EXPECT_LT(fluxion.tasks.predict_ms, 0.1 * fluxion.row.step_ms);
  EXPECT_FALSE(result.cells[4].below_most());
  // Relative: 8 points beside a published 8 % could not be missed.
  EXPECT_DOUBLE_EQ(result.cells[4].error_of(cell(4)), cell(4) / 0.08 - 1);
  EXPECT_FALSE(result.cells[4].within_aim());
  // No schedule beats its bound, and both sides at once are faster than one.
  for (const RunOutcome* run : {&fluxion, &mixed, &cpu}) {
    EXPECT_GT(run->tasks.bound_ms, 0) << run->name;
    EXPECT_GE(run->tasks.tasks_ms, run->tasks.bound_ms) << run->name;
    EXPECT_LT(run->tasks.tasks_ms, run->row.idle_ms) << run->name;
  }
  EXPECT_EQ(hybrid.tasks.bound_ms, 0);
  EXPECT_NEAR(mixed.tasks.bound_ms, cpu.tasks.bound_ms, 0.02 * cpu.tasks.bound_ms);  // whoever takes them
  EXPECT_THAT(fluxion.method, Not(HasSubstr("{")));
  ASSERT_EQ(mixed.step_ms.size(), 5u);
  std::vector<double> ratios;
  double mean_step = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    ratios.push_back(cpu.step_ms[i] / mixed.step_ms[i]);
    mean_step += mixed.step_ms[i] / 5;
  }
  EXPECT_NEAR(mixed.row.step_ms, mean_step, 1e-9);
  std::sort(ratios.begin(), ratios.end());
  EXPECT_DOUBLE_EQ(cell(5), ratios[2]);  // the median
  ASSERT_EQ(result.orders.size(), 4u);
  EXPECT_TRUE(result.orders[0].holds);
  EXPECT_TRUE(result.orders[1].holds);
  ASSERT_EQ(result.orders[1].over_last.size(), 1u);
  EXPECT_GT(result.orders[1].over_last[0].interval.low, 1);
  EXPECT_LT(result.orders[1].over_last[0].interval.low, result.orders[1].over_last[0].value);
  EXPECT_TRUE(result.orders[0].over_last.empty());
  EXPECT_EQ(result.orders[0].idle_ms,
            (std::vector<std::optional<double>>{hybrid.row.idle_ms / 16, fluxion.row.idle_ms / 16}));
  EXPECT_FALSE(result.orders[3].holds);
  for (const bool markdown : {false, true}) {
    const std::string text = reproduction_text(result, markdown);
    for (const char* part :
         {"source of the workload", "NOT at most", "ms idle", "95 % interval", "Tasks that CPU and device share",
          "1 of 2 predicted cells", "(8 %, 20 %, 20 points of a share)", "0 of 1 of its cells", "1 of 1.",
          "2 of 2 predicted orders", "sources decide, 1 of 1", "yes; decided by sources", "NO; an option of ours",
          "does not have, 0 of 1"})
      EXPECT_THAT(text, HasSubstr(part)) << markdown;
  }
  EXPECT_THAT(reproduction_json(result), HasSubstr("step_ms_by_seed"));
  EXPECT_THAT(reproduction_json(result), HasSubstr("\"decided_by_source\": true"));
}

TEST(FluxionExperiment, CalibratesOnABatchOfItsOwn) {
  Experiment e = parse_experiment(small_fluxion(), "small");
  e.free.clear();
  e.cells.clear();
  e.orders = {{"4", "calibrated", {"mixed cpu", "even"}}};
  const Reproduction result = reproduce(e, {});
  ASSERT_EQ(result.calibrated.size(), 1u);
  const CalibratedValue& c = result.calibrated[0];
  EXPECT_GE(c.trials.size(), 12u);
  EXPECT_GT(c.value, 0.2);
  const auto same = [&](const CalibratedValue::Trial& t) { return t.share == c.value; };
  const auto best = std::find_if(c.trials.begin(), c.trials.end(), same);
  ASSERT_NE(best, c.trials.end());
  for (const CalibratedValue::Trial& t : c.trials) EXPECT_LE(best->step_ms, t.step_ms) << t.share;
  // Its step is that of the batch it was calibrated on, which is none of the run's.
  const RunOutcome& even = run_of(result, "even");
  EXPECT_THAT(even.method, HasSubstr(fmt::format("cpu_share={:.6g}", c.value)));
  EXPECT_THAT(even.step_ms, ::testing::Not(::testing::Contains(best->step_ms)));
  e.runs.back().mixed.seeds = 6;  // now the batch is the last one
  EXPECT_EQ(run_of(reproduce(e, {}), "even").step_ms.back(), best->step_ms);
  EXPECT_THAT(reproduction_text(result, true), HasSubstr("on the batch of seed 5"));
  EXPECT_THAT(reproduction_json(result), HasSubstr("\"tried\""));
}

TEST(FluxionExperiment, AnOrderOfSeededRunsHoldsOnlyBeyondItsInterval) {
  const auto steps = [](std::vector<double> ms) {
    RunOutcome run;
    run.batch = 8;
    for (const double step : ms) run.row.step_ms += step / double(ms.size());
    run.step_ms = std::move(ms);
    return run;
  };
  const RunOutcome one = steps({10, 10, 10, 10, 10, 10}), slower = steps({11, 10.8, 11.2, 11, 10.9, 11.1}),
                   hardly = steps({11, 9.2, 10.9, 9.1, 11, 9.2});  // slower on the mean, which is chance
  const auto holds = [&](const RunOutcome& first) {
    return judge({"1", "x", {"first", "one"}}, {{"first", &first}, {"one", &one}}).holds;
  };
  ASSERT_GT(hardly.row.step_ms, one.row.step_ms);
  EXPECT_TRUE(holds(slower));
  EXPECT_FALSE(holds(hardly));
  EXPECT_FALSE(holds(one));
}

TEST(FluxionExperiment, LengthsAreThoseOfTheSeed) {
  const Mixed mixed{1000, 3000, 3};
  EXPECT_EQ(mixed_lengths(mixed, 8, 1), mixed_lengths(mixed, 8, 1));
  EXPECT_NE(mixed_lengths(mixed, 8, 1), mixed_lengths(mixed, 8, 2));
  double sum = 0;
  for (const std::uint32_t length : mixed_lengths(mixed, 4000, 0)) {
    EXPECT_GE(length, 1000u);
    EXPECT_LE(length, 3000u);
    sum += length;
  }
  EXPECT_NEAR(sum / 4000, 2000, 40);
}

TEST(FluxionExperiment, SaysWhatIsWrong) {
  const auto parse = [](const std::string& from, const std::string& to) {
    return [text = changed(small_fluxion(), from, to)] { parse_experiment(text, "x.json"); };
  };
  EXPECT_THAT(parse("[2048, 8192]", "[2048]"), ThrowsMessage<InputError>(HasSubstr("'lengths'")));
  EXPECT_THAT(parse("[2048, 8192]", "[9048, 8192]"), ThrowsMessage<InputError>(HasSubstr("'lengths'")));
  EXPECT_THAT(parse("\"seeds\": 5", "\"seeds\": 1"), ThrowsMessage<InputError>(HasSubstr("'seeds'")));
  EXPECT_THAT(parse("\"seeds\": 5", "\"seeds\": 4"), ThrowsMessage<InputError>(HasSubstr("other lengths or seeds")));
  EXPECT_THAT(parse("cpu efficiency", "gpu efficiency"), ThrowsMessage<InputError>(HasSubstr("cpu efficiency")));
  EXPECT_THAT(parse("tpot_ms", "tpot"), ThrowsMessage<InputError>(HasSubstr("selection_share")));
  EXPECT_THAT(parse("\"cell\": \"idle ms\"", "\"cell\": \"tpot\""), ThrowsMessage<InputError>(HasSubstr("idle_ms")));
  EXPECT_THAT(parse("\"run\": \"even\"", "\"run\": \"mixed\""), ThrowsMessage<InputError>(HasSubstr("lacks {share}")));
  EXPECT_THAT(parse("\"seed\": 5", "\"seed\": 4"), ThrowsMessage<InputError>(HasSubstr("none of its 5")));
  EXPECT_THAT(parse("\"high\": 0.9", "\"high\": 0.1"), ThrowsMessage<InputError>(HasSubstr("'high'")));
  EXPECT_THAT(parse("\"source\": true", "\"source\": 1"), ThrowsMessage<InputError>(HasSubstr("'source'")));
  EXPECT_THAT(parse("\"fluxion\"], \"source\": true", "\"fluxion\"], \"source\": 1"),
              ThrowsMessage<InputError>(HasSubstr("orders 3")));
}

}  // namespace
}  // namespace tandem::eval
