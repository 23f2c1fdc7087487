// tandem bench as a user meets it: tables, the file, and what bad options say.
#include <csignal>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "engine/common/json.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(BenchProgram, DecodeTellsRealTimeByOperation) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "decode.json").string();
  const cli::Outcome outcome =
      cli::run("bench decode --quiet --context 64 --steps 2 --rounds 3 --threads 1 --method streaming --out " + file,
               cli::kOnlyOutput);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("measured on"), HasSubstr("streaming"), HasSubstr("tokens/s"),
                                  HasSubstr("output and mlp"), HasSubstr("logits and arg max")));
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("threads"), 1);
  const Json& row = json.at("rows").at(0);
  EXPECT_EQ(row.at("round_ms").size(), 3u);
  double sum = row.at("compute_lane_idle_ms");
  for (const Json& o : row.at("operations")) sum += o.at("ms").get<double>();
  double mean = 0;
  for (const double ms : row.at("round_ms")) mean += ms / 3;
  EXPECT_GT(sum, 0.99 * mean);
}

TEST(BenchProgram, SeveralMethodsDecodeABatchInOneProcess) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "decode.json").string();
  const cli::Outcome outcome = cli::run(
      "bench decode --quiet --context 64 --steps 2 --rounds 2 --threads 1 --batch 2 --method "
      "full,hybrid-fixed:budget=0.5,window=16,sinks=16 --method streaming --out " +
          file,
      cli::kOnlyOutput);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("2 sequences behind 64 tokens each"), HasSubstr("speed-up"),
                                  HasSubstr("hybrid-fixed = hybrid-fixed:"), HasSubstr("streaming"),
                                  HasSubstr("\nloading: "), HasSubstr("\nmemory: ")));
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("batch"), 2);
  ASSERT_EQ(json.at("rows").size(), 3u);
  const Json& row = json.at("rows")[2];
  EXPECT_THAT(row.at("method").get<std::string>(), HasSubstr("streaming"));
  EXPECT_NEAR(row.at("tokens_per_second").get<double>(), 2 * 1e3 / row.at("median_ms").get<double>(), 1e-6);
  EXPECT_GT(json.at("loading").at("seconds").get<double>(), 0);
  EXPECT_GE(json.at("memory").at("peak_bytes").get<double>(), json.at("memory").at("resident_bytes").get<double>());
}

TEST(BenchProgram, PrefillNeedsNoTokenizer) {
  const TemporaryFolder folder;
  for (const char* file : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(golden_folder() / "tiny_qwen2" / file, folder.path() / file);
  }
  const cli::Outcome outcome = cli::run(
      "bench prefill --quiet --tokens 48 --rounds 1 --threads 1 --model " + folder.path().string(), cli::kOnlyOutput);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("48 tokens"), HasSubstr("prefill attention")));
}

TEST(BenchProgram, KernelsBesideTheMachine) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "kernels.json").string();
  const cli::Outcome outcome =
      cli::run("bench kernels --quiet --kernel choose --rounds 1 --threads 1 --out " + file, cli::kOnlyOutput);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("measured on"), HasSubstr("choose"), HasSubstr("vocabulary 151936")));
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("device"), "cpu");
  ASSERT_EQ(json.at("kernels").size(), 2u);
  EXPECT_GT(json.at("kernels")[0].at("us"), 0);
}

TEST(BenchProgram, KernelsOfOneShape) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "kernels.json").string();
  const cli::Outcome outcome = cli::run(
      "bench kernels --quiet --kernel choose --shape 'n 16,' --rounds 1 --threads 1 --out " + file, cli::kOnlyOutput);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const Json json = parse_json(read_bytes(file), "JSON");
  ASSERT_EQ(json.at("kernels").size(), 1u);
  EXPECT_EQ(json.at("kernels")[0].at("shape"), "n 16, vocabulary 151936, random");
}

TEST(BenchProgram, KernelsAreCheckedAtTheShapesThatAreMeasured) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "checks.json").string();
  const cli::Outcome outcome =
      cli::run("bench kernels --quiet --check --kernel choose --threads 1 --out " + file, cli::kOnlyOutput);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(HasSubstr("vocabulary 151936"), HasSubstr("right")));
  const Json json = parse_json(read_bytes(file), "JSON");
  ASSERT_EQ(json.at("kernels").size(), 2u);
  EXPECT_EQ(json.at("kernels")[0].at("wrong"), "");
  EXPECT_FALSE(json.contains("unfinished"));
}

TEST(BenchProgram, AnInterruptEndsKernelsBetweenRounds) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "kernels.json").string();
  const pid_t child = cli::start("bench kernels --kernel choose --rounds 1000 --threads 1 --out " + file);
  cli::wait_until_it_handles_interrupts(child);
  kill(child, SIGINT);
  EXPECT_EQ(cli::exit_code_of(child), 3);
  EXPECT_FALSE(std::filesystem::exists(file)) << "no case was finished";
}

TEST(BenchProgram, AnInterruptSaysNothingOfSamples) {
  const TemporaryFolder folder;
  const std::string said = (folder.path() / "said").string();
  for (const char* command :
       {"bench decode --context 16K --rounds 1000 --quiet", "generate --max-new 30000 --prompt 'Some words'"}) {
    const pid_t child = cli::start(command, said);
    cli::wait_until_it_handles_interrupts(child);
    kill(child, SIGINT);
    EXPECT_EQ(cli::exit_code_of(child), 3);
    EXPECT_THAT(read_bytes(said), AllOf(HasSubstr("Stopping"), HasSubstr("Interrupted"), Not(HasSubstr("sample"))));
  }
}

TEST(BenchProgram, AnInterruptKeepsTheCasesThatAreFinished) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "kernels.json").string();
  const pid_t child = cli::start("bench kernels --kernel choose --rounds 40 --threads 1 --out " + file);
  cli::wait_for_file(file);
  kill(child, SIGINT);
  EXPECT_EQ(cli::exit_code_of(child), 3);
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("unfinished"), "1 of 2 cases");
  ASSERT_EQ(json.at("kernels").size(), 1u);
  EXPECT_GT(json.at("kernels")[0].at("us"), 0);
}

TEST(BenchProgram, AnInterruptKeepsTheRoundsThatAreFinished) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "decode.json").string(), said = (folder.path() / "said").string();
  const pid_t child = cli::start("bench decode --quiet --context 64 --rounds 1000 --threads 1 --out " + file, said);
  cli::wait_for_file(file);
  kill(child, SIGTERM);
  EXPECT_EQ(cli::exit_code_of(child), 3);
  EXPECT_THAT(read_bytes(said), HasSubstr("has the rounds that were finished"));
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_THAT(json.at("unfinished").get<std::string>(), HasSubstr(" of 1000 rounds"));
  EXPECT_GT(json.at("rows").at(0).at("median_ms"), 0);
}

// The bytes of a path may be no text; what was measured is worth more.
TEST(BenchProgram, NamesThatAreNoTextAreWrittenAllTheSame) {
  const TemporaryFolder folder;
  const std::filesystem::path model = folder.path() / "m\xfe", file = folder.path() / "prefill.json";
  std::filesystem::create_directory(model);
  for (const char* name : {"config.json", "model.safetensors"})
    std::filesystem::copy_file(golden_folder() / "tiny_qwen2" / name, model / name);
  const cli::Outcome outcome = cli::run("bench prefill --quiet --tokens 48 --rounds 010 --threads 1 --model " +
                                        model.string() + " --out " + file.string());
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("model"), "m\uFFFD");
  EXPECT_EQ(json.at("rows").at(0).at("round_ms").size(), 10u) << "010 is ten, not eight";
}

TEST(BenchProgram, OutIsAFileOrALinkToOne) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "real.json", link = folder.path() / "link.json",
                              pipe = folder.path() / "pipe";
  const std::string command = "bench kernels --quiet --kernel choose --rounds 1 --threads 1 --force --out ";
  write_bytes(file, "{}");
  std::filesystem::create_symlink("real.json", link);
  ASSERT_EQ(cli::run(command + link.string()).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(parse_json(read_bytes(file), "JSON").at("device"), "cpu");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const cli::Outcome refused = cli::run(command + pipe.string());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr("is no regular file"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

class BadBench : public ::testing::TestWithParam<cli::BadUsage> {};
INSTANTIATE_TEST_SUITE_P(
    Sentences, BadBench,
    ::testing::Values(
        cli::BadUsage{"bench", "see tandem bench --help."},
        cli::BadUsage{"bench decoed", "tandem bench has no 'decoed'. Did you mean 'decode'?"},
        cli::BadUsage{"bench kernels --kernel swigl", "there is no kernel 'swigl'. Did you mean 'swiglu'?"},
        cli::BadUsage{"bench kernels --device gpu", "--device is 'gpu': give cpu or cuda."},
        cli::BadUsage{"bench kernels --kernel gather", "'gather' does not run on cpu."},
        cli::BadUsage{"bench kernels --kernel choose --shape n2",
                      "--shape: no shape of choose on cpu has 'n2' in it. There are 'n 1, vocabulary 151936"},
        cli::BadUsage{"bench kernels --shape nowhere", "on cpu has 'nowhere' in it. There are "},
        cli::BadUsage{"bench kernels --rounds 0", "--rounds is 0: give 1 to 1000."},
        cli::BadUsage{"bench kernels --check --rounds 3", "--rounds has no place beside it"},
        cli::BadUsage{"bench kernels --rounds 0x10", "--rounds: '0x10' is not a whole number"},
        cli::BadUsage{"bench kernels --rounds 99999999999999999999999", "is not a whole number"},
        cli::BadUsage{"bench decode --tokens 4K", "There is no option '--tokens' of tandem bench decode."},
        cli::BadUsage{"bench decode --context 1K,2K", "--context is '1K,2K': give one length."},
        cli::BadUsage{"bench prefill --tokens 0", "--tokens: the length '0' is outside"},
        cli::BadUsage{"bench decode --context 1M", "positions of model 'embedded'"},
        cli::BadUsage{"bench prefill --tokens 1M", "positions"},
        cli::BadUsage{"bench decode --steps 0", "--steps is 0"},
        cli::BadUsage{"bench prefill --rounds 0", "--rounds is 0"},
        cli::BadUsage{"bench decode --method ful", "Did you mean 'full'?"},
        cli::BadUsage{"bench decode --method full,full", "Method 'full' is listed twice."},
        cli::BadUsage{"bench decode --batch 0", "--batch is 0: give 1 to 256."},
        cli::BadUsage{"bench decode --batch 4 --context 1K --device-kv 4M",
                      "--device-kv is 4194304 bytes, but the prompts of 4 sequences of 1057 tokens need "},
        cli::BadUsage{"bench prefill --batch 2", "There is no option '--batch' of tandem bench prefill."},
        cli::BadUsage{"bench decode --threads 4000", "--threads is 4000"},
        cli::BadUsage{"bench prefill --out /no/such/folder/x.json", "'/no/such/folder' does not exist"},
        cli::BadUsage{"bench prefill --model /no/such/model", "/no/such/model"}));

TEST_P(BadBench, EndsWithTwoAndOneSentence) {
  const std::string arguments = GetParam().arguments;
  const cli::Outcome outcome = cli::run(arguments, cli::kOnlyErrors);
  EXPECT_EQ(outcome.code, 2) << outcome.text;
  EXPECT_THAT(outcome.text, AllOf(::testing::StartsWith("tandem: "), HasSubstr(GetParam().says)));
  EXPECT_EQ(outcome.text.find('\n'), outcome.text.size() - 1) << outcome.text;
  EXPECT_EQ(cli::run(arguments, cli::kOnlyOutput).text, "");
}

}  // namespace
}  // namespace tandem::testing
