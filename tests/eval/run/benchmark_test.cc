#include "eval/run/benchmark.h"

#include <chrono>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/device/sim_device.h"
#include "eval/run/decoded.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kNew = 6;

/// Every answer is right.
class Praise final : public Benchmark {
 public:
  explicit Praise(const Model& model) : model_(model) {}
  std::string name() const override { return "praise"; }
  BenchmarkSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override {
    BenchmarkSample sample;
    sample.task = task;
    sample.length = length;
    sample.index = index;
    sample.prompt = model_.tokenizer->encode("Tom had an apple and", true);
    sample.answers = {"yes"};
    sample.max_new_tokens = kNew;
    sample.cut_is_wrong = index == 0;
    sample.document = index / 2;
    if (index == 2) sample.sampling = {.temperature = 50, .seed = 4};
    return sample;
  }
  std::string prediction(std::span<const std::int32_t> tokens) const override {
    return model_.tokenizer->decode(tokens);
  }
  std::vector<Score> scores(std::span<const BenchmarkSample> samples, std::span<const std::string>) const override {
    return std::vector<Score>(samples.size(), Score{1});
  }

 private:
  const Model& model_;
};

TEST(RunBenchmark, ASampleMayBeDrawnAndAnAnswerThatIsCutMayBeWrong) {
  const Model model = load_model("tiny");
  ThreadPool pool(1);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  const testing::TemporaryFolder root;
  BenchmarkOptions options;
  options.methods = {"full"};
  options.batch = 3;
  Manifest manifest;
  manifest.methods = method_entries(options.methods);
  manifest.command = "tandem praise --batch 3";
  manifest.benchmark = "praise";
  manifest.tasks = {"t"};
  manifest.lengths = {0};
  manifest.samples = 3;
  manifest.clock = device->clock_name();
  manifest.started_utc = utc_now();
  RunFolder folder = RunFolder::create(root.path() / "run", manifest);
  run_benchmark(Praise(model), options, model, *device, pool, folder);
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
  run_benchmark(Praise(model), options, model, *device, pool, older);
  EXPECT_EQ(older.samples()[2].document, std::nullopt);
}

TEST(PrefixCache, GoesOnWhereNothingCanBeKept) {
  const Model model = load_model("tiny");
  ThreadPool pool(1);
  const auto device = make_sim_device(load_profile("fluxion-a100"));
  Engine engine(model, *device, pool, {});
  const testing::TemporaryFolder root;
  std::vector<std::string> said;
  const PrefixCache cache(
      {root.path() / "kept", "engine 1", {}, [&](const std::string& sentence) { said.push_back(sentence); }}, {});
  const std::vector<std::int32_t> prompt = model.tokenizer->encode("Tom had an apple and", true);
  engine.release(*cache.prefill(engine, prompt));
  EXPECT_TRUE(said.empty());
  std::filesystem::remove_all(root.path() / "kept");
  for (int i = 0; i < 2; ++i) {
    const auto prefix = cache.prefill(engine, prompt);
    EXPECT_EQ(prefix->prompt, prompt);
    engine.release(*prefix);
  }
  EXPECT_THAT(said, ::testing::ElementsAre(::testing::HasSubstr("goes on without keeping")));
  EXPECT_EQ(engine.kv().bytes_in_use(Tier::device), 0u);
}

TEST(PrefixCache, RemovesWhatWasLeftHalfWritten) {
  const testing::TemporaryFolder root;
  const auto long_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(25);
  for (const char* name : {"a.prefix", "a.prefix.part12", "b.prefix.part34", "notes.txt"}) {
    testing::write_bytes(root.path() / name, "x");
    if (name[0] != 'b') std::filesystem::last_write_time(root.path() / name, long_ago);
  }
  const PrefixCache cache({root.path(), "engine 1"}, {});
  EXPECT_FALSE(std::filesystem::exists(root.path() / "a.prefix.part12"));
  for (const char* name : {"a.prefix", "b.prefix.part34", "notes.txt"})
    EXPECT_TRUE(std::filesystem::exists(root.path() / name)) << name;
}

}  // namespace
}  // namespace tandem::eval
