#include "eval/run/benchmark.h"

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
    if (index == 2) sample.sampling = {.temperature = 50, .seed = 4};
    return sample;
  }
  std::string prediction(std::span<const std::int32_t> tokens) const override {
    return model_.tokenizer->decode(tokens);
  }
  std::vector<double> scores(std::span<const BenchmarkSample> samples, std::span<const std::string>) const override {
    return std::vector<double>(samples.size(), 1.0);
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
}

}  // namespace
}  // namespace tandem::eval
