// Fluxion against an independent model of its rule in double precision, and what it counts.
#include "methods/fluxion/fluxion.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "engine/common/error.h"
#include "methods/fluxion/labels.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/fluxion/naive.h"
#include "tests/methods/fluxion/random_heads.h"
#include "tests/methods/logits_difference.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using Vector = SlowModel::Vector;

struct RegionRule {
  std::string options;
  std::uint32_t sinks, window, fixed_block;  // 0: Eq. 3 chooses
  bool skip;
  std::uint32_t spill;
};

/// What lies in host memory when a sequence that had `prompt` tokens has `tokens`.
std::pair<std::uint32_t, std::uint32_t> host_region(const RegionRule& rule, std::uint32_t prompt,
                                                    std::uint32_t tokens) {
  const std::uint32_t begin = (rule.sinks + 15) / 16 * 16, pages = (rule.window + 15) / 16 * 16;
  std::uint32_t end = std::max(begin, prompt > rule.window ? (prompt - rule.window) / 16 * 16 : 0);
  if (rule.spill == 0) return {begin, end};
  end -= (end - begin) % 128;
  // After each step: as many blocks of 128 as lie beyond window and spill.
  for (std::uint32_t t = prompt + 1; t < tokens; ++t) {
    while (t >= end + pages + rule.spill + 128) end += 128;
  }
  return {begin, end};
}

class FluxionRule : public ::testing::TestWithParam<RegionRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, FluxionRule,
                         ::testing::Values(RegionRule{"", 16, 40, 0, true, 0},
                                           RegionRule{",stage=dynamic", 16, 40, 0, false, 0},
                                           RegionRule{",stage=fixed16", 0, 100, 16, false, 0},
                                           RegionRule{",stage=fixed32,policy=cpu-only", 30, 1, 32, false, 0},
                                           RegionRule{",policy=uniform,cpu_share=0.4", 48, 17, 0, true, 0},
                                           RegionRule{",policy=length,cpu_share=0.4", 48, 17, 0, true, 5},
                                           RegionRule{"", 16, 30, 0, true, 20}));

TEST_P(FluxionRule, EachHeadAttendsWhatItsPropertiesAskFor) {
  const RegionRule rule = GetParam();
  std::string spec = "fluxion:sinks=" + std::to_string(rule.sinks) + ",window=" + std::to_string(rule.window) +
                     rule.options + ",spill=" + std::to_string(rule.spill);
  Bench bench(tiny_model());
  const std::vector<std::int32_t> prompt = random_prompt(503, 21);  // 502 prefilled: not a multiple of a page
  const std::uint32_t steps = rule.spill == 0 ? 10 : 110;
  Logits logits;
  const DecodeResult result = bench.decode(*with_random_heads(spec), {prompt}, steps, {.logits = &logits});
  SlowModel slow(bench.model);
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.step(prompt[t]);
  const std::uint32_t group = bench.model.config.q_heads / bench.model.config.kv_heads;
  std::uint32_t largest_end = 0;
  std::map<std::uint32_t, int> blocks_seen;
  const SlowModel::Visible visible = [&](std::uint32_t layer, std::uint32_t h, const Vector& q,
                                         const std::vector<Vector>& keys) {
    const auto tokens = static_cast<std::uint32_t>(keys.size());
    const auto [begin, end] = host_region(rule, 502, tokens);
    largest_end = std::max(largest_end, end);
    std::vector<bool> seen(tokens);
    for (std::uint32_t t = 0; t < tokens; ++t) seen[t] = t < begin || t >= end;
    const auto budget = [&](std::uint32_t head, std::uint32_t block) {
      const HeadProperties p = random_properties(layer, head, tokens);
      if (rule.skip && p.streaming) return 0.0;
      return std::clamp(p.budget + p.slope * std::log2(double(block)), 0.0, 1.0);
    };
    std::uint32_t block = rule.fixed_block;
    double least = INFINITY;
    for (const std::uint32_t candidate : {16u, 32u, 64u, 128u}) {
      if (rule.fixed_block != 0) break;
      double volume = 1.0 / candidate;
      for (std::uint32_t g = 0; g < group; ++g) volume += budget(h / group * group + g, candidate);
      if (volume < least) block = candidate;
      least = std::min(least, volume);
    }
    ++blocks_seen[block];
    const double share = budget(h, block), blocks = share * (end - begin) / block;
    const auto keep = static_cast<std::size_t>(std::ceil(share < 1 ? blocks - 1e-6 - 1.2e-7 * blocks : blocks));
    std::vector<std::pair<double, std::uint32_t>> order;  // bound, first token
    for (std::uint32_t at = begin; at < end; at += block)
      order.emplace_back(upper_bound(q, keys, at, std::min(at + block, end)), at);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < std::min(keep, order.size()); ++i) {
      for (std::uint32_t t = order[i].second; t < std::min(order[i].second + block, end); ++t) seen[t] = true;
    }
    return seen;
  };
  for (std::size_t n = 0; n < logits.size(); ++n) {
    const Vector expected = slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], visible);
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
      worst = std::max(worst, std::abs(expected[i] - double(logits[n][i])));
    EXPECT_LT(worst, 3e-4) << spec << " step " << n;
  }
  EXPECT_GE(blocks_seen.size(), rule.fixed_block == 0 ? 3u : 1u);
  EXPECT_GT(largest_end, rule.spill > 0 ? 502u - rule.window : 0u);
}

TEST(Fluxion, WithOneShareAndOneBlockForAllHeadsItIsHybridFixed) {
  Bench bench(tiny_model());
  std::vector<Logits> both(2);
  for (std::size_t i = 0; i < both.size(); ++i) {
    const std::string mode = i == 0 ? "masked" : "attended";
    Logits other;
    bench.decode(*make_method("fluxion:bgt=0.1,slope=0,stage=fixed16,union=" + mode), {random_prompt(1025, 4)}, 3,
                 {.logits = &both[i]});
    bench.decode(*make_method("hybrid-fixed:budget=0.1,union=" + mode), {random_prompt(1025, 4)}, 3,
                 {.logits = &other});
    EXPECT_TRUE(logits_agree(both[i], other, 1, 1e-4)) << mode;
  }
  EXPECT_NE(both[0], both[1]);
}

TEST(Fluxion, OptionsThatNobodyLooksAtAreRefused) {
  const auto made = [](const std::string& options) {
    return [options] { make_fluxion(parse_method_spec("fluxion:" + options), nullptr); };
  };
  for (const char* option : {"tau=0.05", "budgets=score", "line=cover"}) {
    const std::string name = std::string(option).substr(0, std::string(option).find('='));
    EXPECT_THAT(made(option), ThrowsMessage<InputError>(HasSubstr("option '" + name + "': it changes nothing")));
    EXPECT_THAT(made(std::string("heads=fixed,") + option), ThrowsMessage<InputError>(HasSubstr("heads=fixed;")));
    EXPECT_NO_THROW(made(std::string("heads=oracle,") + option)()) << option;
  }
  for (const char* option : {"line=cover", "bgt=0.1", "slope=0", "streaming=0.5"})
    EXPECT_THAT(made(std::string("heads=published,") + option),
                ThrowsMessage<InputError>(HasSubstr("changes nothing")));
  EXPECT_THAT(made("heads=embedded,line=cover"),
              ThrowsMessage<InputError>(HasSubstr("a predictor; it is for heads=oracle")));
  EXPECT_NO_THROW(made("heads=embedded,bgt=0.1,slope=0,streaming=0.5")());
  EXPECT_THAT(made("heads=oracel,line=cover"), ThrowsMessage<InputError>(HasSubstr("Did you mean")));
  for (const char* stage : {"fixed16", "fixed32", "dynamic"})
    EXPECT_THAT(made(std::string("streaming=0.5,stage=") + stage), ThrowsMessage<InputError>(HasSubstr("'streaming'")));
  for (const char* policy : {"cpu-only", "priority"})
    EXPECT_THAT(made(std::string("cpu_share=0.4,policy=") + policy),
                ThrowsMessage<InputError>(HasSubstr("'cpu_share'")));
  for (const char* policy : {"uniform", "length", "cpu-only"})
    EXPECT_THAT(made(std::string("guard=yes,policy=") + policy), ThrowsMessage<InputError>(HasSubstr(policy)));
  for (const char* heads : {"fixed", "oracle", "published", "embedded"}) {  // what is spelled out may be given again
    const std::string spelled = make_method(std::string("fluxion:heads=") + heads)->spelled_out();
    EXPECT_EQ(make_method(spelled)->spelled_out(), spelled);
  }
}

TEST(Fluxion, AGuardNeedsToKnowHowFastTheSidesAre) {
  for (const char* share : {"0", "1"}) {
    const MethodSpec spec = parse_method_spec(std::string("fluxion:guard=yes,cpu_share=") + share);
    EXPECT_THROW(make_fluxion(spec, nullptr), InputError);
  }
  EXPECT_NO_THROW(make_fluxion(parse_method_spec("fluxion:policy=length,cpu_share=1"), nullptr));
}

TEST(Fluxion, ResultsDoNotDependOnWhoTookATask) {
  Logits first;
  std::vector<std::uint64_t> by_device;
  for (const std::string policy :
       {"policy=priority", "policy=cpu-only", "policy=uniform,cpu_share=0.00001", "policy=uniform,cpu_share=0.5",
        "policy=length,cpu_share=0.3", "guard=yes,cpu_share=0.9", "workers=1", "workers=3", "workers=8"}) {
    Bench bench(tiny_model());
    Logits logits;
    const DecodeResult result =
        bench.decode(*with_random_heads("fluxion:sinks=16,window=32," + policy), kMixed, 6, {.logits = &logits});
    if (first.empty()) first = logits;
    EXPECT_EQ(first, logits) << policy;  // every bit
    std::uint64_t tasks[2] = {0, 0};
    for (const DecodedSequence& s : result.sequences) {
      for (int side = 0; side < 2; ++side) tasks[side] += s.tasks[side];
    }
    by_device.push_back(tasks[static_cast<int>(Side::device)]);
    if (policy == "policy=cpu-only") {
      EXPECT_EQ(by_device.back(), 0u);
    } else if (policy != "workers=8") {  // which take all tasks before the device takes one
      EXPECT_GT(by_device.back(), 0u) << policy;
    }
    EXPECT_EQ(tasks[static_cast<int>(Side::host)] == 0, policy == "policy=uniform,cpu_share=0.00001");
  }
}

TEST(Fluxion, StreamingHeadsAloneAreStreamingWithTheSamePlacement) {
  for (const std::uint32_t tokens : {300u, 705u, 1025u}) {  // the first step sees the prompt's last tokens and itself
    Bench bench(tiny_model());
    const std::uint32_t end = (tokens - 1 - 256) / 16 * 16;
    Logits expected, actual;
    bench.decode(*make_method("streaming:sinks=64,window=" + std::to_string(tokens - end)), {random_prompt(tokens, 8)},
                 1, {.logits = &expected});
    const DecodeResult result =
        bench.decode(*make_method("fluxion:streaming=1"), {random_prompt(tokens, 8)}, 1, {.logits = &actual});
    for (std::size_t i = 0; i < expected[0].size(); ++i) EXPECT_NEAR(expected[0][i], actual[0][i], 1e-4);
    EXPECT_EQ(result.sequences[0].tasks[0] + result.sequences[0].tasks[1], 0u);
    EXPECT_EQ(result.sequences[0].attended[1], 0u);
  }
}

struct Sums {
  std::map<std::string, std::uint64_t> count, dram, h2d, d2h, pieces;
  explicit Sums(const Trace& trace) {
    for (const TraceRecord& r : trace.records) {
      ++count[r.name];
      dram[r.name] += r.cost.dram;
      h2d[r.name] += r.cost.h2d;
      d2h[r.name] += r.cost.d2h;
      pieces[r.name] += r.cost.pieces;
    }
  }
};

TEST(Fluxion, CountsTasksAndBytesByPath) {
  // 1,024 prefilled: 704 tokens, 44 blocks of 16 in host memory, 5 for each query head. 2 layers, 2 groups, 4 steps.
  const std::string spec = "fluxion:bgt=0.1,slope=0,stage=fixed16,policy=";
  Bench bench(tiny_model());
  const KvShape shape = bench.engine.kv().shape();
  const auto prompt = random_prompt(1025, 4);
  const DecodeResult on_cpu = bench.decode(*make_method(spec + "cpu-only"), {prompt}, 4);
  const DecodeResult on_device = bench.decode(*make_method(spec + "uniform,cpu_share=0.00001"), {prompt}, 4);
  Sums cpu(on_cpu.trace), device(on_device.trace);
  EXPECT_EQ(on_cpu.sequences[0].tasks[static_cast<int>(Side::host)], 16u);
  EXPECT_EQ(on_cpu.sequences[0].tasks[static_cast<int>(Side::device)], 0u);
  EXPECT_EQ(on_device.sequences[0].tasks[static_cast<int>(Side::host)], 0u);
  EXPECT_EQ(on_device.sequences[0].tasks[static_cast<int>(Side::device)], 16u);
  EXPECT_EQ(cpu.count["host attention"], 16u);
  EXPECT_EQ(device.count["attend over the link"], 16u);
  const std::uint64_t digests = 16 * 44 * 2 * shape.vector_bytes(), per_token = 2 * shape.vector_bytes();
  EXPECT_EQ(cpu.dram["select blocks"], digests);
  const std::uint64_t tokens = (cpu.dram["host attention"] - 16 * 2 * 2 * 16 * 4) / per_token;
  EXPECT_GE(tokens, 16u * 5 * 16);
  EXPECT_LE(tokens, 16u * 2 * 5 * 16);
  EXPECT_EQ(device.h2d["attend over the link"], digests + tokens * per_token);  // the same choice, over the link
  // Of each task lows, highs, and every page of 16 tokens: K and V are adjacent, the other KV head lies between pages.
  EXPECT_EQ(device.pieces["attend over the link"], 16 * 2 + tokens / 16);
  EXPECT_EQ(cpu.pieces["host partials to device"], 4u * 2 * 2);  // both KV heads' outputs, and their log sums
  EXPECT_EQ(cpu.h2d["host partials to device"], 16u * 2 * (16 + 1) * 4);
  EXPECT_EQ(device.count["host partials to device"], 0u);
  EXPECT_EQ(cpu.d2h["head estimates to host"], 8u * 4 * 3 * 4);  // steps x layers, heads, values, f32
  const std::uint64_t near = 4u * 320 + 1 + 2 + 3 + 4;
  EXPECT_EQ(on_cpu.sequences[0].attended[0], near);
  EXPECT_NEAR(double(on_cpu.sequences[0].attended[1]), double(tokens) / 4, 4);  // each step's mean rounds down
  EXPECT_NEAR(double(on_device.sequences[0].attended[0]), double(near) + double(tokens) / 4, 4);
  // One digest index where the stage fixes the block.
  EXPECT_EQ(on_cpu.sequences[0].peak_kv_bytes[1], 704 * shape.token_bytes() + 2 * 2 * 2 * 44 * 64 + 4 * 45 * 4);
}

TEST(Fluxion, DigestsOfLargerBlocksAreMadeFromThoseOfSmallerOnes) {
  Bench bench(tiny_model());
  const KvShape shape = bench.engine.kv().shape();
  const DecodeResult result = bench.decode(*make_method("fluxion"), {random_prompt(1025, 4)}, 1);
  // 704 tokens: 44 blocks of 16, 22 of 32, 11 of 64, 5 and a half of 128; a minimum and a maximum each.
  const std::uint64_t keys = 704, digests = 2 * (44 + (44 + 22) + (22 + 11) + (11 + 6));
  EXPECT_EQ(Sums(result.trace).dram["build digests"], 2 * 2 * (keys + digests) * shape.vector_bytes());
}

// Whether a prediction is computed or drawn, a context is looked at once before the first step.
TEST(Fluxion, DrawnHeadsLookAtTheContextAsAPredictorDoes) {
  Bench bench(tiny_model());
  const auto prompt = random_prompt(1025, 4);
  const DecodeResult drawn = bench.decode(*make_method("fluxion:heads=published"), {prompt}, 1);
  std::uint64_t looks = 0;
  for (const TraceRecord& r : drawn.trace.records) {
    if (std::string(r.name) != "read context") continue;
    ++looks;
    EXPECT_EQ(r.cost.flops, 4u * 1024 * 4 * 16 * (1 + kLabelBlocks.size()));
  }
  EXPECT_EQ(looks, 2u);
}

}  // namespace
}  // namespace tandem::testing
