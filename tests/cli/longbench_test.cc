// `tandem eval longbench` as a whole: the run folder, --resume, and bad input.
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"
#include "tests/eval/longbench/longbench_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LongBenchProgram : public ProgramTest {
 protected:
  std::string command(const std::string& more) const {
    return "eval longbench --model tiny --quiet --no-plot --methods full,streaming --batch 2 --data '" +
           data.path().string() + "' " + more;
  }
  LongBenchFolder data;
};

TEST_F(LongBenchProgram, ARunLeavesAFolderWithUpstreamsFigures) {
  data.add("qasper", 3);
  data.add("trec", 2);
  // Room for these prompts, not for two of --max-length tokens.
  const cli::Outcome done = cli::run(command("--device-kv 1M --out " + folder("a")));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.txt"),
              AllOf(HasSubstr("2 to 3 samples per task, complete"), HasSubstr(" qa_f1 "), HasSubstr(" classification "),
                    HasSubstr("mean of 2"), HasSubstr("as is")));
  EXPECT_THAT(bytes("a", "manifest.json"),
              AllOf(HasSubstr("longbench/v1+data:"), HasSubstr("task_samples"), HasSubstr("--max-length ")));
  EXPECT_THAT(bytes("a", "longbench.json"), AllOf(HasSubstr("\"streaming\": {"), HasSubstr("\"trec\": ")));
  EXPECT_THAT(bytes("a", "report.md"), AllOf(HasSubstr("# LongBench on"), HasSubstr("## LongBench")));
  const std::string samples = bytes("a", "samples.jsonl");
  EXPECT_EQ(std::count(samples.begin(), samples.end(), '\n'), 10);
  std::filesystem::copy(folder("a"), folder("copy"));
  const cli::Outcome gate = cli::run("gate --baseline " + folder("a") + " --run " + folder("copy"));
  EXPECT_EQ(gate.code, 0) << gate.text;
}

TEST_F(LongBenchProgram, ThePlotHasAColumnForEachTask) {
  data.add("qasper", 2);
  data.add("trec", 2);
  data.add("qasper_e", 3);
  const std::string start =
      "eval longbench --model tiny --quiet --methods full,streaming --data '" + data.path().string() + "' --tasks ";
  const cli::Outcome done = cli::run(start + "qasper,trec --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  if (!std::filesystem::exists(folder("a") + "/plot.svg")) GTEST_SKIP() << "matplotlib is not here";
  EXPECT_THAT(bytes("a", "plot.svg"),
              AllOf(HasSubstr(">qasper<"), HasSubstr(">trec<"), HasSubstr(">LongBench, 2 tasks"),
                    HasSubstr(">score, %, with 95 % interval (n = 4)<")));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("](plot.png)"));
  EXPECT_THAT(done.text, HasSubstr("report.md, plot.png"));
  const cli::Outcome ranges = cli::run(start + "qasper_e --out " + folder("b"));
  ASSERT_EQ(ranges.code, 0) << ranges.text;
  EXPECT_THAT(bytes("b", "plot.svg"), HasSubstr(">LongBench, 1 task,"));
}

TEST_F(LongBenchProgram, RangesOfLengthsAreLongBenchEs) {
  data.add("qasper_e", 3);  // of 3000, 6000 and 9000 words
  const cli::Outcome done = cli::run(command("--out " + folder("a")));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_THAT(bytes("a", "report.txt"), AllOf(HasSubstr("0-4k"), HasSubstr("4-8k"), HasSubstr("8k+")));
  EXPECT_THAT(bytes("a", "longbench.json"), HasSubstr("\"8k+\": "));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("| qasper_e | 4-8k | qa_f1 | 1 |"));
}

TEST_F(LongBenchProgram, FilesThatAreNotReadAreNamedUnlessTasksAreChosen) {
  data.add("qasper", 1);
  data.add("qasper_e", 1);
  data.add("Hotpotqa", 1);
  const cli::Outcome all = cli::run(command("--out " + folder("a")));
  ASSERT_EQ(all.code, 0) << all.text;
  EXPECT_THAT(all.text, HasSubstr("--data: not read from '" + data.path().string() +
                                  "': data/Hotpotqa.jsonl, data/qasper_e.jsonl; a name must be a data set's, as "));
  const cli::Outcome chosen = cli::run(command("--tasks 'qasper, qasper_e' --out " + folder("b")));
  ASSERT_EQ(chosen.code, 0) << chosen.text;
  EXPECT_THAT(chosen.text, Not(HasSubstr("not read")));
}

TEST_F(LongBenchProgram, AFolderInTheWayIsSaidBeforeFilesAreRead) {
  data.add("qasper", 2);
  ASSERT_EQ(cli::run(command("--out " + folder("a"))).code, 0);
  const std::string again = "eval longbench --model tiny --data /no/such --out ";
  EXPECT_THAT(cli::run(again + folder("a")).text, AllOf(HasSubstr("already holds a run"), Not(HasSubstr("/no/such"))));
  EXPECT_THAT(cli::run(again + folder("a") + " --force").text, HasSubstr("/no/such"));
  std::ofstream(folder("file")) << "x";
  EXPECT_THAT(cli::run(again + folder("file")).text, HasSubstr("is a file"));
}

TEST_F(LongBenchProgram, ResumeMakesWhatIsMissingAndTheSameBytes) {
  data.add("qasper", 3);
  data.add("trec", 4);
  ASSERT_EQ(cli::run(command("--out " + folder("a"))).code, 0);
  const std::string whole = bytes("a", "samples.jsonl");
  {
    std::ofstream cut(std::filesystem::path(folder("a")) / "samples.jsonl");
    cut << whole.substr(0, whole.size() / 2);
  }
  const cli::Outcome resumed = cli::run(command("--resume --out " + folder("a")));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(bytes("a", "samples.jsonl"), whole);
  data.add("qasper", 5);  // other data: another protocol
  const cli::Outcome other = cli::run(command("--resume --out " + folder("a")));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, HasSubstr("another protocol"));
}

TEST_F(LongBenchProgram, AFoldersOwnTemplateIsNamedInTheProtocol) {
  data.add("qasper", 1);
  const std::filesystem::path model = root_ / "model";
  std::filesystem::copy(source_folder() / "models/tiny", model, std::filesystem::copy_options::recursive);
  const auto protocol = [&](const std::string& text, const char* run) {
    write_bytes(model / "chat_template.jinja", text);
    const cli::Outcome done = cli::run("eval longbench --quiet --no-plot --methods full --chat --model '" +
                                       model.string() + "' --data '" + data.path().string() + "' --out " + folder(run));
    EXPECT_EQ(done.code, 0) << done.text;
    const Json manifest = parse_json(bytes(run, "manifest.json"), "manifest");
    return manifest.at("protocol_id").get<std::string>();
  };
  const std::string first = protocol("{{ bos_token }}{{ messages[0].content }}", "first");
  EXPECT_THAT(first, ::testing::ContainsRegex("[+]template:folder-[0-9a-f]{16}[+]"));
  EXPECT_NE(protocol("{{ bos_token }}{{ messages[0].content }} ", "second"), first);
  write_bytes(model / "chat_template.jinja", "{{ messages[0].content }}" + std::string(4000, 'x'));
  EXPECT_THAT(cli::run("eval longbench --quiet --methods full --chat --model '" + model.string() + "' --data '" +
                       data.path().string() + "'")
                  .text,
              HasSubstr("leaves no room"))
      << "a template that writes much leaves less room";
}

TEST_F(LongBenchProgram, BadInputIsASentence) {
  data.add("qasper", 1);
  const auto refused = [&](const std::string& more) {
    const cli::Outcome outcome = cli::run(command(more + " --out " + folder("a")));
    EXPECT_EQ(outcome.code, 2) << more;
    EXPECT_FALSE(std::filesystem::exists(folder("a")));
    return outcome.text;
  };
  EXPECT_THAT(refused("--tasks quasper"), HasSubstr("quasper"));
  EXPECT_THAT(refused("--tasks trec"), HasSubstr("there is no 'trec.jsonl'"));
  EXPECT_THAT(refused("--tasks ,"), HasSubstr("nothing between two commas"));
  EXPECT_THAT(refused("--max-length 1M"), HasSubstr("leaves no room"));
  EXPECT_THAT(refused("--chat-format qwen3"), HasSubstr("add --chat"));
  EXPECT_THAT(refused("--chat"), HasSubstr("chat template"));
  EXPECT_THAT(refused("--samples 1000000"), HasSubstr("--samples"));
  EXPECT_THAT(cli::run("eval longbench --data /nowhere").text, HasSubstr("there is no folder '/nowhere'"));
}

}  // namespace
}  // namespace tandem::testing
