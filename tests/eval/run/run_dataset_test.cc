#include "eval/run/run_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "engine/device/sim_device.h"
#include "eval/report/summary.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kNew = 6;

/// Every answer is right.
class Praise final : public Dataset {
 public:
  explicit Praise(const Model& model) : model_(model) {}
  std::string name() const override { return "praise"; }
  std::vector<std::string> tasks() const override { return {"praise"}; }
  std::uint32_t samples_of(const std::string&) const override { return 3; }
  std::string protocol_id(const Manifest&) const override { return "praise/v1"; }
  std::uint32_t longest_prompt() const override { return 64; }
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override {
    DatasetSample sample;
    sample.task = task;
    sample.length = length;
    sample.index = index;
    sample.prompt = model_.tokenizer->encode("Lily and Tom went to the park. Tom had an apple and", true);
    sample.answers = {"yes"};
    sample.max_new_tokens = kNew;
    sample.cut_is_wrong = index == 0;
    sample.document = index / 2;
    if (index == 2) sample.sampling = {.temperature = 50, .seed = 4};
    return sample;
  }
  Score score(const DatasetSample&, const std::string&) const override { return {1}; }

 private:
  const Model& model_;
};

Manifest praise_manifest(const DatasetRunOptions& options, const Device& device) {
  Manifest manifest;
  manifest.methods = method_entries(options.methods);
  manifest.command = "tandem praise";
  manifest.benchmark = "praise";
  manifest.tasks = {"t"};
  manifest.lengths = {0};
  manifest.samples = 3;
  manifest.clock = device.clock_name();
  manifest.started_utc = utc_now();
  return manifest;
}

TEST(RunDataset, ASampleMayBeDrawnAndAnAnswerThatIsCutMayBeWrong) {
  const Model model = load_model("tiny");
  ThreadPool pool(1);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  const testing::TemporaryFolder root;
  DatasetRunOptions options;
  options.methods = {"full"};
  options.batch = 3;
  Manifest manifest = praise_manifest(options, *device);
  RunFolder folder = RunFolder::create(root.path() / "run", manifest);
  run_dataset(Praise(model), options, model, *device, pool, folder);
  const std::vector<SampleResult> samples = folder.samples();
  ASSERT_EQ(samples.size(), 3u);
  for (const SampleResult& sample : samples) ASSERT_EQ(sample.tokens.size(), kNew) << "cut, or this tests nothing";
  EXPECT_EQ(samples[0].score, 0);
  EXPECT_EQ(samples[1].score, 1) << "benchmarks that do not ask for it";
  EXPECT_EQ(samples[0].tokens, samples[1].tokens) << "greedy beside one that is drawn";
  EXPECT_NE(samples[2].tokens, samples[1].tokens);
  EXPECT_EQ(samples[1].document, 0u);
  EXPECT_EQ(samples[2].document, 1u);
  // A run that an older program began goes on as one of its version, which names no document.
  manifest.schema_version = 10;
  RunFolder older = RunFolder::create(root.path() / "older", manifest);
  run_dataset(Praise(model), options, model, *device, pool, older);
  EXPECT_EQ(older.samples()[2].document, std::nullopt);
}

/// Says that it is lossless, and attends nothing but the newest token.
class Liar final : public Method {
 public:
  std::string spelled_out() const override { return "liar"; }
  Needs needs(const ModelShape&) const override { return {.lossless = true}; }
  AttendPlan plan_attend(const LayerContext& context, Ops&) override {
    AttendPlan plan;
    for (const SequenceState* sequence : context.batch)
      plan.items.push_back({.row = sequence->row, .kv = Ranges{{sequence->tokens - 1, sequence->tokens}}});
    return plan;
  }
};

TEST(RunDataset, SaysWhereALosslessMethodPartsFromFullWhicheverComesFirst) {
  const Model model = load_model("tiny");
  ThreadPool pool(1);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  const testing::TemporaryFolder root;
  DatasetRunOptions options;
  options.methods = {"streaming", "full-host", "full", "quest"};
  options.make = [](const std::string& spec) -> std::unique_ptr<Method> {
    if (spec == "streaming") return std::make_unique<Liar>();
    return make_method(spec == "quest" ? "streaming:sinks=0,window=1" : spec);
  };
  options.batch = 3;
  Manifest manifest = praise_manifest(options, *device);
  RunFolder folder = RunFolder::create(root.path() / "run", manifest);
  run_dataset(Praise(model), options, model, *device, pool, folder);
  std::map<std::string, std::vector<SampleResult>> samples;
  for (const SampleResult& sample : folder.samples()) samples[sample.method].push_back(sample);
  ASSERT_EQ(samples.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    const std::vector<std::int32_t>&full = samples["full"][i].tokens, &own = samples["streaming"][i].tokens;
    ASSERT_NE(own, full) << "or this tests nothing";
    const std::optional<Parting>& parted = samples["streaming"][i].parted;
    ASSERT_TRUE(parted);
    const auto first = std::mismatch(full.begin(), full.end(), own.begin(), own.end()).first - full.begin();
    EXPECT_EQ(parted->step, first);
    if (i == 2) continue;  // drawn: none of the best, perhaps
    EXPECT_EQ(parted->full.tokens[0], full[first]);
    EXPECT_EQ(parted->own.tokens[0], own[first]);
    for (const Parting::Choice& of : {parted->full, parted->own}) {
      EXPECT_NE(of.tokens[0], of.tokens[1]);
      EXPECT_GE(of.logits[0], of.logits[1]);
    }
    EXPECT_EQ(parted->gap(), parted->full.logits[0] - parted->full.logits[1]);
  }
  for (const char* same : {"full", "full-host", "quest"})
    for (const SampleResult& sample : samples[same]) EXPECT_EQ(sample.parted, std::nullopt) << same;
  EXPECT_EQ(samples["full-host"][0].tokens, samples["full"][0].tokens);
  const Summary summary = summarise(folder);
  EXPECT_EQ(summary.methods[0].parted.size(), 3u);
  EXPECT_EQ(summary.methods[1].parted.size(), 0u);
  EXPECT_THAT(report_text(summary, false), ::testing::HasSubstr("streaming is lossless, and its tokens part"));
  const testing::Json methods = parse_json(to_json_text(summary), "summary.json").at("methods");
  EXPECT_EQ(methods.at(0).at("parted_samples"), 3);
  EXPECT_FALSE(methods.at(1).contains("parted_samples"));
  manifest.schema_version = kPartedSince - 1;  // a run that an older program began
  RunFolder older = RunFolder::create(root.path() / "older", manifest);
  run_dataset(Praise(model), options, model, *device, pool, older);
  for (const SampleResult& sample : older.samples()) EXPECT_EQ(sample.parted, std::nullopt) << sample.method;
}

TEST(RunDataset, SaysHowManyTokensThePrefixCacheHad) {
  const Model model = load_model("tiny");
  ThreadPool pool(1);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  const testing::TemporaryFolder root;
  DatasetRunOptions options;
  options.methods = {"full", "streaming"};
  const Manifest manifest = praise_manifest(options, *device);
  RunFolder alone = RunFolder::create(root.path() / "alone", manifest);
  run_dataset(Praise(model), options, model, *device, pool, alone);
  EXPECT_EQ(summarise(alone).reused_tokens, 0u);
  EXPECT_THAT(report_text(summarise(alone), true), ::testing::Not(::testing::HasSubstr("prefix cache")));
  options.engine.prefix_cache.bytes = std::size_t{1} << 20;
  RunFolder folder = RunFolder::create(root.path() / "run", manifest);
  run_dataset(Praise(model), options, model, *device, pool, folder);
  const std::vector<SampleResult> samples = folder.samples();
  EXPECT_EQ(samples, alone.samples());
  const std::uint32_t prefilled = samples.front().prompt_tokens - 1;
  for (const SampleTiming& timing : folder.timings())
    EXPECT_EQ(timing.reused_tokens, timing.index == 0 ? 0 : prefilled) << timing.method;
  const Summary summary = summarise(folder);
  EXPECT_EQ(summary.prefill_tokens, 3 * prefilled);
  EXPECT_EQ(summary.reused_tokens, 2 * prefilled);
  EXPECT_THAT(report_text(summary, true),
              ::testing::HasSubstr(fmt::format("The prefix cache had {} of {}", 2 * prefilled, 3 * prefilled)));
}

}  // namespace
}  // namespace tandem::eval
