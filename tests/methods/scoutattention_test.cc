// ScoutAttention against an independent model of its rules in double precision: which blocks are resident, chosen and
// recalled, what each side attends with which query. And what its schedule costs, to the nanosecond.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <utility>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "methods/scoutattention/recall_intervals.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/slow_scout.h"
#include "tests/methods/slow_turns.h"

namespace tandem::testing {
namespace {

class ScoutRules : public ::testing::TestWithParam<ScoutRule> {};
INSTANTIATE_TEST_SUITE_P(Rules, ScoutRules,
                         ::testing::Values(ScoutRule{301, 40, 128, 16, 16, 3}, ScoutRule{270, 40, 128, 32, 0, 1},
                                           ScoutRule{333, 30, 96, 16, 32, 0}, ScoutRule{301, 40, 128, 16, 16, 2, true},
                                           ScoutRule{260, 40, 160, 32, 32, 4, false, true},
                                           ScoutRule{290, 36, 112, 16, 0, 2, true, true, true},
                                           ScoutRule{301, 36, 128, 16, 16, 5, false, false, true, true},
                                           ScoutRule{301, 40, 128, 16, 16, 3, false, false, false, false, true},
                                           ScoutRule{280, 36, 112, 16, 0, 2, true, true, false, true, true},
                                           ScoutRule{301, 40, 128, 16, 16, 3, false, false, false, false, false, 2},
                                           ScoutRule{290, 36, 112, 16, 0, 2, true, false, false, true, false, 2},
                                           ScoutRule{270, 36, 128, 32, 0, 1, false, true, true, false, false, 2},
                                           ScoutRule{270, 36, 128, 16, 16, 2, false, false, false, true, true, 2},
                                           ScoutRule{301, 36, 128, 16, 16, 2, false, false, false, false, false, 3},
                                           ScoutRule{301, 40, 128, 16, 16, 3, false, false, false, false, false, 1,
                                                     true},
                                           ScoutRule{290, 36, 112, 32, 0, 2, true, true, false, false, false, 1, true},
                                           ScoutRule{90, 60, 128, 16, 16, 2}, ScoutRule{12, 60, 96, 16, 16, 1}));

TEST_P(ScoutRules, EqualTheSlowModel) {
  const ScoutRule rule = GetParam();
  Bench bench(tiny_model(true, 3));
  SlowScout slow(bench.model, rule);
  std::uint64_t on_host = 0, on_device = 0;
  expect_slow_turns(
      bench, slow, rule.spec(), rule.prompt, rule.steps,
      [&] {
        on_host += slow.on_host;
        on_device += slow.on_device;
      },
      [&](const DecodeResult& result) {  // the mean over 3 layers and 2 KV heads
        EXPECT_EQ(result.sequences[0].attended[1], (std::exchange(on_host, 0) + 3) / 6);
        EXPECT_EQ(result.sequences[0].attended[0], (std::exchange(on_device, 0) + 3) / 6);
      });
  if (HasFatalFailure()) return;
  EXPECT_GT(slow.missed, 0u);
  EXPECT_EQ(slow.recalled > 0, rule.recall > 0);
  ASSERT_GT(slow.closest, 1e-6) << "float and double may choose differently here: take another prompt";
}

TEST(Scout, SequencesEndAtDifferentStepsWhileRecallsAreUnderWay) {
  Bench bench(tiny_model());
  const auto method = make_method("scoutattention:budget=96,block=16,sinks=16,recall=1");
  const std::vector<std::int32_t> prompts[2] = {random_prompt(301, 1), random_prompt(333, 2)};
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const auto& prompt : prompts) {
    prefixes.push_back(bench.engine.prefill(prompt));
    requests.push_back({prefixes.back().get(), prefixes.size() == 1 ? 7u : 40u});
  }
  const DecodeResult together = bench.engine.decode(*method, requests);
  for (std::size_t i = 0; i < 2; ++i) {
    const DecodeResult alone = bench.engine.decode(*method, {&requests[i], 1});
    EXPECT_EQ(alone.sequences[0].tokens, together.sequences[i].tokens);
    EXPECT_EQ(alone.sequences[0].attended[1], together.sequences[i].attended[1]);
  }
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::host), 0u);
}

TEST(Scout, CountsWhatItRecallsAndAttends) {
  Bench bench(tiny_model());
  const auto method = make_method("scoutattention:budget=128,block=32,sinks=32,recall=2");
  std::vector<std::vector<std::uint64_t>> on_host;
  const DecodeResult result = bench.decode(*method, {random_prompt(513, 4)}, 6, {.host_tokens = &on_host});
  const KvShape& shape = bench.engine.kv().shape();
  std::uint64_t recalled = 0, missed_when_due = 0, all = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) != "recall blocks") continue;
    recalled += r.cost.h2d;
    // Two blocks at most, each of whose pages, with all heads, lie side by side on the host.
    EXPECT_LE(r.cost.pieces, std::max<std::uint64_t>(1, r.cost.h2d / (32 * 2 * 2 * 64)));
  }
  ASSERT_EQ(on_host.size(), 6u);
  for (std::size_t step = 0; step < 6; ++step) {
    ASSERT_EQ(on_host[step].size(), 2u);  // layers; summed over KV heads
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const std::uint64_t tokens = on_host[step][layer];
      EXPECT_EQ(tokens % 64, 0u);
      EXPECT_LE(tokens, 2u * 2 * 32);
      all += tokens;
      if ((step + 1 + layer) % 2 == 0) missed_when_due += tokens;  // layers take turns
    }
  }
  EXPECT_EQ(result.sequences[0].attended[0], 6u * (32 + 2 * 32) + 1 + 2 + 3 + 4 + 5 + 6);  // sinks, residents, newest
  EXPECT_EQ(result.sequences[0].attended[1], (all + 2) / 4);
  EXPECT_GT(recalled, 0u);
  EXPECT_EQ(recalled, missed_when_due * 2 * shape.vector_bytes());
  // Sinks and newest block; residents; table, choice, missing; digests of 15 blocks and the selection among them.
  const std::size_t lists = 2 * 2 * 4 + 2 * 2 * 3 * 4, digests = 2 * 2 * 2 * 15 * 16 * 4 + 4 * 16 * 4;
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[0],
            (32 + 16) * shape.token_bytes() + 64 * shape.token_bytes() + lists + digests);
  EXPECT_EQ(result.sequences[0].peak_kv_bytes[1], 480 * shape.token_bytes() + 2 * 3 * 4);
}

// While slots are free a filled block stays: a copy on the device, which brings nothing back.
TEST(Scout, AFilledBlockThatStaysIsNoRecall) {
  Bench bench(tiny_model());
  const auto method = make_method("scoutattention:budget=256,block=16,sinks=16");
  const DecodeResult result = bench.decode(*method, {random_prompt(100, 4)}, 40);
  int kept = 0;
  for (const TraceRecord& r : result.trace.records) {
    EXPECT_NE(std::string(r.name), "recall blocks");
    if (std::string(r.name) != "keep filled block") continue;
    ++kept;
    EXPECT_EQ(r.cause, Cause::offload);
    EXPECT_EQ(r.cost.h2d, 0u);
  }
  EXPECT_EQ(kept, 2 * 2);  // at 112 and 128 tokens, in two layers
}

std::string error_of(const std::string& spec) {
  try {
    make_method(spec)->needs({2, 48, 4, 2, 16});
  } catch (const InputError& e) {
    return e.what();
  }
  return "";
}

TEST(Scout, RecallIntervalsAreANumberOnePerLayerOrAFile) {
  using ::testing::HasSubstr;
  EXPECT_EQ(error_of("scoutattention:recall=0"), "");
  EXPECT_EQ(error_of("scoutattention:recall=8-12"), "");
  EXPECT_EQ(parse_recall_intervals("8-12").of(1), 12u);
  EXPECT_THAT(error_of("scoutattention:recall=8-12-3"), HasSubstr("intervals for 3 layers and the model has 2"));
  EXPECT_THAT(error_of("scoutattention:recall=8--3"), HasSubstr("'8--3': give a number of steps from 0"));
  EXPECT_THAT(error_of("scoutattention:recall=99999999"), HasSubstr("from 0 (never) to 1000000"));
  EXPECT_THAT(error_of("scoutattention:recall=nowhere.json"), HasSubstr("nor a file that can be read"));
  EXPECT_THAT(error_of("scoutattention:budget=127"), HasSubstr("need 128"));
  EXPECT_THAT(error_of("scoutattention:true_layers=0"), HasSubstr("the least is 1"));
  EXPECT_EQ(error_of("scoutattention:true_layers=3"), "");  // of two layers
  EXPECT_THAT(error_of("scoutattention:block=128,sinks=1,budget=300"), HasSubstr("the sinks (128)"));
  const testing::TemporaryFolder folder;
  const std::string file = (folder.path() / "intervals.json").string();
  const auto with = [&](const std::string& text) {
    std::ofstream(file) << text;
    return error_of("scoutattention:recall=" + file);
  };
  EXPECT_EQ(with(R"({"intervals": [4, 0]})"), "");
  EXPECT_THAT(make_method("scoutattention:recall=" + file)->spelled_out(), HasSubstr("recall=4-0,"));
  EXPECT_THAT(with(R"({"intervals": [4, -1]})"), HasSubstr("intervals[1] is -1"));
  EXPECT_THAT(with(R"({"intervals": [4, 2.5]})"), HasSubstr("intervals[1] is 2.5"));
  EXPECT_THAT(with(R"({"intervals": []})"), HasSubstr("'intervals' is empty"));
  EXPECT_THAT(with(R"({"interval": [4]})"), HasSubstr("has no list 'intervals'"));
  EXPECT_THAT(with("no"), HasSubstr("not valid JSON from byte 2 of 2 on"));
  EXPECT_THAT(with(R"({"intervals": [)" + std::string(400000, '[') + std::string(400000, ']') + "]}"),
              HasSubstr("nested more than 32 deep"));
  EXPECT_THAT(with("[]"), HasSubstr("has no list 'intervals'"));
}

}  // namespace
}  // namespace tandem::testing
