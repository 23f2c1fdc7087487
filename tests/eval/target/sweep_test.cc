// Sweeps: each point is what simulate_target() gives alone; memory is filled to the last sequence; files go on.
#include "eval/target/sweep.h"

#include <atomic>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "eval/target/row.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kShape = "llama-3.2-1b";
constexpr const char* kProgram = "tandem test";

Workload a_workload() {
  return {"test", "made up", {{{2, 0.5, 0.9}}}};
}

SweepOptions a_sweep() {
  SweepOptions o;
  o.methods = {"full", "quest:budget=256", "hgca:device_kv=256,block=16"};
  o.hardware = {load_profile("fluxion-a100"), load_profile("h200")};
  o.contexts = {512, 1024};
  o.batches = {2, 1};
  o.steps = 4;
  o.threads = 2;
  return o;
}

std::string json_of(const Sweep& sweep) {
  return sweep_json(sweep, "tandem simulate", kProgram);
}

Sweep settings_of(const SweepOptions& options) {
  const Model shape = load_shape(kShape);
  return empty_sweep(shape, options, a_workload());
}

template <class Read>
std::string sentence_of(const Read& read) {
  try {
    read();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

std::string refusal(const std::string& text, const Sweep& settings, const std::string& program = kProgram) {
  return sentence_of([&] { known_points(text, "sweep.json", settings, program); });
}

TEST(Sweep, EveryPointIsASimulationOfItsOwn) {
  const SweepOptions options = a_sweep();
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_TRUE(sweep.complete());
  ASSERT_EQ(sweep.points.size(), 24u);
  std::size_t at = 0;
  for (const HardwareProfile& hardware : options.hardware) {
    for (const std::uint32_t batch : options.batches) {
      for (const std::uint32_t context : options.contexts) {
        TargetOptions alone;
        alone.methods = options.methods;
        alone.batch = batch;
        alone.context = context;
        alone.steps = options.steps;
        const Target expected = simulate_target(load_shape(kShape), hardware, a_workload(), alone);
        for (const TargetRow& row : expected.rows) {
          const SweepPoint& point = sweep.points[at++];
          EXPECT_EQ(point.hardware, hardware.name);
          EXPECT_EQ(point.method, row.method);
          EXPECT_EQ(point.sequences, batch);
          nlohmann::ordered_json ours, theirs;
          add_row(point.row, ours);
          add_row(row, theirs);
          EXPECT_EQ(ours, theirs) << hardware.name << " " << batch << " x " << context;
          EXPECT_NEAR(point.tokens_per_second(), 1e3 * batch / row.step_ms, 1e-9);
        }
      }
    }
  }
  SweepOptions one_thread = options;
  one_thread.threads = 1;
  EXPECT_EQ(json_of(simulate_sweep(load_shape(kShape), a_workload(), one_thread)), json_of(sweep));
}

TEST(Sweep, SaysWhichMethodsLoseNothing) {
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), a_sweep());
  for (const SweepPoint& point : sweep.points) EXPECT_EQ(point.lossless, point.method == "full");
}

TEST(Sweep, MemoryIsFilledToTheLastSequence) {
  SweepOptions options = a_sweep();
  options.methods = {"full", "full-host", "hgca:device_kv=0.25,block=16"};
  options.batches = {kAsManyAsFit};
  options.contexts = {1000};
  options.hardware.resize(1);
  const Model shape = load_shape(kShape);
  // Room for 3.5 whole sequences on the device, 5.5 on the host, by hand: pages of 16 tokens, K and V in bf16.
  const double sequence = 64.0 * 16 * 2 * 8 * 64 * 16 * 2;
  options.hardware[0].device.memory_gb = (double(shape.weights.bytes()) + 3.5 * sequence) * 1e-9 / 0.95;
  options.hardware[0].host.memory_gb = 5.5 * sequence * 1e-9 / 0.95;
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  ASSERT_EQ(sweep.points.size(), 3u);
  EXPECT_EQ(sweep.points[0].sequences, 3u);
  EXPECT_EQ(sweep.points[1].sequences, 5u);
  for (const SweepPoint& point : sweep.points) {
    EXPECT_EQ(point.row.refused, "");
    TargetOptions target;
    target.methods = {point.method};
    target.context = 1000;
    target.steps = options.steps;
    target.batch = point.sequences;
    EXPECT_EQ(simulate_target(shape, options.hardware[0], a_workload(), target).rows[0].step_ms, point.row.step_ms);
    target.batch = point.sequences + 1;
    EXPECT_TRUE(simulate_target(shape, options.hardware[0], a_workload(), target).rows[0].too_large) << point.method;
  }
  options.most_sequences = 2;
  EXPECT_EQ(simulate_sweep(load_shape(kShape), a_workload(), options).points[0].sequences, 2u);
  options.hardware[0].device.memory_gb = (double(shape.weights.bytes()) + 0.5 * sequence) * 1e-9 / 0.95;
  const SweepPoint none = simulate_sweep(load_shape(kShape), a_workload(), options).points[0];
  EXPECT_TRUE(none.row.too_large);
  EXPECT_EQ(none.tokens_per_second(), 0);
}

TEST(Sweep, AsManyAsKeepToATimePerToken) {
  SweepOptions options = a_sweep();
  options.hardware.resize(1);
  options.contexts = {1024};
  options.batches = {kAsManyAsFit};
  options.most_sequences = 10;
  options.methods.pop_back();
  const Sweep free = simulate_sweep(load_shape(kShape), a_workload(), options);
  for (const std::string& method : options.methods) {
    const SweepPoint most = *free.find("fluxion-a100", kAsManyAsFit, 1024, method);
    ASSERT_EQ(most.sequences, 10u);
    SweepOptions one_method = options;
    one_method.methods = {method};
    const auto within = [&](double ms) {
      one_method.tpot_ms = ms;
      return simulate_sweep(load_shape(kShape), a_workload(), one_method).points.at(0);
    };
    const auto step_of = [&](std::uint32_t sequences) {
      SweepOptions fixed = one_method;
      fixed.batches = {sequences};
      return simulate_sweep(load_shape(kShape), a_workload(), fixed).points.at(0).row.step_ms;
    };
    const double one = step_of(1), all = most.row.step_ms;
    ASSERT_LT(one, all);
    for (const double share : {0.2, 0.7}) {
      const double limit = one + share * (all - one);
      const SweepPoint point = within(limit);
      ASSERT_GE(point.sequences, 1u);
      EXPECT_EQ(point.row.step_ms, step_of(point.sequences)) << method;
      EXPECT_LE(point.row.step_ms, limit) << method;
      EXPECT_GT(step_of(point.sequences + 1), limit) << method << ": one more fits, too";
    }
    EXPECT_EQ(within(all).sequences, 10u);
    EXPECT_EQ(within(one).sequences, 1u);
    const SweepPoint slow = within(0.9 * one);
    EXPECT_TRUE(slow.row.too_slow);
    EXPECT_EQ(slow.sequences, 0u);
    EXPECT_THAT(slow.row.refused, HasSubstr("a step of one sequence takes"));
  }
  options.tpot_ms = 0.9 * free.points[0].row.step_ms;
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_THAT(sweep_text(sweep, false), AllOf(HasSubstr("as many as fit within"), HasSubstr("(--tpot)")));
  const SweepFile file = parse_sweep(json_of(sweep), "sweep.json");
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), json_of(sweep));
  EXPECT_THAT(refusal(json_of(free), settings_of(options)), HasSubstr("its tpot_ms is null"));
}

/// hgca's second sequence needs a little more than its first, so that the estimate is two and one fits.
TEST(Sweep, WhereTheEstimateIsTooLargeTheLastThatFitsIsShown) {
  SweepOptions options = a_sweep();
  options.methods = {"hgca:device_kv=0.25,block=16"};
  options.contexts = {1000};
  options.steps = 8;
  options.hardware.resize(1);
  options.batches = {1, 2};
  const auto bytes = simulate_sweep(load_shape(kShape), a_workload(), options);
  const double one = double(bytes.points[0].row.host_kv_bytes), two = double(bytes.points[1].row.host_kv_bytes);
  ASSERT_GT(two, 2 * one);
  options.hardware[0].host.memory_gb = (one + two / 2) / 0.95 * 1e-9;
  options.batches = {kAsManyAsFit};
  const SweepPoint most = simulate_sweep(load_shape(kShape), a_workload(), options).points[0];
  EXPECT_EQ(most.sequences, 1u);
  EXPECT_EQ(most.row.refused, "");
  EXPECT_EQ(most.row.step_ms, bytes.points[0].row.step_ms);
}

TEST(Sweep, WhatTheMachineRefusesIsAPoint) {
  SweepOptions options = a_sweep();
  options.methods = {"full"};
  options.contexts = {512, 1u << 24};
  options.batches = {1024};
  options.hardware.resize(1);
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_EQ(sweep.points.at(0).row.refused, "");
  EXPECT_THAT(sweep.points.at(1).row.refused, HasSubstr("refuses"));
}

TEST(Sweep, HostMemoryIsALimitWhereTheProfileKnowsIt) {
  TargetOptions target;
  target.methods = {"full-host"};
  target.context = 1000;
  target.steps = 4;
  HardwareProfile hardware = load_profile("fluxion-a100");
  hardware.host.memory_gb = 0.03;  // of 33.6 MB
  const TargetRow row = simulate_target(load_shape(kShape), hardware, a_workload(), target).rows[0];
  EXPECT_TRUE(row.too_large);
  EXPECT_THAT(row.refused, HasSubstr("of host memory, and 'fluxion-a100' has"));
  hardware.host.memory_gb = 0;
  EXPECT_EQ(simulate_target(load_shape(kShape), hardware, a_workload(), target).rows[0].refused, "");
}

TEST(Sweep, AMachineThatCannotHoldTheWeightsIsAPoint) {
  SweepOptions options = a_sweep();
  options.hardware[1].device.memory_gb = 2;
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  for (const SweepPoint& point : sweep.points) {
    EXPECT_EQ(point.row.too_large, point.hardware == "h200");
    if (!point.row.too_large) continue;
    EXPECT_THAT(point.row.refused, HasSubstr("the weights take 2.5 GB"));
  }
}

TEST(Sweep, ContextsBeyondAModelsPositionsAreCosted) {
  SweepOptions options = a_sweep();
  options.methods = {"streaming"};
  options.contexts = {4096, 8192};
  options.batches = {1};
  options.hardware.resize(1);
  const Sweep sweep = simulate_sweep(load_shape("llama-2-7b"), a_workload(), options);
  EXPECT_EQ(sweep.points[1].row.refused, "");
  EXPECT_THAT(sweep_text(sweep, false), HasSubstr("llama-2-7b has 4096 positions: contexts of 4K, 8K are costed"));
}

TEST(Sweep, KnownPointsAreKept) {
  SweepOptions few = a_sweep();
  few.contexts = {1024};
  few.hardware.resize(1);
  Sweep first = simulate_sweep(load_shape(kShape), a_workload(), few);
  const Sweep whole = simulate_sweep(load_shape(kShape), a_workload(), a_sweep());
  const auto known = known_points(json_of(first), "sweep.json", settings_of(a_sweep()), kProgram);
  EXPECT_EQ(known.size(), 6u);
  EXPECT_EQ(json_of(simulate_sweep(load_shape(kShape), a_workload(), a_sweep(), known)), json_of(whole));
  first.points[0].row.step_ms = 12345;
  const Sweep marked = simulate_sweep(load_shape(kShape), a_workload(), a_sweep(), first.points);
  EXPECT_EQ(marked.find("fluxion-a100", 2, 1024, "full")->row.step_ms, 12345) << "it was not simulated again";
}

TEST(Sweep, AnInterruptionKeepsWhatIsFinished) {
  SweepOptions options = a_sweep();
  options.threads = 1;
  std::uint64_t finished = 0;
  options.progress = [&](std::uint64_t done, std::uint64_t, const std::string&) { finished = done; };
  options.interrupted = [&] { return finished == 5; };
  const Sweep part = simulate_sweep(load_shape(kShape), a_workload(), options);
  EXPECT_FALSE(part.complete());
  EXPECT_EQ(part.points.size(), 5u);
  EXPECT_THAT(json_of(part), HasSubstr("\"complete\": false"));
  EXPECT_THAT(sweep_text(part, false), AllOf(HasSubstr("Not finished: 5 points"), HasSubstr("not run")));
  options.interrupted = {};
  const auto known = known_points(json_of(part), "sweep.json", settings_of(options), kProgram);
  EXPECT_EQ(json_of(simulate_sweep(load_shape(kShape), a_workload(), options, known)),
            json_of(simulate_sweep(load_shape(kShape), a_workload(), a_sweep())));
}

TEST(SweepFile, RefusesFiguresOfOtherSettings) {
  SweepOptions options = a_sweep();
  options.methods = {"full", "fluxion:heads=embedded"};
  options.hardware[1].device.memory_gb = 2;  // points without figures are read back, too
  const Sweep sweep = simulate_sweep(load_shape(kShape), a_workload(), options);
  const std::string text = json_of(sweep);
  EXPECT_EQ(refusal(text, settings_of(options)), "no InputError");
  Sweep again = settings_of(options);
  again.points = known_points(text, "sweep.json", again, kProgram);
  EXPECT_EQ(json_of(again), text);

  Sweep other = settings_of(options);
  other.model = "qwen3-8b";
  EXPECT_THAT(refusal(text, other), HasSubstr("its model is \"llama-3.2-1b\", and this command's is \"qwen3-8b\""));
  other = settings_of(options);
  other.shape += " and more";
  EXPECT_THAT(refusal(text, other), HasSubstr("its shape is \"hidden 2048, 32 query heads"));
  other = settings_of(options);
  other.options.steps = 8;
  EXPECT_THAT(refusal(text, other), HasSubstr("its steps is 4, and this command's is 8"));
  other = settings_of(options);
  other.workload.layers[0][0].group = 0.25;
  EXPECT_THAT(refusal(text, other), HasSubstr("its workload is"));
  other = settings_of(options);
  other.options.hardware[0].link.piece_ns += 1;
  EXPECT_THAT(refusal(text, other), HasSubstr("its machine 'fluxion-a100' has other figures"));
  EXPECT_THAT(refusal(text, settings_of(options), "tandem other"), HasSubstr("its program is"));
  other = settings_of(options);
  other.options.contexts = {512};
  EXPECT_THAT(refusal(text, other), HasSubstr("does not ask for and would lose"));
  for (const char* nothing : {"", "{}", "[]", "{\"schema_version\": 1}"})
    EXPECT_THAT(refusal(nothing, settings_of(options)), HasSubstr("sweep.json")) << nothing;
}

TEST(SweepFile, DamagedFilesAreRefusedInSentences) {
  SweepOptions options = a_sweep();
  options.hardware.resize(1);
  const std::string text = json_of(simulate_sweep(load_shape(kShape), a_workload(), options));
  for (std::size_t bytes = 0; bytes + 3 < text.size(); bytes += 97)
    EXPECT_THAT(refusal(text.substr(0, bytes), settings_of(options)), HasSubstr("sweep.json")) << bytes;
  const auto broken = [&](const std::string& part, const std::string& by) {
    std::string changed = text;
    changed.replace(changed.find(part), part.size(), by);
    return refusal(changed, settings_of(options));
  };
  EXPECT_THAT(broken("\"step_ms\": ", "\"step_ms\": -"), AllOf(HasSubstr("point 1"), HasSubstr("'step_ms'")));
  EXPECT_THAT(broken("\"lossless\": true", "\"lossless\": 1"), HasSubstr("'lossless' must be true or false"));
  EXPECT_THAT(broken("\"batch\": 2", "\"batch\": 0"), HasSubstr("'batch'"));
  EXPECT_THAT(broken("\"sequences\": 2", "\"sequence\": 2"), HasSubstr("'sequences' is missing"));
}

TEST(SweepFile, IsReadBackWhole) {
  SweepOptions options = a_sweep();
  options.methods.emplace_back("fluxion:heads=embedded");  // refused
  options.hardware[1].device.memory_gb = 2;
  const std::string text = json_of(simulate_sweep(load_shape(kShape), a_workload(), options));
  const SweepFile file = parse_sweep(text, "sweep.json");
  EXPECT_TRUE(file.complete);
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), text);
  const auto broken = [&](const std::string& part, const std::string& by) {
    std::string changed = text;
    changed.replace(changed.find(part), part.size(), by);
    return sentence_of([&] { parse_sweep(changed, "sweep.json"); });
  };
  EXPECT_THAT(broken("\"schema_version\": 2", "\"schema_version\": 1"), HasSubstr("'schema_version' must be 2"));
  EXPECT_THAT(broken("\"layers\": 16", "\"layers\": 0"), HasSubstr("'layers' must be 1 or more"));
  EXPECT_THAT(broken("\"fluxion-a100\": {", "\"another\": {"),
              HasSubstr("machine 'fluxion-a100', which 'hardware' does not have"));
  EXPECT_THAT(broken("\"hardware\": \"fluxion-a100\"", "\"hardware\": \"a200\""),
              HasSubstr("of the machine 'a200', which 'hardware' does not have"));
  EXPECT_THAT(broken("\"sequences\": 2", "\"sequences\": 3"), HasSubstr("'sequences' must be the batch"));
  EXPECT_THAT(broken("\"clock\": \"simulated\"", "\"clock\": \"measured\""), HasSubstr("'clock' must be"));
  EXPECT_THAT(broken("\"complete\"", "\"more\": 1, \"complete\""), HasSubstr("'more'"));
  EXPECT_THAT(broken("\"context\": 1024", "\"context\": 512"), HasSubstr("the same point is there twice"));
  for (const char* nothing : {"", "{}", "[]", "{\"schema_version\": 2}"})
    EXPECT_THAT(sentence_of([&] { parse_sweep(nothing, "sweep.json"); }), HasSubstr("sweep.json")) << nothing;
}

/// A sweep whose figures are put in.
Sweep made_up() {
  SweepOptions options;
  options.methods = {"full", "quest:budget=256", "streaming"};
  options.hardware = {load_profile("fluxion-a100")};
  options.contexts = {1024, 2048};
  options.batches = {4, kAsManyAsFit};
  options.steps = 64;
  Sweep sweep{"a model", 10, 4096, "a shape", options, a_workload(), {}};
  for (const std::uint32_t batch : options.batches) {
    for (const std::uint32_t context : options.contexts) {
      for (std::size_t m = 0; m < options.methods.size(); ++m) {
        SweepPoint point{"fluxion-a100", options.methods[m], context, batch, batch == 4 ? 4u : 9u, m == 0, {}};
        point.row.method = point.method;
        point.row.step_ms = 8.0 / double(m + 1) * context / 1024;
        point.row.busy_ms = 0.75 * point.row.step_ms;
        point.row.idle_ms = 0.25 * point.row.step_ms;
        point.row.idle_ms_by_cause[static_cast<std::size_t>(Cause::recall)] = 0.25 * point.row.step_ms;
        point.row.prefill_ms = 100;
        sweep.points.push_back(point);
      }
    }
  }
  SweepPoint& large = sweep.points[3];  // full, 4 x 2K
  large.row = {};
  large.row.method = "full";
  large.row.refused = "its KV takes more";
  large.row.too_large = true;
  SweepPoint& refused = sweep.points[4];  // quest, 4 x 2K
  refused.row = {};
  refused.row.method = refused.method;
  refused.row.refused = "a reason";
  return sweep;
}

TEST(SweepReport, HasTheFiguresInTheirPlaces) {
  const std::string text = sweep_text(made_up(), /*markdown=*/true);
  // full at 4 x 1K: 8 ms, 500 tokens/s, a quarter of it idle, 0.2 ms in each of ten layers.
  EXPECT_THAT(text, HasSubstr("| full | 500 | does not fit |"));
  EXPECT_THAT(text, HasSubstr("| quest:budget=256 | 1000 | refused |"));
  EXPECT_THAT(text, HasSubstr("| streaming | 1500 | 750 |"));
  EXPECT_THAT(text, HasSubstr("| full | 1125 (9) | 562 (9) |"));
  EXPECT_THAT(text, HasSubstr("| full | 8.00 | does not fit |"));
  EXPECT_THAT(text, HasSubstr("| full | 25\u00a0% 0.20 recall | does not fit |"));
  EXPECT_THAT(text, HasSubstr("quest:budget=256: a reason"));
  EXPECT_THAT(text, HasSubstr("full: batch 4 x 2K does not fit on fluxion-a100, since its KV takes more."));
  EXPECT_THAT(text,
              HasSubstr("| fluxion-a100 | 4 | 1K | streaming 1500 | quest:budget=256 1000 | full 500 | full 500 |"));
  EXPECT_THAT(text, HasSubstr("| fluxion-a100 | 4 | 2K | streaming 750 | - | - | none |"));
  EXPECT_THAT(text, HasSubstr("at most 256"));
  for (const char* head : {"simulated: a model, batch 4, A100-80G", "simulated: a model, as many as fit, A100-80G"})
    EXPECT_THAT(text, HasSubstr(head));
}

TEST(SweepReport, ColumnsAreWhatVaries) {
  Sweep sweep = made_up();
  sweep.options.contexts = {1024};
  EXPECT_THAT(
      sweep_text(sweep, true),
      HasSubstr("contexts of 1K, A100-80G PCIe 4, EPYC 7V13 24 cores\n\n| method | batch 4 | as many as fit |"));
  sweep.options.batches = {4};
  sweep.options.hardware.push_back(load_profile("h200"));
  EXPECT_THAT(sweep_text(sweep, true), HasSubstr("a model, batch 4 x 1K\n\n| method | fluxion-a100 | h200 |"));
  EXPECT_THAT(sweep_text(sweep, true), HasSubstr("| full | 500 | not run |"));
}

TEST(SweepReport, FitsATerminal) {
  Sweep sweep = made_up();
  sweep.options.methods.push_back("scoutattention:budget=2048,block=64,device_scope=selected,scope=kv_head");
  std::istringstream lines(sweep_text(sweep, /*markdown=*/false));
  for (std::string line; std::getline(lines, line);) {
    std::size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(columns, 100u) << line;
  }
}

TEST(SweepFile, CsvHasAllFieldsOnEveryLine) {
  std::istringstream lines(sweep_csv(made_up()));
  std::string line;
  std::getline(lines, line);
  const auto fields = std::count(line.begin(), line.end(), ',');
  EXPECT_THAT(line, AllOf(HasSubstr("idle_ms_host_attention"), HasSubstr("idle_ms_recall")));
  std::size_t count = 0;
  for (; std::getline(lines, line); ++count) EXPECT_EQ(std::count(line.begin(), line.end(), ','), fields) << line;
  EXPECT_EQ(count, 12u);
  EXPECT_THAT(sweep_csv(made_up()),
              HasSubstr("\na model,fluxion-a100,simulated,4,4,1024,full,1,,100.000000,8.000000,500.000,"
                        "6.000000,2.000000,0.250000,0.200000,"));
  Sweep quoted = made_up();
  quoted.points[0].method = "quest:budget=256,block=\"16\"";
  EXPECT_THAT(sweep_csv(quoted), HasSubstr(",1024,\"quest:budget=256,block=\"\"16\"\"\",1,"));
}

}  // namespace
}  // namespace tandem::eval
