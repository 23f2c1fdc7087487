// Losses of a run of the user's and of methods/losses.json: matched by options, with lengths, shares and sources.
#include "eval/predict/losses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/run/decoded.h"
#include "tests/eval/predict/sweeps.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint32_t kSamples = 400;

/// A finished run with these methods; `wrong`: of a hundred samples of each how many are wrong, always the first ones,
/// at 1K; at 2K twice as many.
std::filesystem::path entries_run(const TemporaryFolder& root, std::vector<MethodEntry> methods,
                                  const std::vector<std::uint32_t>& wrong, std::uint32_t samples = kSamples,
                                  bool finished = true, const std::vector<std::uint32_t>& lengths = {1024, 2048}) {
  Manifest manifest = example_manifest();
  manifest.methods = std::move(methods);
  manifest.lengths = lengths;
  manifest.samples = samples;
  manifest.clock = manifest.hardware_profile = manifest.hardware_hash = "";
  RunFolder folder = RunFolder::create(root / "run", manifest);
  for (const std::uint32_t length : manifest.lengths)
    for (std::uint32_t index = 0; index < samples; ++index)
      for (std::size_t m = 0; m < manifest.methods.size(); ++m) {
        if (!finished && length == 2048 && index == 0 && m == 1) continue;
        SampleResult sample = example_sample(index, manifest.methods[m].label);
        sample.length = length;
        sample.prompt_tokens = 500 + index;
        sample.score = index % 100 < wrong[m] * (length == 2048 ? 2 : 1) ? 0 : 1;
        folder.append(sample);
      }
  return root / "run";
}

std::filesystem::path run_of(const TemporaryFolder& root, const std::vector<std::string>& methods,
                             const std::vector<std::uint32_t>& wrong, std::uint32_t samples = kSamples,
                             bool finished = true) {
  return entries_run(root, method_entries(methods), wrong, samples, finished);
}

std::vector<Loss> losses(const std::filesystem::path& run, const std::vector<std::string>& methods) {
  return losses_of_run(run, methods, load_shape(kShape));
}

std::string refusal_of(const std::filesystem::path& run, const std::vector<std::string>& methods) {
  return sentence_of([&] { losses(run, methods); });
}

/// The only loss of a method at a length.
const Loss& of(const std::vector<Loss>& all, const std::string& method, std::uint32_t length) {
  const auto is = [&](const Loss& loss) { return loss.method == method && loss.longest == length; };
  EXPECT_EQ(std::ranges::count_if(all, is), 1) << method << " at " << length;
  static const Loss none;
  const auto found = std::ranges::find_if(all, is);
  return found == all.end() ? none : *found;
}

TEST(Losses, OfARunAreBesideItsFirstMethodOnTheSameSamples) {
  const TemporaryFolder root;
  const auto run = run_of(root, {"full", "quest:budget=256", "streaming"}, {5, 8, 40});
  const std::vector<Loss> all = losses(run, {"full", "full-offload", "quest:budget=256", "streaming", "hgca"});
  EXPECT_EQ(all.size(), 4u) << "two methods at two lengths; lossless ones and one that the run lacks have no row";
  for (const Loss& loss : all) {
    EXPECT_EQ(loss.kind, LossKind::yours);
    EXPECT_TRUE(loss.measured());
    EXPECT_TRUE(loss.exact);
    EXPECT_FALSE(loss.any_length) << loss.method << ": a budget in tokens";
    EXPECT_EQ(loss.model, "tiny");
    EXPECT_THAT(loss.source, AllOf(HasSubstr("ruler, 1 task"), HasSubstr(run.string())));
    ASSERT_TRUE(loss.interval.has_value());
    EXPECT_LT(loss.interval->low, loss.points);
    EXPECT_GT(loss.interval->high, loss.points);
  }
  EXPECT_NEAR(of(all, "quest:budget=256", 1024).points, 3, 1e-9);
  EXPECT_NEAR(of(all, "quest:budget=256", 2048).points, 6, 1e-9);
  EXPECT_NEAR(of(all, "streaming", 1024).points, 35, 1e-9) << "above 0 is worse";
}

TEST(Losses, OfPromptsAsLongAsTheyAreHaveARangeOfLengths) {
  const TemporaryFolder root;
  const std::vector<std::string> methods = {"full", "quest:budget=256"};
  const std::vector<Loss> all =
      losses(entries_run(root, method_entries(methods), {5, 9}, kSamples, true, {0}), methods);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].shortest, 500u);
  EXPECT_EQ(all[0].longest, 500 + kSamples - 1);
  EXPECT_NEAR(all[0].points, 4, 1e-9);
}

TEST(Losses, AMethodIsTheRunsOneWithTheSameOptions) {
  const TemporaryFolder root;
  std::vector<MethodEntry> entries =
      method_entries({"full", "quest:budget=256", "quest:page=16,budget=512", "tova:budget=128", "streaming"});
  std::erase_if(entries[1].options, [](const auto& option) { return option.first == "dense_layers"; });  // an older run
  entries[4].content = "0123456789abcdef";  // as if it had read a file
  const std::vector<std::string> others = {"quest:budget=128", "tova:budget=256", "quest:budget=256,dense_layers=2",
                                           "streaming"};
  std::vector<std::string> asked = {"quest:budget=256,page=16", "quest:budget=512"};
  asked.insert(asked.end(), others.begin(), others.end());
  const std::vector<Loss> all = losses(entries_run(root, entries, {0, 0, 40, 0, 0}), asked);
  EXPECT_EQ(of(all, "quest:budget=256,page=16", 1024).points, 0) << "the defaults, spelled out";
  EXPECT_NEAR(of(all, "quest:budget=512", 1024).points, 40, 1e-9);
  for (const Loss& loss : all) EXPECT_EQ(std::ranges::count(others, loss.method), 0) << loss.method;
}

TEST(Losses, AStandInForAFileIsTheRunsMethodThatReadOne) {
  const TemporaryFolder one, two;
  const std::vector<std::string> asked = {"fluxion:heads=published", "fluxion:heads=embedded", "fluxion:heads=fixed"};
  std::vector<MethodEntry> entries = method_entries(
      {"full", "fluxion:heads=fixed", "fluxion:heads=oracle", "fluxion:heads=seed", "fluxion:heads=embedded"});
  std::vector<Loss> all = losses(entries_run(one, entries, {0, 0, 0, 10, 20}, 100), asked);
  EXPECT_NEAR(of(all, "fluxion:heads=published", 1024).points, 10, 1e-9) << "the first that reads a predictor";
  EXPECT_TRUE(of(all, "fluxion:heads=published", 1024).any_length) << "its budget is an error, not tokens";
  EXPECT_NEAR(of(all, "fluxion:heads=embedded", 1024).points, 20, 1e-9);
  entries[4].label = "fluxion:heads=elsewhere";  // the same file has moved
  for (auto& option : entries[4].options)
    if (option.first == "heads") option.second = "elsewhere";
  entries.erase(entries.begin() + 2, entries.begin() + 4);
  all = losses(entries_run(two, entries, {0, 0, 20}, 100), {"fluxion:heads=embedded", "fluxion:heads=seed"});
  EXPECT_NEAR(of(all, "fluxion:heads=embedded", 1024).points, 20, 1e-9);
  EXPECT_EQ(std::ranges::count(all, "fluxion:heads=seed", &Loss::method), 0) << "another file";
}

TEST(Losses, RunsThatSayNothingAreRefused) {
  const std::vector<std::string> methods = {"full", "quest:budget=256"};
  const TemporaryFolder lossy, dense, half, others, empty, perplexity, whole;
  EXPECT_THAT(refusal_of(run_of(lossy, {"streaming", "full", "quest:budget=256"}, {0, 0, 0}, 8), methods),
              HasSubstr("its first method is streaming, which losses are measured against"));
  EXPECT_THAT(refusal_of(run_of(dense, {"quest:dense_layers=16", "quest:budget=256"}, {0, 0}, 8), methods),
              HasSubstr("its first method is quest:dense_layers=16"))
      << "lossless at this shape, not at the run's";
  EXPECT_THAT(refusal_of(run_of(half, methods, {0, 0}, 8, /*finished=*/false), methods), HasSubstr("is not finished"));
  EXPECT_THAT(refusal_of(run_of(others, {"full", "tova"}, {0, 0}, 8), methods),
              HasSubstr("has none of the methods full, quest:budget=256 that lose something: it has full, tova."));
  EXPECT_THAT(refusal_of(run_of(whole, methods, {0, 0}, 8), {"full", "full-offload"}),
              HasSubstr("has none of the methods full, full-offload that lose something"));
  EXPECT_THAT(refusal_of(empty / "none", methods), HasSubstr("none"));
  Manifest manifest = example_manifest();
  manifest.benchmark = kPerplexity;
  begun_run(perplexity / "run", manifest);
  EXPECT_THAT(refusal_of(perplexity / "run", methods), HasSubstr("is a perplexity"));
}

TEST(Losses, ThoseThatShipAreWhatNotesAndPapersSay) {
  const std::vector<Loss> all = shipped_losses();
  const auto find = [&](LossKind kind, const std::string& method, std::uint32_t length, const std::string& model) {
    const auto found = std::ranges::find_if(all, [&](const Loss& l) {
      return l.kind == kind && l.method == method && l.longest == length && l.model == model;
    });
    EXPECT_NE(found, all.end()) << method << " at " << length;
    return found == all.end() ? Loss() : *found;
  };
  const Loss smollm2 = find(LossKind::run, "fluxion:heads=published", 4096, "SmolLM2-135M-Instruct");
  EXPECT_EQ(smollm2.points, 3.75);  // studies/notes/language_model.md: 83.8 and 80.0
  EXPECT_THAT(smollm2.source, HasSubstr("studies/results/smollm2-longer.json"));
  EXPECT_EQ(find(LossKind::run, "quest:budget=848", 2048, "the embedded model").points, 0.83);  // README: 99.2 of 100
  EXPECT_EQ(find(LossKind::paper, "fluxion:heads=published", 131072, "Llama-3.1-8B-Instruct").points, 1.43);
  std::set<std::string> names;
  for (const Loss& loss : all) {
    EXPECT_NO_THROW(method_entries({loss.method})) << loss.method;
    EXPECT_EQ(loss.kind == LossKind::run, loss.share > 0) << loss.method;
    names.insert(loss.source);
  }
  EXPECT_EQ(names.size(), 5u);
}

TEST(Losses, OfMethodsAreThoseWithTheSameOptionsExceptTheBudget) {
  Loss shared, exact;
  shared.kind = exact.kind = LossKind::run;
  shared.method = "quest:budget=256";
  shared.share = 0.25;
  exact.method = "hybrid-fixed:budget=0.05";
  const std::vector<Loss> found = losses_of_methods(
      {shared, exact},
      {"quest", "quest:budget=256", "quest:dense_layers=2", "hybrid-fixed", "hybrid-fixed:budget=0.1"});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].method, "quest");
  EXPECT_FALSE(found[0].exact);
  EXPECT_EQ(found[1].method, "quest:budget=256");
  EXPECT_TRUE(found[1].exact);
  EXPECT_FALSE(found[1].any_length);
  EXPECT_EQ(found[2].method, "hybrid-fixed") << "0.05 is the default, and without a share the budget must be the same";
  EXPECT_TRUE(found[2].any_length) << "a share of the host's tokens";
}

TEST(Losses, ADamagedFileIsRefusedInASentence) {
  const auto refused = [](const std::string& source) {
    return sentence_of([&] { parse_losses("{\"sources\": [" + source + "]}", "losses.json"); });
  };
  const std::string start = R"({"kind": "shipped run", "model": "m", "source": "s", "rows": [)";
  EXPECT_EQ(refused(start + R"({"method": "quest", "length": 8, "share": 0.5, "points": 1}]})"), "no InputError");
  EXPECT_THAT(refused(start + R"({"method": "quest", "length": 8, "points": 101}]})"),
              AllOf(HasSubstr("losses.json, source 1, row 1"), HasSubstr("'points'")));
  EXPECT_THAT(refused(start + R"({"method": "quest", "length": 0, "points": 1}]})"), HasSubstr("'length'"));
  EXPECT_THAT(refused(start + R"({"method": "quest", "length": 8, "points": 1, "low": 2, "high": 3}]})"),
              HasSubstr("'low'"));
  EXPECT_THAT(refused(R"({"kind": "your run", "model": "m", "source": "s", "rows": []})"), HasSubstr("'kind'"));
}

}  // namespace
}  // namespace tandem::eval
