// `tandem compare` as a whole: the same bytes in every run, resumed runs, ^C, and real time on this CPU.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <map>
#include <random>
#include <thread>

#include "engine/common/json.h"
#include "engine/common/paths.h"
#include "eval/report/table.h"
#include "methods/registry.h"
#include "tests/cli/background.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Key;
namespace fs = std::filesystem;

constexpr const char* kSmallCompare =
    "compare --no-plot --quiet --methods full,streaming,hybrid-fixed,hgca --tasks niah_single_1,niah_multikey_1 "
    "--lengths 256,512 --samples 2 ";

class CompareProgram : public ProgramTest {};

TEST_F(CompareProgram, ARerunGivesTheSameBytes) {
  const cli::Outcome first = cli::run(std::string(kSmallCompare) + "--out " + folder("a"));
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_THAT(first.text, AllOf(HasSubstr("hybrid-fixed"), HasSubstr("simulated for"), HasSubstr("TPOT")));
  const cli::Outcome json =
      cli::run(std::string(kSmallCompare) + "--threads 1 --json --out " + folder("b"), cli::kOnlyOutput);
  ASSERT_EQ(json.code, 0);
  EXPECT_EQ(json.text, bytes("b", "summary.json"));
  EXPECT_EQ(cli::run(std::string(kSmallCompare) + "--json --shard 1/2 --out " + folder("c")).code, 2);
  EXPECT_EQ(cli::lines(bytes("a", "samples.jsonl")), 32u);  // 2 tasks, 2 lengths, 2 samples, 4 methods
  EXPECT_EQ(bytes("a", "samples.jsonl"), bytes("b", "samples.jsonl"));
  EXPECT_EQ(bytes("a", "timings.jsonl"), bytes("b", "timings.jsonl"));
  EXPECT_THAT(bytes("b", "manifest.json"), ::testing::Not(HasSubstr("--threads")));
  EXPECT_THAT(bytes("b", "manifest.json"),
              AllOf(HasSubstr("\"precision\": \"bf16\""), HasSubstr("\"prefill_chunk\": 512")))
      << "auto, of a model whose weights are bf16";
  EXPECT_TRUE(fs::exists(folder("a") + "/report.md"));
  EXPECT_THAT(first.text, AllOf(HasSubstr("All tables: tandem report " + folder("a")), HasSubstr("Within noise of")));
  EXPECT_EQ(cli::run("report " + folder("a")).text, bytes("a", "report.txt"));
  EXPECT_THAT(bytes("a", "report.txt"), AllOf(HasSubstr("niah_multikey_1"), HasSubstr("Where the device waits")));
}

TEST_F(CompareProgram, ErrorsOfHeadsAreMeasuredBesideTheRun) {
  const std::string run =
      "compare --no-plot --quiet --tasks niah_single_1 --lengths 512 --samples 1 "
      "--methods full,fluxion:heads=embedded,fluxion:heads=oracle ";
  const cli::Outcome plain = cli::run(run + "--out " + folder("a"));
  ASSERT_EQ(plain.code, 0) << plain.text;
  const cli::Outcome watched = cli::run(run + "--head-errors --out " + folder("b"));
  ASSERT_EQ(watched.code, 0) << watched.text;
  EXPECT_EQ(bytes("a", "samples.jsonl"), bytes("b", "samples.jsonl"));
  EXPECT_THAT(bytes("b", "report.txt"), HasSubstr("Errors of heads"));
  EXPECT_EQ(cli::lines(bytes("b", "errors.jsonl")), 2u);
  EXPECT_THAT(bytes("b", "errors.json"), HasSubstr("\"method\": \"fluxion:heads=oracle\""));
  EXPECT_FALSE(fs::exists(folder("a") + "/errors.jsonl"));
  EXPECT_EQ(cli::run(run + "--resume --out " + folder("b")).code, 2) << "errors of the rest would be missing";
  const std::string lines = bytes("b", "errors.jsonl"), samples = bytes("b", "samples.jsonl");
  write_bytes(folder("b") + "/errors.jsonl", "?" + lines.substr(1));
  const cli::Outcome resumed = cli::run(run + "--head-errors --resume --out " + folder("b"), cli::kOnlyErrors);
  EXPECT_EQ(resumed.code, 0);
  EXPECT_EQ(cli::lines(resumed.text), 1u) << resumed.text;
  EXPECT_THAT(resumed.text, AllOf(HasSubstr("errors.jsonl:1: not valid JSON"), HasSubstr("errors.jsonl.damaged")));
  EXPECT_EQ(bytes("b", "errors.jsonl"), lines);
  EXPECT_EQ(bytes("b", "samples.jsonl"), samples);
}

TEST_F(CompareProgram, TracesAreOfTheFirstDecodeWhateverTheLabel) {
  std::string dots, slashes;  // two labels that are longer than a file's name may be, and differ in punctuation alone
  for (int i = 0; i < 150; ++i) {
    dots += "./";
    slashes += "//";
  }
  const std::string predictor = "fluxion:heads=" + data_path("models/deep/fluxion").string() + "/";
  const std::string command =
      "compare --no-plot --quiet --tasks niah_single_1 --lengths 256 --samples 2 --trace --methods full," + predictor +
      dots + "fluxion.safetensors," + predictor + slashes + "fluxion.safetensors ";
  const cli::Outcome done = cli::run(command + "--out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  const auto traces = [&] {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(folder("a"))) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("trace-")) found[name.substr(0, 8)] = read_bytes(entry.path());
    }
    return found;
  };
  const auto first = traces();
  EXPECT_THAT(first, ::testing::UnorderedElementsAre(Key("trace-1-"), Key("trace-2-"), Key("trace-3-")));
  // The second sample is run again; the traces stay the first one's, which looks the same on a simulated clock.
  write_bytes(folder("a") + "/trace-1-full.json", "first");
  for (const char* file : {"samples.jsonl", "timings.jsonl"}) {
    const std::string text = bytes("a", file);
    write_bytes(folder("a") + "/" + file, text.substr(0, text.size() - 20));  // inside the last line
  }
  ASSERT_EQ(cli::run(command + "--resume --out " + folder("a")).code, 0);
  EXPECT_EQ(bytes("a", "trace-1-full.json"), "first");
}

TEST_F(CompareProgram, WithoutMethodsAllAreCompared) {
  const cli::Outcome all =
      cli::run("compare --no-plot --quiet --tasks niah_single_1 --lengths 256 --samples 1 --out " + folder("a"));
  ASSERT_EQ(all.code, 0) << all.text;
  EXPECT_EQ(cli::lines(bytes("a", "samples.jsonl")), default_comparison(true).size());
  for (const std::string& spec : default_comparison(true))
    EXPECT_THAT(bytes("a", "report.md"), HasSubstr("| " + spec + " |"));
  for (std::size_t begin = 0; begin < all.text.size();) {
    const std::size_t end = std::min(all.text.find('\n', begin), all.text.size());
    EXPECT_LE(eval::text_columns(std::string_view(all.text).substr(begin, end - begin)), eval::kTerminalWidth);
    begin = end + 1;
  }
  EXPECT_LE(cli::lines(all.text), 38u);
  EXPECT_THAT(bytes("a", "manifest.json"), HasSubstr("--methods full,full-offload")) << "so that it can be typed again";
}

TEST_F(CompareProgram, AReportMadeAnewDoesNotMakeTheRunNewer) {
  const std::string command =
      "compare --no-plot --quiet --methods full --tasks niah_single_1 --lengths 256 --samples 2 --out " + folder("a");
  ASSERT_EQ(cli::run(command).code, 0);
  std::string manifest = bytes("a", "manifest.json");
  const std::size_t year = manifest.find("finished_utc\": \"") + 16;
  write_bytes(folder("a") + "/manifest.json", manifest.replace(year, 4, "1999"));
  ASSERT_EQ(cli::run(command + " --resume").code, 0);
  EXPECT_EQ(bytes("a", "manifest.json"), manifest);
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr(" to 1999-"));
  const std::string samples = bytes("a", "samples.jsonl");
  write_bytes(folder("a") + "/samples.jsonl", samples.substr(0, samples.size() - 20));  // inside the last line
  ASSERT_EQ(cli::run(command + " --resume").code, 0);
  EXPECT_EQ(bytes("a", "samples.jsonl"), samples);
  EXPECT_THAT(bytes("a", "manifest.json"), ::testing::Not(HasSubstr("1999-")));
  EXPECT_THAT(bytes("a", "manifest.json"), ::testing::Not(HasSubstr("finished_utc\": \"\"")));
}

TEST_F(CompareProgram, NoPlotLeavesThePlotOfTheSameSamples) {
  const std::string command =
      "compare --no-plot --quiet --methods full --tasks niah_single_1 --lengths 256 --samples 2 --out " + folder("a");
  ASSERT_EQ(cli::run(command).code, 0);
  const std::string plots[] = {folder("a") + "/plot.png", folder("a") + "/plot.svg"};
  for (const std::string& plot : plots) write_bytes(plot, "drawn before");
  const cli::Outcome again = cli::run(command + " --resume");
  ASSERT_EQ(again.code, 0) << again.text;
  for (const std::string& plot : plots) EXPECT_EQ(read_bytes(plot), "drawn before");
  EXPECT_THAT(again.text, HasSubstr("report.md, plot.png"));
  EXPECT_THAT(bytes("a", "report.md"), HasSubstr("](plot.png)"));
  const std::string samples = bytes("a", "samples.jsonl");
  write_bytes(folder("a") + "/samples.jsonl", samples.substr(0, samples.size() - 20));
  ASSERT_EQ(cli::run(command + " --resume").code, 0);
  for (const std::string& plot : plots) EXPECT_FALSE(fs::exists(plot)) << "of other samples than are there now";
  EXPECT_THAT(bytes("a", "report.md"), ::testing::Not(HasSubstr("plot.png")));
}

TEST_F(CompareProgram, AResumedRunEndsWithTheSameBytes) {
  ASSERT_EQ(cli::run(std::string(kSmallCompare) + "--out " + folder("a")).code, 0);
  const std::string samples = bytes("a", "samples.jsonl"), timings = bytes("a", "timings.jsonl");
  // As a kill leaves it: one file further than the other, a line cut off in the middle.
  fs::resize_file(folder("a") + "/samples.jsonl", samples.size() / 2);
  fs::resize_file(folder("a") + "/timings.jsonl", timings.size() / 3);
  const cli::Outcome other = cli::run(std::string(kSmallCompare) + "--seed 7 --resume --out " + folder("a"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, HasSubstr("was made by another command"));
  const cli::Outcome resumed = cli::run(std::string(kSmallCompare) + "--resume --out " + folder("a"));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(bytes("a", "samples.jsonl"), samples);
  EXPECT_EQ(bytes("a", "timings.jsonl"), timings);
}

TEST_F(CompareProgram, TheRecordedCommandIsTheSameHoweverItWasTyped) {
  const std::string run =
      "compare --no-plot --quiet --methods full --tasks niah_single_1 --samples 1 --out " + folder("a");
  ASSERT_EQ(cli::run(run + " --lengths '256, 1024'").code, 0);
  EXPECT_THAT(bytes("a", "manifest.json"), HasSubstr("--lengths 256,1K --samples"));
  const cli::Outcome resumed = cli::run(run + " --lengths 256,1k --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
}

TEST_F(CompareProgram, DeepIsTheEmbeddedModel) {
  const std::string run = "compare --no-plot --quiet --tasks niah_single_1 --lengths 256 --samples 1 --out ";
  ASSERT_EQ(cli::run(run + folder("a") + " --model deep").code, 0);
  EXPECT_THAT(bytes("a", "manifest.json"), HasSubstr("fluxion:heads=embedded"));
  const cli::Outcome said = cli::run(run + folder("b") + " --model deep --methods fluxion", cli::kOnlyErrors);
  EXPECT_THAT(said.text, HasSubstr("what was trained for the embedded model"));
}

TEST_F(CompareProgram, AnInterruptKeepsFinishedSamples) {
  const std::string file = folder("a") + "/samples.jsonl";
  const auto interrupt_at = [&](std::size_t samples, const std::string& options) {
    const pid_t child = cli::start(
        "compare --no-plot --quiet --tasks niah_single_1 --lengths 512 --samples 500 --out " + folder("a") + options,
        folder("said"));
    ASSERT_GT(child, 0);
    cli::wait_for_lines(file, samples);
    kill(child, SIGINT);
    EXPECT_EQ(cli::exit_code_of(child), 3);
    EXPECT_THAT(bytes(".", "said"), HasSubstr("finished samples are kept"));
    EXPECT_GE(cli::lines_of(file), samples);
    EXPECT_LT(cli::lines_of(file), 1500u);
    EXPECT_EQ(cli::lines(bytes("a", "timings.jsonl")), cli::lines_of(file));
  };
  interrupt_at(3, "");
  std::string samples = read_bytes(file);
  const std::string begin = "\"prediction\":\"";
  samples.insert(samples.find(begin) + begin.size(), std::string(std::size_t{9} << 20, 'x'));
  write_bytes(file, samples);  // longer than a file that is read without asking for ^C
  interrupt_at(cli::lines(samples) + 1, " --resume");
}

// TANDEM_KILLS=200 makes it the long check.
TEST_F(CompareProgram, KilledRunsAreResumedToTheSameBytes) {
  const char* asked = std::getenv("TANDEM_KILLS");
  const int kills = asked == nullptr ? 8 : std::atoi(asked);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(cli::run(std::string(kSmallCompare) + "--out " + folder("whole")).code, 0);
  const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::mt19937 random(7);
  std::uniform_int_distribution<std::int64_t> moment(0, whole.count());
  int killed = 0, completed = 0;
  while (killed < kills || completed == 0) {
    ASSERT_LT(completed, 50 * kills) << "no kill ever met a run";
    const bool resume = fs::exists(folder("a") + "/manifest.json");
    const pid_t child = cli::start(std::string(kSmallCompare) + (resume ? "--resume --out " : "--out ") + folder("a"),
                                   folder("errors"));
    ASSERT_GT(child, 0);
    if (killed < kills) {
      std::this_thread::sleep_for(std::chrono::microseconds(moment(random)));
      kill(child, SIGKILL);
    }
    const int code = cli::exit_code_of(child);
    if (code == 128 + SIGKILL) {
      ++killed;
      continue;
    }
    ASSERT_EQ(code, 0) << "after " << killed << " kills: " << read_bytes(folder("errors"));
    ASSERT_EQ(bytes("a", "samples.jsonl"), bytes("whole", "samples.jsonl")) << "after " << killed << " kills";
    ASSERT_EQ(bytes("a", "timings.jsonl"), bytes("whole", "timings.jsonl")) << "after " << killed << " kills";
    ++completed;
    fs::remove_all(folder("a"));
  }
  std::printf("%d kills, %d runs resumed to their end\n", killed, completed);
}

TEST_F(CompareProgram, RealTimeOnThisCpuGivesTheSameTokens) {
  ASSERT_EQ(cli::run(std::string(kSmallCompare) + "--out " + folder("a")).code, 0);
  const cli::Outcome emu = cli::run(std::string(kSmallCompare) + "--device emu --out " + folder("b"));
  ASSERT_EQ(emu.code, 0) << emu.text;
  EXPECT_THAT(emu.text, AllOf(HasSubstr("measured on"), ::testing::Not(HasSubstr("simulated for"))));
  EXPECT_EQ(bytes("a", "samples.jsonl"), bytes("b", "samples.jsonl"));
}

TEST_F(CompareProgram, AChangedProfileOrClockIsNotResumed) {
  const std::string one = "compare --no-plot --quiet --methods full --tasks niah_single_1 --lengths 256 --samples 1 ";
  const fs::path profile = root_.path() / "mine.json";
  fs::copy_file(data_path("hardware/profiles/h200.json"), profile);
  const std::string simulated = one + "--hw " + profile.string() + " --out " + folder("a");
  ASSERT_EQ(cli::run(simulated).code, 0);
  EXPECT_EQ(cli::run(simulated + " --resume").code, 0);
  std::string text = read_bytes(profile);
  text.replace(text.find("\"submit_ns\": ") + 13, 1, "3");
  write_bytes(profile, text);
  const cli::Outcome changed = cli::run(simulated + " --resume");
  EXPECT_EQ(changed.code, 2);
  EXPECT_THAT(changed.text, HasSubstr("has changed since"));
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one CPU: there is no other number of threads";
  const std::string measured = one + "--device emu --out " + folder("b");
  ASSERT_EQ(cli::run(measured + " --threads 2").code, 0);
  EXPECT_THAT(bytes("b", "manifest.json"), HasSubstr(" --threads 2")) << "without them it would be another measurement";
  EXPECT_EQ(cli::run(measured + " --threads 2 --resume").code, 0);
  const std::string timings = bytes("b", "timings.jsonl");
  const cli::Outcome slower = cli::run(measured + " --threads 1 --resume");
  EXPECT_EQ(slower.code, 2);
  EXPECT_THAT(slower.text, AllOf(HasSubstr("measured on"), HasSubstr("cannot be resumed")));
  EXPECT_EQ(bytes("b", "timings.jsonl"), timings);
}

TEST_F(CompareProgram, TablesSayWhereQuestHasNoDenseLayers) {
  const std::string run = "compare --no-plot --quiet --tasks niah_single_1 --lengths 160 --samples 1 --out ";
  const std::string said = "Quest's own evaluation leaves the first two layers dense";
  const cli::Outcome sparse = cli::run(run + folder("a") + " --methods full,quest:budget=64,quest:budget=32");
  ASSERT_EQ(sparse.code, 0) << sparse.text;
  const std::string report = bytes("a", "report.md");
  EXPECT_EQ(report.find(said), report.rfind(said)) << "once for both";
  EXPECT_THAT(report, HasSubstr("\nquest with dense_layers=0 chooses pages in every layer; " + said));
  EXPECT_THAT(bytes("a", "report.txt"), HasSubstr("\nquest with dense_layers=0 chooses pages in every layer;"));
  const cli::Outcome dense = cli::run(run + folder("b") + " --methods full,quest:budget=64,dense_layers=2");
  ASSERT_EQ(dense.code, 0) << dense.text;
  EXPECT_THAT(bytes("b", "report.md") + dense.text, Not(HasSubstr("quest with")));
}

TEST_F(CompareProgram, RunsOfOneSecondGetFoldersOfTheirOwn) {
  const std::string one = " && '" TANDEM_PROGRAM
                          "' eval needle --quiet --no-plot --model tiny --methods full --lengths 256 --depths 50 "
                          "--samples 1 >out.txt";
  ASSERT_EQ(std::system(("cd '" + root_.path().string() + "'" + one + one + one).c_str()), 0);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(root_ / "runs"), {}), 3);
}

TEST_F(CompareProgram, FilesWhoseNamesAreNoText) {
  const std::string essays = (root_.path() / "r\xe9sum\xe9.txt").string();
  write_bytes(essays, "It was late. We went home. Nobody asked why!");
  const std::string command =
      "compare --no-plot --quiet --methods full,quest:budget=64 --tasks niah_single_2 --lengths 512 --samples 1 "
      "--ruler-essays " +
      essays + " --out " + folder("a");
  const cli::Outcome done = cli::run(command);
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_EQ(parse_json(bytes("a", "flops.json"), "JSON").at("command"),
            parse_json(bytes("a", "manifest.json"), "JSON").at("command"));
  const cli::Outcome resumed = cli::run(command + " --resume");
  EXPECT_EQ(resumed.code, 0) << resumed.text;
}

TEST_F(CompareProgram, EssaysAndQuestionsFromFiles) {
  write_bytes(folder("essays.txt"), "It was late. We went home. Nobody asked why!");
  write_bytes(folder("squad.json"),
              R"({"data": [{"paragraphs": [
                {"context": "Oak is hard.", "qas": [{"question": "What is oak?", "answers": [{"text": "hard"}]}]},
                {"context": "Tin is soft.", "qas": [{"question": "What is tin?", "answers": [{"text": "soft"}]}]}]}]})");
  const std::string command = "compare --no-plot --quiet --methods full --lengths 512 --ruler-essays " +
                              folder("essays.txt") + " --ruler-qa " + folder("squad.json");
  const cli::Outcome done = cli::run(command + " --tasks niah_single_2,qa --samples 2 --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_EQ(cli::lines(bytes("a", "samples.jsonl")), 6u);  // 3 tasks, 2 samples
  EXPECT_THAT(bytes("a", "samples.jsonl"),
              AllOf(HasSubstr(R"("answers":["hard"])"), HasSubstr(R"("answers":["soft"])")));
  EXPECT_THAT(bytes("a", "manifest.json"), AllOf(HasSubstr("--ruler-essays"), HasSubstr("--ruler-qa"),
                                                 HasSubstr("+qa_1:squad-"), HasSubstr("+qa_2:made-up+")));
  EXPECT_THAT(bytes("a", "report.md"),
              AllOf(HasSubstr("qa_1 with the questions of a file (squad-"), HasSubstr("qa_2 on made-up facts")));
  const cli::Outcome few = cli::run(command + " --tasks niah_single_2,qa --samples 3 --out " + folder("b"));
  EXPECT_EQ(few.code, 2);
  EXPECT_THAT(few.text, HasSubstr("Lower --samples"));
  EXPECT_FALSE(fs::exists(folder("b"))) << "found before the run begins";
  EXPECT_EQ(cli::run(command + " --ruler-data " + folder("data")).code, 2) << "whole prompts have no place for texts";
}

TEST_F(CompareProgram, ReadsOfficialFiles) {
  fs::create_directories(folder("data") + "/512");
  const auto line = [](int index, const char* more) {
    return "{\"index\": " + std::to_string(index) +
           ", \"input\": \"One of the special magic numbers is: 1234567. What is it? " + more +
           "\", \"outputs\": [\"1234567\"]}\n";
  };
  write_bytes(folder("data") + "/512/niah_single_1.jsonl", line(0, "It is") + line(5, "The number is"));
  const std::string command = "compare --no-plot --quiet --methods full,streaming --ruler-data " + folder("data");
  const cli::Outcome done = cli::run(command + " --out " + folder("a"));
  ASSERT_EQ(done.code, 0) << done.text;
  EXPECT_EQ(cli::lines(bytes("a", "samples.jsonl")), 4u);  // 2 samples, 2 methods
  EXPECT_THAT(bytes("a", "manifest.json"), AllOf(HasSubstr("ruler/official-v2+data:"), HasSubstr("--samples 2")));
  EXPECT_THAT(done.text, AllOf(HasSubstr("--samples is 20, but niah_single_1 at length 512 has only 2"),
                               HasSubstr("2 methods, 2 samples each")));
  EXPECT_THAT(bytes("a", "manifest.json"), ::testing::Not(HasSubstr("--seed"))) << "files have their samples";
  EXPECT_THAT(done.text, ::testing::Not(HasSubstr("not read")));
  fs::create_directories(folder("data") + "/1K");
  write_bytes(folder("data") + "/1K/niah_single_1.jsonl", "not read");
  write_bytes(folder("data") + "/512/niah_singel_2.jsonl", "not read");
  const cli::Outcome note = cli::run(command + " --samples 1 --out " + folder("f"));
  ASSERT_EQ(note.code, 0) << note.text;
  EXPECT_THAT(note.text, HasSubstr("--ruler-data: not read from '" + folder("data") +
                                   "': 1K/niah_single_1.jsonl, 512/niah_singel_2.jsonl; a file's place must be as "));
  const cli::Outcome chosen = cli::run(command + " --samples 1 --tasks niah_single_1 --out " + folder("g"));
  ASSERT_EQ(chosen.code, 0) << chosen.text;
  EXPECT_THAT(chosen.text, ::testing::Not(HasSubstr("not read")));
  const cli::Outcome target = cli::run(command + " --as llama-3.2-1b --context 1K --out " + folder("e"));
  EXPECT_EQ(target.code, 2) << "a workload is recorded on these prompts, which are short";
  EXPECT_THAT(target.text, HasSubstr("niah_single_1 at length 512 is too short"));
  write_bytes(folder("data") + "/512/niah_single_1.jsonl", line(0, "It is") + "{\"index\": 1");
  const cli::Outcome damaged = cli::run(command + " --out " + folder("b"));
  EXPECT_EQ(damaged.code, 2);
  EXPECT_THAT(damaged.text, HasSubstr("niah_single_1.jsonl, line 2"));
  EXPECT_FALSE(fs::exists(folder("b")));
  write_bytes(folder("data") + "/512/niah_single_1.jsonl", line(0, "It was") + line(1, "It is"));
  const cli::Outcome other = cli::run(command + " --resume --out " + folder("a"));
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.text, AllOf(HasSubstr("was begun with other data"), HasSubstr(" there, "), HasSubstr(" here")));
  EXPECT_EQ(cli::run(command + " --tasks vt --out " + folder("c")).code, 2);
  write_bytes(folder("data") + "/512/niah_single_1.jsonl",
              R"({"input": "<|im_start|>user\nSay 7.<|im_end|>\n", "outputs": ["7"]})");
  const cli::Outcome chat = cli::run(command + " --samples 1 --out " + folder("d"));
  ASSERT_EQ(chat.code, 0) << chat.text;
  EXPECT_THAT(chat.text, AllOf(HasSubstr("have a chat template (\"<|im_start|>\")"),
                               HasSubstr("no special token of this model's tokenizer"),
                               ::testing::Not(HasSubstr("--samples is"))));
  EXPECT_THAT(bytes("d", "manifest.json"), HasSubstr("+template:in-files+"));
}

}  // namespace
}  // namespace tandem::testing
