// What a run says that the methods of a sweep lose: matched by options, judged by intervals, kept in the file, shown.
#include "eval/target/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "eval/run/decoded.h"
#include "tests/eval/report/fixtures.h"
#include "tests/eval/target/sweeps.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::uint32_t kSamples = 400;

/// A finished run of two lengths with these methods; `wrong`: of a hundred samples of each how many are wrong, always
/// the first ones.
std::filesystem::path run_of(const TemporaryFolder& root, const std::vector<std::string>& methods,
                             const std::vector<std::uint32_t>& wrong, std::uint32_t samples = kSamples,
                             bool finished = true) {
  Manifest manifest = example_manifest();
  manifest.methods = method_entries(methods);
  manifest.lengths = {1024, 2048};
  manifest.samples = samples;
  manifest.clock = manifest.hardware_profile = manifest.hardware_hash = "";
  RunFolder folder = RunFolder::create(root / "run", manifest);
  for (const std::uint32_t length : manifest.lengths)
    for (std::uint32_t index = 0; index < samples; ++index)
      for (std::size_t m = 0; m < methods.size(); ++m) {
        if (!finished && length == 2048 && index == 0 && m == 1) continue;
        SampleResult sample = example_sample(index, methods[m]);
        sample.length = length;
        sample.score = index % 100 < wrong[m] ? 0 : 1;
        folder.append(sample);
      }
  folder.keep();
  return root / "run";
}

std::string refusal_of(const std::filesystem::path& run, const std::vector<std::string>& methods) {
  return sentence_of([&] { read_answers(run, methods, load_shape(kShape), 0.01); });
}

TEST(Answers, AreJudgedByTheWholeInterval) {
  const TemporaryFolder root;
  const auto run = run_of(root, {"full", "quest:budget=256", "streaming", "tova", "h2o"}, {5, 5, 40, 6, 7});
  const Answers a = read_answers(run, {"full", "full-offload", "quest:budget=256", "streaming", "tova", "h2o", "hgca"},
                                 load_shape(kShape), 0.02);
  EXPECT_EQ(a.baseline, "full");
  EXPECT_EQ(a.of, "ruler with tiny, 1 task at 1K, 2K");
  EXPECT_EQ(a.lengths, (std::vector<std::uint32_t>{1024, 2048}));
  ASSERT_EQ(a.methods.size(), 7u);
  EXPECT_EQ(a.of_method("full"), Standing::within);
  EXPECT_EQ(a.of_method("full-offload"), Standing::within) << "it computes what full attention does";
  EXPECT_EQ(a.of_method("quest:budget=256"), Standing::within);
  EXPECT_EQ(a.of_method("streaming"), Standing::beyond);
  EXPECT_EQ(a.of_method("tova"), Standing::within) << "8 of 800 lost: 1 point, its interval ends below 2";
  EXPECT_EQ(a.of_method("h2o"), Standing::cannot_tell) << "16 of 800 lost: 2 points";
  EXPECT_EQ(a.of_method("hgca"), Standing::not_measured);
  EXPECT_EQ(a.of_method("never asked for"), Standing::not_measured);
  const MethodAnswers& streaming = a.methods[3];
  EXPECT_NEAR(streaming.score.value, 0.6, 1e-9);
  EXPECT_NEAR(streaming.loss.value, 0.35, 1e-9) << "above 0 is worse";
  EXPECT_LT(streaming.loss.interval.low, 0.35);
  EXPECT_GT(streaming.loss.interval.high, 0.35);
  EXPECT_EQ(streaming.loss.n, 2 * kSamples);
  EXPECT_EQ(a.methods[0].loss.n, 0u);
}

TEST(Answers, FewSamplesCannotTell) {
  const TemporaryFolder root;
  const auto run = run_of(root, {"full", "quest:budget=256"}, {5, 5}, 20);
  EXPECT_EQ(read_answers(run, {"quest:budget=256"}, load_shape(kShape), 0.01).of_method("quest:budget=256"),
            Standing::cannot_tell);
  EXPECT_EQ(read_answers(run, {"quest:budget=256"}, load_shape(kShape), 0.5).of_method("quest:budget=256"),
            Standing::within);
}

TEST(Answers, AMethodIsTheRunsOneWithTheSameOptions) {
  const TemporaryFolder root;
  const auto run =
      run_of(root, {"full", "quest:budget=256", "quest:page=16,budget=512", "fluxion:heads=fixed"}, {0, 0, 50, 0});
  const Answers a =
      read_answers(run, {"quest:budget=256,page=16", "quest:budget=512", "quest:budget=128", "fluxion:heads=published"},
                   load_shape(kShape), 0.02);
  EXPECT_EQ(a.methods[0].measured_as, "quest:budget=256") << "the default, spelled out";
  EXPECT_EQ(a.methods[1].measured_as, "quest:page=16,budget=512");
  EXPECT_EQ(a.methods[1].standing, Standing::beyond);
  EXPECT_EQ(a.methods[2].measured_as, "");
  EXPECT_EQ(a.methods[3].measured_as, "fluxion:heads=fixed") << "published stands in for what heads are";
}

TEST(Answers, RunsThatSayNothingAreRefused) {
  const std::vector<std::string> methods = {"full", "quest:budget=256"};
  const TemporaryFolder lossy, half, others, empty, perplexity;
  EXPECT_THAT(refusal_of(run_of(lossy, {"streaming", "full", "quest:budget=256"}, {0, 0, 0}, 8), methods),
              HasSubstr("its first method is streaming, which losses are measured against"));
  EXPECT_THAT(refusal_of(run_of(half, methods, {0, 0}, 8, /*finished=*/false), methods), HasSubstr("is not finished"));
  EXPECT_THAT(refusal_of(run_of(others, {"full", "tova"}, {0, 0}, 8), methods),
              AllOf(HasSubstr("has none of the methods that lose something"), HasSubstr("full, tova")));
  EXPECT_THAT(refusal_of(empty / "none", methods), HasSubstr("none"));
  Manifest manifest = example_manifest();
  manifest.benchmark = kPerplexity;
  RunFolder::create(perplexity / "run", manifest).keep();
  EXPECT_THAT(refusal_of(perplexity / "run", methods), HasSubstr("is a perplexity"));
}

/// 4 ms for full, 2 for quest, 1 for streaming; the last of them is refused at the second context.
Sweep sweep_with(const Answers& answers) {
  SweepOptions options;
  options.methods = {"full", "quest:budget=256", "streaming"};
  options.hardware = {load_profile("h200")};
  options.contexts = {1024, 4096};
  options.batches = {4};
  Sweep sweep{"a model", 10, 4096, "a shape", options, a_workload(), {}};
  for (const std::uint32_t context : options.contexts)
    for (std::size_t m = 0; m < 3; ++m) {
      SweepPoint& point = sweep.points.emplace_back();
      point = {"h200", options.methods[m], context, 4, 4, m == 0, {}};
      point.row.method = point.method;
      point.row.step_ms = point.row.busy_ms = m == 0 ? 4 : m == 1 ? 2 : 1;
    }
  sweep.answers = answers;
  return sweep;
}

TEST(Answers, ChooseTheFastestThatLosesLittle) {
  const TemporaryFolder root;
  const std::vector<std::string> methods = {"full", "quest:budget=256", "streaming"};
  const auto run = run_of(root, methods, {5, 7, 40});
  const auto text = [&](double margin, bool markdown = true) {
    return sweep_text(sweep_with(read_answers(run, methods, load_shape(kShape), margin)), markdown);
  };
  EXPECT_THAT(text(0.05), AllOf(HasSubstr("| quest:budget=256 | 93.0 | 2.0\u00a0[1.0,\u00a0"
                                          "3.2] | yes |"),
                                HasSubstr("| streaming | 60.0 | 35.0\u00a0["), HasSubstr("] | no |"),
                                HasSubstr("| full | 95.0 | - | yes, it loses nothing |")));
  EXPECT_THAT(text(0.05), HasSubstr("| h200 | 4 | 1K | streaming 4000 | quest:budget=256 2000 | - | full 1000 |"));
  EXPECT_THAT(
      text(0.02),
      HasSubstr("| h200 | 4 | 1K | streaming 4000 | full 1000 | quest:budget=256 2000 (cannot tell) | full 1000 |"));
  EXPECT_THAT(text(0.005), HasSubstr("| h200 | 4 | 1K | streaming 4000 | full 1000 | - | full 1000 |"));
  EXPECT_THAT(text(0.4), HasSubstr("| streaming 4000 | streaming 4000 | - |"));
  EXPECT_THAT(text(0.05), AllOf(HasSubstr("No answer was measured at contexts of 4K:"), HasSubstr("at most 5 points"),
                                Not(HasSubstr("Speed alone"))));
  std::istringstream lines(text(0.02, /*markdown=*/false));
  for (std::string line; std::getline(lines, line);) {
    if (line.find(root.operator/("run").string()) != std::string::npos) continue;  // a path has its own length
    std::size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(columns, 100u) << line;
  }
}

TEST(Answers, AreKeptInTheSweepsFile) {
  const TemporaryFolder root;
  const std::vector<std::string> methods = {"full", "quest:budget=256", "streaming"};
  const auto run = run_of(root, {"full", "quest:budget=256"}, {5, 7});
  const Sweep sweep = sweep_with(read_answers(run, methods, load_shape(kShape), 0.05));
  const std::string text = json_of(sweep);
  const SweepFile file = parse_sweep(text, "sweep.json");
  EXPECT_EQ(sweep_json(file.sweep, file.command, file.program), text);
  EXPECT_EQ(sweep_text(file.sweep, true), sweep_text(sweep, true));
  EXPECT_THAT(sweep_csv(sweep), AllOf(HasSubstr(",score,loss,loss_low,loss_high,loss_standing\n"),
                                      HasSubstr(",0.930000,0.020000,0.01"), HasSubstr(",,,,,not measured\n")));
  const auto broken = [&](const std::string& part, const std::string& by) {
    std::string changed = text;
    changed.replace(changed.find(part), part.size(), by);
    return sentence_of([&] { parse_sweep(changed, "sweep.json"); });
  };
  EXPECT_THAT(broken("\"standing\": \"not measured\"", "\"standing\": \"within\""),
              AllOf(HasSubstr("answers, method 3"), HasSubstr("'standing' must be \"not measured\"")));
  EXPECT_THAT(broken("\"margin\": 0.05", "\"margin\": 5"), HasSubstr("'margin'"));
  EXPECT_THAT(broken("\"interval_kind\": \"W", "\"interval_kind\": \"w"), HasSubstr("'interval_kind'"));
  EXPECT_THAT(broken("\"baseline\"", "\"base\""), HasSubstr("'baseline' is missing"));
}

}  // namespace
}  // namespace tandem::eval
