// `tandem eval longproc`, and with it every dataset of prompts with a reference: the run folder, --resume, and bad
// input.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "tests/cli/run_folders.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LongProcProgram : public RunFolders {
 protected:
  LongProcProgram() {
    const std::filesystem::path data = std::filesystem::path(folder("data")) / "data/tom_tracking";
    std::filesystem::create_directories(data);
    std::ofstream(data / "prompts.yaml") << "USER_PROMPT: |-\n  {story}\n  {question}\n";
    std::ofstream(data / "tom_tracking_0.5k.json")
        << R"([{"story": "Tom went to the park.", "question": "Where is Tom?", "solution": "- park"},
               {"story": "Lily saw a cat.", "question": "Who saw it?", "solution": "- Lily"}])";
  }
  std::string command(const std::string& more) const {
    return "eval longproc --model seed --quiet --no-plot --methods full,streaming:sinks=16,window=64 --data '" +
           folder("data") + "' " + more;
  }
};

TEST_F(LongProcProgram, ARunLeavesAFolderWithUpstreamsMetricsAndGoesOn) {
  const cli::Outcome done = cli::run(command("--batch 2 --out " + folder("a")));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(done.text, HasSubstr("longproc.json"));
  EXPECT_THAT(bytes("a", "report.txt"), AllOf(HasSubstr("LongProc\n"), HasSubstr("partial_accuracy")));
  EXPECT_THAT(bytes("a", "manifest.json"),
              AllOf(HasSubstr("longproc/v1+data:"), HasSubstr("--tasks tom_tracking_0.5k --batch 2")));
  EXPECT_THAT(bytes("a", "longproc.json"), HasSubstr("\"extraction_rate\": 100.0"));
  EXPECT_THAT(bytes("a", "report.md"), AllOf(HasSubstr("# LongProc on"), HasSubstr("## LongProc")));
  const std::string whole = bytes("a", "samples.jsonl");
  std::ofstream(std::filesystem::path(folder("a")) / "samples.jsonl") << whole.substr(0, whole.size() / 2);
  const cli::Outcome resumed = cli::run(command("--batch 2 --resume --out " + folder("a")));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(bytes("a", "samples.jsonl"), whole);
}

TEST_F(LongProcProgram, WhatIsWrongIsASentence) {
  const auto refused = [&](const std::string& more) {
    const cli::Outcome outcome = cli::run(command(more));
    EXPECT_EQ(outcome.code, 2) << outcome.text;
    return outcome.text;
  };
  EXPECT_THAT(refused("--tasks countdown_4k"), HasSubstr("'countdown_4k' is none of html_to_tsv_0.5k, "));
  EXPECT_THAT(refused("--tasks countdown_2k"), HasSubstr("countdown"));
  EXPECT_THAT(refused("--samples 0"), HasSubstr("--samples is 0"));
  EXPECT_THAT(refused("--chat-format qwen2"), HasSubstr("add --chat"));
  EXPECT_THAT(refused("--device-kv 4K"), HasSubstr("lower --batch or the prompts"));
  EXPECT_FALSE(std::filesystem::exists(folder("runs")));
}

}  // namespace
}  // namespace tandem::testing
