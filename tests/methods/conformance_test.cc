// What every registered method answers for (docs/add_a_method.md): the invariants, the removal of every schedule edge,
// the same result on every device, exact repeats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/device/judge.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

std::vector<std::string> all_methods() {
  std::vector<std::string> names;
  for (const MethodInfo& info : method_registry()) names.push_back(info.name);
  names.emplace_back("hybrid-fixed:budget=0.3,block=32,sinks=16,window=32,union=attended");
  names.emplace_back("gpu-fetch:budget=0.3,block=32,sinks=16,window=32,union=attended");
  names.emplace_back("gpu-fetch:budget=0.1,block=128,sinks=0,window=1");
  names.emplace_back("full:device=0.6,block=16,look_ahead=0");
  names.emplace_back("full-offload:look_ahead=0");
  names.emplace_back("full-offload:look_ahead=9");
  names.emplace_back("h2o:budget=64");
  names.emplace_back("h2o:budget=0.3,heavy=0.1");
  names.emplace_back("quest:budget=96");
  names.emplace_back("quest:budget=0.3,page=32,sinks=20,group_reduce=mean,dense_layers=1");
  names.emplace_back("quest:budget=64,group_reduce=per_head");
  names.emplace_back("quest:budget=96,digest=mean");
  names.emplace_back("quest:budget=96,device=0.5");
  names.emplace_back("hybrid-fixed:budget=0.3,block=32,sinks=16,window=32,digest=mean");
  names.emplace_back("tova:budget=50");
  names.emplace_back("tova:budget=50,device=0.6,look_ahead=0");
  names.emplace_back("tova:budget=0.2,evict=yes");
  names.emplace_back("asyncspade:budget=50,window=6,pack=1");
  names.emplace_back("asyncspade:budget=0.3,window=4,pack=1,place=host,rope=pre");
  names.emplace_back("asyncspade:budget=60,window=5,place=host,theta=5");
  names.emplace_back("streaming:sinks=5,window=19");
  names.emplace_back("hgca:device_kv=64,block=16,beta=0.7");
  names.emplace_back("hgca:device_kv=128,block=64,pad=attended,obs=8");
  names.emplace_back("infinigen:budget=64,fetch=token,alpha=1,dense_layers=0");
  names.emplace_back("infinigen:budget=0.5,partial=0.5,dense_layers=1");
  names.emplace_back("scoutattention:budget=128,block=16,sinks=16,recall=3");
  names.emplace_back("freekv:budget=128,block=16,sinks=16,window=32,tau=0.5");
  names.emplace_back("freekv:budget=112,block=16,sinks=0,window=16,tau=0.3,reduce=mean,dense_layers=0");
  names.emplace_back("hisparse:budget=96,buffer=160");
  names.emplace_back("hisparse:budget=96,buffer=128,block=32,start=prefix,scope=layer");
  names.emplace_back("scoutattention:budget=128,block=32,sinks=0,recall=1,scope=kv_head,device_scope=selected");
  names.emplace_back("scoutattention:budget=160,sinks=32,recall=2,layer0=resident,pred_norm=own");
  names.emplace_back("scoutattention:budget=128,block=16,sinks=16,recall=3,ahead=none");
  names.emplace_back("infinigen:budget=64,scope=layer,dense_layers=0");
  names.emplace_back("infinigen:budget=40,fetch=token,alpha=1,scope=query_head,dense_layers=0");
  names.emplace_back("fluxion:bgt=0.1,slope=0.02,sinks=16,window=32");
  names.emplace_back("fluxion:bgt=0.2,sinks=0,window=40,policy=uniform,cpu_share=0.5");
  names.emplace_back("fluxion:bgt=0.05,slope=0,sinks=16,window=1,spill=1");
  names.emplace_back("fluxion:bgt=0.3,stage=fixed32,sinks=16,window=32,policy=length");
  names.emplace_back("fluxion:bgt=0.3,stage=dynamic,union=attended,sinks=16,window=32,policy=cpu-only");
  names.emplace_back("fluxion:streaming=1,sinks=16,window=32");
  names.emplace_back("fluxion:bgt=0.1,sinks=16,window=1,spill=1,workers=3");
  names.emplace_back("fluxion:bgt=0.2,sinks=16,window=32,workers=1");
  return names;
}

class Conformance : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, Conformance, ::testing::ValuesIn(all_methods()), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

const std::vector<std::vector<std::int32_t>> kUneven = {
    random_prompt(401, 1), random_prompt(30, 2), random_prompt(720, 3), random_prompt(48, 4), random_prompt(65, 5)};

struct Out {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<std::vector<float>> logits;  // [step][rows * vocab]
  Nanos end = 0;
  IdleReport idle;
};

Out run(const std::string& spec, const std::vector<std::vector<std::int32_t>>& prompts, std::unique_ptr<Device> device,
        unsigned threads, std::uint32_t trace_steps = 512) {
  Bench bench(tiny_model_for(spec), std::move(device), {}, threads);
  const auto method = make_method(spec);
  Out out;
  DecodeResult result = bench.decode(*method, prompts, 9, {.logits = &out.logits, .trace_steps = trace_steps});
  for (const DecodedSequence& s : result.sequences) out.tokens.push_back(s.tokens);
  out.end = result.trace.steps.back().end - result.trace.steps.front().begin;
  out.idle = std::move(result.idle);
  return out;
}

void expect_near(const std::vector<std::vector<float>>& actual, const std::vector<std::vector<float>>& expected,
                 const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size());
  for (std::size_t step = 0; step < expected.size(); ++step) {
    double worst = 0, scale = 0;
    for (std::size_t i = 0; i < expected[step].size(); ++i) {
      worst = std::max(worst, std::abs(double(expected[step][i]) - double(actual[step][i])));
      scale = std::max(scale, std::abs(double(expected[step][i])));
    }
    EXPECT_LE(worst, 1e-4 * scale) << what << " step " << step;
  }
}

TEST_P(Conformance, WhatIsSummedUpBetweenStepsIsNotLost) {
  const Out whole = run(GetParam(), kUneven, sim(), 1), parts = run(GetParam(), kUneven, sim(), 1, 4);
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_EQ(parts.logits, whole.logits);
  EXPECT_EQ(parts.idle.total, whole.idle.total);
  ASSERT_EQ(parts.idle.steps.size(), whole.idle.steps.size());
  Nanos window = 0;
  for (std::size_t i = 0; i < parts.idle.steps.size(); ++i) {
    EXPECT_EQ(parts.idle.steps[i].step, whole.idle.steps[i].step);
    EXPECT_EQ(parts.idle.steps[i].busy + parts.idle.steps[i].idle, parts.idle.steps[i].window);
    if (parts.idle.steps[i].step != Device::kSetupStep) window += parts.idle.steps[i].window;
  }
  EXPECT_EQ(parts.idle.decode.window, window);
  EXPECT_LT(parts.end, whole.end) << "the trace is of the first steps";
  EXPECT_EQ(run(GetParam(), kUneven, make_emu_device({.host_worker_threads = 2}), 2, 2).tokens, whole.tokens);
}

TEST_P(Conformance, ASequenceDoesNotDependOnItsBatchNorOnThreads) {  // invariant B, bit for bit on the simulated device
  const Out together = run(GetParam(), kUneven, sim(), 2);
  for (std::size_t i = 0; i < kUneven.size(); ++i) {
    const Out alone = run(GetParam(), {kUneven[i]}, sim(), i % 2 == 0 ? 1 : 3);
    EXPECT_EQ(alone.tokens[0], together.tokens[i]);
    for (std::size_t step = 0; step < alone.logits.size(); ++step) {
      const std::vector<float>& all = together.logits[step];
      EXPECT_EQ(alone.logits[step], std::vector<float>(all.begin() + i * 96, all.begin() + (i + 1) * 96))
          << "step " << step;
    }
  }
}

TEST_P(Conformance, ARepeatGivesTheSameTokensAndTheSameVirtualNanoseconds) {
  const Out first = run(GetParam(), kUneven, sim(), 2), second = run(GetParam(), kUneven, sim(), 2);
  EXPECT_EQ(first.tokens, second.tokens);
  EXPECT_EQ(first.logits, second.logits);
  EXPECT_EQ(first.end, second.end);
}

TEST_P(Conformance, RealThreadsGiveTheSimulatedDevicesTokens) {
  const Out virtual_time = run(GetParam(), kUneven, sim(), 2);
  const Out real_time = run(GetParam(), kUneven, make_emu_device({.host_worker_threads = 4}), 2);
  EXPECT_EQ(virtual_time.tokens, real_time.tokens);
}

TEST_P(Conformance, TheCountersAreTheSumsOfWhatTheOperationsDeclared) {  // invariant C
  Bench bench(tiny_model_for(GetParam()));
  const auto method = make_method(GetParam());
  const DecodeResult result = bench.decode(*method, kUneven, 5);
  Cost sum, steps;
  for (const TraceRecord& record : result.trace.records) {
    sum.hbm += record.cost.hbm;
    sum.dram += record.cost.dram;
    sum.h2d += record.cost.h2d;
    sum.d2h += record.cost.d2h;
    EXPECT_FALSE(record.cost.upper_bound) << record.name << " never settled its cost";
  }
  for (const StepIdle& step : result.idle.steps) {
    steps.hbm += step.cost.hbm;
    steps.dram += step.cost.dram;
    steps.h2d += step.cost.h2d;
    steps.d2h += step.cost.d2h;
  }
  EXPECT_EQ(sum.hbm, steps.hbm);
  EXPECT_EQ(sum.dram, steps.dram);
  EXPECT_EQ(sum.h2d, steps.h2d);
  EXPECT_EQ(sum.d2h, steps.d2h);
  EXPECT_GT(sum.hbm, 0u);
}

TEST_P(Conformance, NoMoreThanAllIsAttendedAndAllByALosslessMethod) {  // invariant A
  Bench bench(tiny_model_for(GetParam()));
  const auto full = make_method("full"), method = make_method(GetParam());
  std::vector<std::vector<float>> expected, actual;
  const DecodeResult all = bench.decode(*full, kUneven, 5, {.logits = &expected}),
                     mine = bench.decode(*method, kUneven, 5, {.logits = &actual});
  const bool lossless = method->needs(bench.engine.shape()).lossless;
  for (std::size_t i = 0; i < kUneven.size(); ++i) {
    const std::uint64_t attended = mine.sequences[i].attended[0] + mine.sequences[i].attended[1];
    EXPECT_GT(attended, 0u);
    EXPECT_LE(attended, all.sequences[i].attended[0]) << "of all tokens of sequence " << i;
    if (lossless) {
      EXPECT_EQ(attended, all.sequences[i].attended[0]) << "Needs::lossless, and tokens are left out";
    }
  }
  if (lossless) expect_near(actual, expected, GetParam());
}

/// A host wait that directly follows "context ready".
bool waits_for_context_ready(const std::vector<ScheduleOp>& schedule, std::size_t op) {
  return schedule[op].form == ScheduleOp::Form::host_wait && op > 0 &&
         std::string(schedule[op - 1].name) == "context ready";
}

/// A wait of a batch's last sequences for what was asked on the side: the drain that follows would wait for it too.
bool waits_before_a_drain(const std::vector<ScheduleOp>& schedule, std::size_t op) {
  while (op < schedule.size() && schedule[op].form == ScheduleOp::Form::host_wait) ++op;
  return op < schedule.size() && schedule[op].form == ScheduleOp::Form::drain;
}

void judge_every_edge(const std::string& spec, std::uint32_t layers, std::uint32_t steps) {
  std::vector<ScheduleOp> schedule;
  Bench bench(tiny_model(true, layers), sim(&schedule));
  const auto method = make_method(spec);
  bench.decode(*method, {random_prompt(401, 1), random_prompt(133, 2)}, steps);
  std::size_t caught = 0, implied = 0;
  for (const EdgeReport& edge : judge_all_edges(schedule, &schedule_names(*bench.device))) {
    const ScheduleOp& op = schedule[edge.op_index];
    // "context ready" and the wait that closes its window are a measuring point: they order nothing that data needs.
    const bool measures = std::string(op.name) == "context ready" || waits_for_context_ready(schedule, edge.op_index) ||
                          waits_before_a_drain(schedule, edge.op_index);
    if (edge.verdict == EdgeVerdict::caught) ++caught;
    if (edge.verdict == EdgeVerdict::implied) ++implied;
    if (edge.verdict == EdgeVerdict::missed && !measures) {
      ADD_FAILURE() << "removing edge " << edge.edge_index << " of '" << op.name << "' (layer " << op.layer
                    << ") goes unnoticed: it is not needed, or an access is not declared";
    }
  }
  EXPECT_GE(caught, 5u);
  std::printf("%s: %zu edges caught, %zu implied\n", spec.c_str(), caught, implied);
}

TEST_P(Conformance, EveryScheduleEdgeIsNeededOrProvenImplied) {
  judge_every_edge(GetParam(), 2, 40);  // windows slide and rooms are used again
}

// Dense layers and those behind them, more of each than there is room for at a time.
TEST(Conformance, EveryScheduleEdgeOfManyLayersInTwoRooms) {
  judge_every_edge("infinigen:budget=64,dense_layers=2", 5, 20);
  judge_every_edge("infinigen:budget=64,fetch=token,alpha=1,dense_layers=3", 6, 20);
}

TEST(Conformance, MethodsWithABudgetForEverythingEqualFull) {  // invariant A
  Bench bench(tiny_model());
  for (const std::string spec : {"hybrid-fixed:budget=1",
                                 "hybrid-fixed:budget=1,block=128",
                                 "hybrid-fixed:budget=1,block=32,sinks=0,window=1",
                                 "hybrid-fixed:budget=1,block=128,digest=mean",
                                 "hybrid-fixed:window=4K",
                                 "gpu-fetch:budget=1",
                                 "gpu-fetch:budget=1,block=128,sinks=0,window=1",
                                 "gpu-fetch:window=4K",
                                 "full:device=0.6,look_ahead=0",
                                 "full-offload",
                                 "full-offload:look_ahead=0",
                                 "full-host",
                                 "streaming:window=4K",
                                 "streaming:sinks=300,window=430",
                                 "hgca:beta=0",
                                 "h2o:budget=1",
                                 "h2o:budget=4K,heavy=1",
                                 "tova:budget=1",
                                 "tova:budget=4K",
                                 "tova:budget=1,evict=yes",
                                 "asyncspade",
                                 "asyncspade:budget=1,place=host,pack=1",
                                 "asyncspade:theta=4K,budget=16",
                                 "quest:budget=1",
                                 "quest:budget=4K,page=128",
                                 "quest:budget=1,device=0.6,group_reduce=layer",
                                 "quest:dense_layers=2,budget=16",
                                 "hgca:beta=0,device_kv=64,block=16,pad=attended",
                                 "hgca:device_kv=1",
                                 "infinigen:budget=1,alpha=1e9,dense_layers=0",
                                 "infinigen:budget=1,alpha=1e9,fetch=token,partial=0.1,dense_layers=0",
                                 "infinigen:budget=1,alpha=1e9,dense_layers=1",
                                 "infinigen:budget=1,alpha=1e9,fetch=token,scope=query_head,dense_layers=0",
                                 "infinigen:budget=32,alpha=0,dense_layers=2",
                                 "infinigen:budget=1,alpha=0,fetch=token,dense_layers=9",
                                 "fluxion:bgt=1,slope=0",
                                 "fluxion:bgt=1,slope=0,sinks=0,window=1,policy=uniform,cpu_share=0.3",
                                 "fluxion:bgt=1,slope=0,sinks=16,window=32,spill=1,policy=cpu-only",
                                 "fluxion:bgt=1,stage=fixed16,sinks=16,window=32,policy=length",
                                 "hisparse",
                                 "hisparse:budget=768,buffer=768,block=32,scope=layer",
                                 "scoutattention",
                                 "scoutattention:budget=800,block=16,sinks=0,scope=kv_head,device_scope=selected"}) {
    const auto full = make_method("full"), method = make_method(spec);
    std::vector<std::vector<float>> expected, actual;
    const DecodeResult a = bench.decode(*full, kUneven, 9, {.logits = &expected});
    const DecodeResult b = bench.decode(*method, kUneven, 9, {.logits = &actual});
    for (std::size_t i = 0; i < kUneven.size(); ++i) EXPECT_EQ(a.sequences[i].tokens, b.sequences[i].tokens) << spec;
    expect_near(actual, expected, spec);
  }
}

}  // namespace
}  // namespace tandem::testing
