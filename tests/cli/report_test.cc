// tandem report as a user meets it.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/common/json.h"
#include "tests/cli/program.h"
#include "tests/cli/program_fixture.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Report : public ProgramTest {
 protected:
  void run(const char* name, const std::string& more) const {
    const cli::Outcome done = cli::run(
        "compare --no-plot --quiet --model tiny --methods full,streaming --tasks niah_single_1 "
        "--samples 2 --out " +
        folder(name) + " " + more);
    ASSERT_EQ(done.code, 0) << done.text;
  }
};

TEST_F(Report, PutsRunsSideBySideInEveryFormat) {
  run("a", "--lengths 256");
  run("b", "--lengths 256 --batch 2");
  const std::string both = "report " + folder("a") + " " + folder("b") + "/";
  const cli::Outcome text = cli::run(both);
  ASSERT_EQ(text.code, 0) << text.text;
  EXPECT_THAT(text.text,
              AllOf(HasSubstr("a: accuracy"), HasSubstr("b: accuracy"), HasSubstr("simulated for A100-80G")));
  EXPECT_THAT(cli::run(both + " --format markdown").text,
              AllOf(HasSubstr("batch 1, precision"), HasSubstr("b: TTFT ms, batch 2")))
      << "batches differ";
  EXPECT_THAT(cli::run(both + " --format latex").text, HasSubstr("\\begin{tabular}"));
  EXPECT_THAT(cli::run(both + " --format csv").text, StartsWith("run,model,benchmark,"));
  for (const auto& [file, says] : {std::pair{"t.tex", "\\toprule"}, std::pair{"t.csv", "run,model"},
                                   std::pair{"t.md", "| full |"}, std::pair{"t.txt", "full  "}}) {
    const std::string out = " --out " + folder(file);
    ASSERT_EQ(cli::run(both + out).code, 0);
    EXPECT_THAT(bytes(".", file), HasSubstr(says));
    EXPECT_EQ(cli::run(both + out).code, 2) << "it exists";
    EXPECT_EQ(cli::run(both + out + " --force").code, 0);
  }
}

TEST_F(Report, ShowsSweepsBehindRuns) {
  run("a", "--lengths 256");
  const std::string simulate =
      "simulate --quiet --no-plot --as qwen2.5-0.5b --methods full,streaming --steps 2 --context 1K,2K ";
  ASSERT_EQ(cli::run(simulate + "--hw h100,l40s --batch 1 --out " + folder("s")).code, 0);
  ASSERT_EQ(cli::run(simulate + "--hw h200 --batch max --most 2 --out " + folder("t")).code, 0);
  const std::string all = "report " + folder("a") + " " + folder("s") + " " + folder("t");
  const cli::Outcome text = cli::run(all);
  ASSERT_EQ(text.code, 0) << text.text;
  EXPECT_THAT(text.text, AllOf(HasSubstr("a: ruler of tiny"), HasSubstr("s: sweep of qwen2.5-0.5b, made by tandem"),
                               HasSubstr("(2+)"), HasSubstr("L40S")));
  // What the sweep itself printed, to the letter.
  const std::string own = bytes("s", "report.md"), again = cli::run("report --format markdown " + folder("s")).text;
  const std::string tables = own.substr(own.find("## Tokens/s"), own.find("Made by") - own.find("## Tokens/s"));
  EXPECT_THAT(again, HasSubstr(tables.substr(0, tables.rfind('|'))));
  EXPECT_THAT(cli::run("report --format latex " + folder("s")).text,
              AllOf(HasSubstr("% Tokens/s\n\\begin{tabular}{lrr}"), HasSubstr("% Step: mean window")));
  const std::string csv = cli::run("report --format csv " + folder("s") + " " + folder("t")).text;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 8 + 4);
  EXPECT_THAT(csv, AllOf(StartsWith("run,model,hardware,"), HasSubstr("\nt,qwen2.5-0.5b,h200,simulated,max,2,")));
  const cli::Outcome json = cli::run(all + " --json", cli::kOnlyOutput);
  const auto document = parse_json(json.text, "JSON");
  ASSERT_EQ(document.at("runs").size(), 1u);
  EXPECT_EQ(document["runs"][0].at("name"), "a");
  EXPECT_EQ(document["runs"][0].at("summary"), parse_json(bytes("a", "summary.json"), "JSON"));
  ASSERT_EQ(document.at("sweeps").size(), 2u);
  EXPECT_EQ(document["sweeps"][1].at("sweep"), parse_json(bytes("t", "sweep.json"), "JSON"));
  EXPECT_EQ(cli::run(all + " --format json --out " + folder("all.json")).code, 0);
  EXPECT_EQ(bytes(".", "all.json"), json.text);
  EXPECT_EQ(cli::run(all + " --json --format text").code, 2);
  EXPECT_THAT(cli::run(all + " --format csv", cli::kOnlyErrors).text, HasSubstr("'s' is a sweep of simulate"));
}

TEST_F(Report, MakesOnePageOfRunsAndTheirPlots) {
  run("a", "--lengths 256");
  std::filesystem::rename(folder("a"), folder("a<b>&"));
  run("c", "--lengths 256 --seed 7");
  std::filesystem::remove(folder("c") + "/report.md");
  write_bytes(folder("a<b>&") + "/plot.png", "not a picture");
  const std::string report = bytes("a<b>&", "report.md");
  write_bytes(folder("a<b>&") + "/report.md", report + "\n![A <plot>](plot.png)\n\n![Gone](gone.png)\n");
  const cli::Outcome done =
      cli::run("report --mixed '" + folder("a<b>&") + "' " + folder("c") + " --out " + folder("page.html"));
  if (done.text.find("python3-markdown") != std::string::npos) GTEST_SKIP() << "python3-markdown is not here";
  ASSERT_EQ(done.code, 0) << done.text;
  const std::string page = bytes(".", "page.html");
  EXPECT_THAT(
      page, AllOf(StartsWith("<!DOCTYPE html>"), HasSubstr("<h1>RULER on tiny: 2 runs</h1>"),
                  HasSubstr("<h2>a&lt;b&gt;&amp;: RULER on tiny</h2>"), HasSubstr("<td class=\"name\">streaming</td>"),
                  HasSubstr("Not comparable: c has the seed"), HasSubstr("data:image/png;base64,bm90IGEgcGljdHVyZQ=="),
                  HasSubstr("Gone: not drawn"), HasSubstr("Not reported yet"),
                  HasSubstr("<p>The folder has no report.md.</p>"), HasSubstr("Made by tandem")));
  EXPECT_EQ(page.find("<b>"), std::string::npos) << "of a folder's name";
  for (const char* elsewhere : {"src=\"plot", "href=\"http", "<script src", "<link", "&lt;br"})
    EXPECT_EQ(page.find(elsewhere), std::string::npos) << elsewhere;
}

TEST_F(Report, APageOfOneRunIsItsReport) {
  run("a", "--lengths 256");
  const cli::Outcome done = cli::run("report " + folder("a") + " --out " + folder("page.html"));
  if (done.text.find("python3-markdown") != std::string::npos) GTEST_SKIP() << "python3-markdown is not here";
  ASSERT_EQ(done.code, 0) << done.text;
  const std::string page = bytes(".", "page.html");
  EXPECT_THAT(page, AllOf(HasSubstr("<h1>RULER on tiny</h1>"), HasSubstr("<h2>Accuracy</h2>"),
                          HasSubstr("<details><summary>How it was made</summary>")));
  for (const char* once : {"simulated for ", "<h2>Accuracy</h2>"})
    EXPECT_EQ(page.find(once, page.find(once) + 1), std::string::npos) << once;
}

TEST_F(Report, TakesNoNameForMarkdownAndAnyBytes) {
  const char *link = "[click](javascript:alert(1))", *bold = "__init__", *latin = "caf\xe9";
  run("a", "--lengths 256");
  std::string folders;
  for (const char* name : {link, bold, latin}) {
    std::filesystem::copy(folder("a"), folder(name), std::filesystem::copy_options::recursive);
    folders += " '" + folder(name) + "'";
  }
  write_bytes(folder(latin) + "/plot.png", "not a picture");
  write_bytes(folder(latin) + "/report.md", "# A\n\n![P](plot.png)\n\n![L](http://a/b.png) [l](http://a) <http://a>\n");
  std::filesystem::remove(folder(bold) + "/report.md");
  const std::string samples = bytes(bold, "samples.jsonl");
  write_bytes(folder(bold) + "/samples.jsonl", samples.substr(0, samples.find('\n') + 1));
  const cli::Outcome done = cli::run("report" + folders + " --out " + folder("page.html"));
  if (done.text.find("python3-markdown") != std::string::npos) GTEST_SKIP() << "python3-markdown is not here";
  ASSERT_EQ(done.code, 0) << done.text;
  const std::string page = bytes(".", "page.html");
  EXPECT_THAT(page, AllOf(HasSubstr("[click](javascript:<wbr>alert(1)): accuracy"), HasSubstr("__init__: accuracy"),
                          HasSubstr("<a href=\"#run-0\">[click]"), HasSubstr("bm90IGEgcGljdHVyZQ=="),
                          HasSubstr("![L](http://a/b.png)"),
                          HasSubstr("<p>The folder has no report.md. The run is not complete.</p>")));
  for (const char* made : {"href=\"javascript", "href=\"http", "src=\"http", "<strong>", "<em>", "&lt;br"})
    EXPECT_EQ(page.find(made), std::string::npos) << made;
}

TEST_F(Report, NamesOfAStrangersRunReachNoTerminal) {
  run("a", "--lengths 256");
  const auto replace = [&](const char* file, const std::string& before, const std::string& after) {
    std::string text = bytes("a", file);
    for (std::size_t at = 0; (at = text.find(before, at)) != std::string::npos; at += after.size())
      text.replace(at, before.size(), after);
    write_bytes(folder("a") + "/" + file, text);
  };
  const std::string steers = R"(\u001b[2J\u009b8m\u202e\r\n)";  // in a JSON text
  replace("manifest.json", "\"model\": \"tiny\"", "\"model\": \"tiny" + steers + "\"");
  for (const char* file : {"manifest.json", "samples.jsonl", "timings.jsonl"})
    replace(file, "\"streaming\"", "\"streaming" + steers + "\"");
  write_bytes(folder("a") + "/report.txt", bytes("a", "report.txt") + "\x1b[2J\u009b8m\u202e\r\n");
  const std::string command = "report " + folder("a") + " --format ";
  const auto expect_harmless = [](const std::string& text) {
    for (const char* raw : {"\x1b", "\u009b", "\u202e", "\r"}) EXPECT_EQ(text.find(raw), std::string::npos) << text;
  };
  for (const char* format : {"text", "markdown", "latex", "csv"}) {
    const cli::Outcome done = cli::run(command + format);
    EXPECT_EQ(done.code, 0) << done.text;
    EXPECT_THAT(done.text, HasSubstr("u001b[2J"));
    expect_harmless(done.text);
  }
  expect_harmless(cli::run("gate --baseline " + folder("a") + " --run " + folder("a")).text);
  replace("samples.jsonl", "\"niah_single_1\"", "\"other" + steers + "\"");
  const cli::Outcome refused = cli::run(command + "text");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr("other\\u001b[2J"));
  expect_harmless(refused.text);
}

TEST_F(Report, FollowsNoLink) {
  run("a", "--lengths 256");
  write_bytes(folder("secret"), "of somebody else");
  write_bytes(folder("a") + "/plot.svg", "a plot");
  for (const char* file : {"report.md", "plot.svg", "timings.jsonl"}) {
    const std::string link = folder("a") + "/" + file, before = bytes("a", file);
    std::filesystem::remove(link);
    std::filesystem::create_symlink(folder("secret"), link);
    for (const char* format : {"text", "html"}) {
      const cli::Outcome refused = cli::run("report " + folder("a") + " --format " + format);
      EXPECT_EQ(refused.code, 2) << refused.text;
      EXPECT_THAT(refused.text, AllOf(HasSubstr(file), HasSubstr("is a link, and no link in a run's folder")));
    }
    std::filesystem::remove(link);
    write_bytes(link, before);
  }
  EXPECT_EQ(bytes(".", "secret"), "of somebody else");
}

TEST_F(Report, SetsRunsOfOtherQuestionsSideBySideOnlyWhereAskedTo) {
  run("a", "--lengths 256");
  run("b", "--lengths 512");
  const std::string both = "report " + folder("a") + " " + folder("b");
  const cli::Outcome refused = cli::run(both, cli::kOnlyErrors);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("not comparable"), HasSubstr("the lengths '512' where 'a' has '256'"),
                                  HasSubstr("--mixed")));
  const cli::Outcome mixed = cli::run(both + " --mixed");
  EXPECT_EQ(mixed.code, 0);
  EXPECT_THAT(mixed.text, HasSubstr("Not comparable: b has the lengths"));
}

TEST_F(Report, TakesAPerplexityRun) {
  const cli::Outcome made = cli::run(
      "eval perplexity --quiet --no-plot --model tiny --methods full,streaming --context 128 --new 16 --windows 2 "
      "--out " +
      folder("p"));
  ASSERT_EQ(made.code, 0) << made.text;
  EXPECT_THAT(cli::run("report --format markdown " + folder("p")).text,
              AllOf(HasSubstr("perplexity [95"), HasSubstr("nats more than full")));
  EXPECT_THAT(cli::run("report " + folder("p") + " --format csv").text, HasSubstr(",nats_per_token,2,2,"));
}

TEST_F(Report, SaysWhatIsWrong) {
  run("a", "--lengths 256");
  const std::pair<std::string, const char*> cases[] = {
      {"report", "tandem report needs runs; see tandem report --help."},
      {"report a b --format", "--format has no value; see tandem report --help."},
      {"report /no/such/folder", "/no/such/folder"},
      {"report " + folder("a") + " " + folder("a"), "is given twice"},
      {"report " + folder("a") + " " + folder("a") + "/", "is given twice"},
      {"report " + folder("a") + " --format latx", "Did you mean 'latex'?"},
      {"report " + folder("a") + " --out page.pdf", "'page.pdf', which ends in none of .txt, .md, .tex, .csv, .html"},
      {"report " + folder("a") + " --out /no/such/file.md", "does not exist"},
      {"report " + folder("a") + " --format csv --out " + folder("page.html"), "--format is csv, and --out is '"},
      {"report " + folder("a") + " --out " + std::string(300, 'a') + ".md", "can be no file: File name too long"},
  };
  for (const auto& [arguments, says] : cases) {
    const cli::Outcome outcome = cli::run(arguments, cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << arguments;
  }
}

TEST_F(Report, WritesOverNoRun) {
  run("a", "--lengths 256");
  const std::string before = read_bytes(folder("a/samples.jsonl"));
  const cli::Outcome outcome =
      cli::run("report " + folder("a") + " --format csv --force --out " + folder("a/samples.jsonl"), cli::kOnlyErrors);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.text, HasSubstr("is a file of the run in that folder"));
  EXPECT_EQ(read_bytes(folder("a/samples.jsonl")), before);
  EXPECT_EQ(cli::run("report " + folder("a") + " --force --out " + folder("a/report.md")).code, 0) << "made from it";
}

TEST_F(Report, TimesThatAreMissingMakeARunIncomplete) {
  run("a", "--lengths 256");
  const std::string times = read_bytes(folder("a/timings.jsonl"));
  EXPECT_EQ(cli::run("report " + folder("a")).text.find("NOT COMPLETE"), std::string::npos);
  std::ofstream(folder("a/timings.jsonl")) << times.substr(0, times.find('\n') + 1);
  EXPECT_THAT(cli::run("report " + folder("a")).text, HasSubstr("NOT COMPLETE"));
}

TEST_F(Report, AFolderIsNoFile) {
  run("a", "--lengths 256");
  for (const char* name : {"samples.jsonl", "manifest.json"}) {
    std::filesystem::rename(folder("a/") + name, folder("aside"));
    std::filesystem::create_directory(folder("a/") + name);
    const cli::Outcome outcome = cli::run("report " + folder("a"), cli::kOnlyErrors);
    EXPECT_EQ(outcome.code, 2) << name;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr(name), HasSubstr("cannot be read (not a regular file)"))) << name;
    std::filesystem::remove(folder("a/") + name);
    std::filesystem::rename(folder("aside"), folder("a/") + name);
  }
}

}  // namespace
}  // namespace tandem::testing
