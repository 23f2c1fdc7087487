// What people read of a run: tables, notes, and how wide they are.
#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "eval/report/table.h"
#include "tests/eval/report/example_run.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t widest(const std::string& text) {
  std::size_t width = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    width = std::max(width, text_columns(std::string_view(text).substr(begin, end - begin)));
    begin = end + 1;
  }
  return width;
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

TEST(Report, ProvenanceNamesEveryProgram) {
  Manifest manifest = example_manifest();
  EXPECT_THAT(provenance(manifest), HasSubstr("\n- tandem 0.1.0 (abc), weights w1, tokenizer t1\n"));
  manifest.programs.push_back({"0.1.0", "def"});
  EXPECT_THAT(provenance(manifest),
              HasSubstr("\n- tandem 0.1.0 (abc) and, where it was resumed, 0.1.0 (def), weights w1, tokenizer t1\n"));
}

TEST(Report, SaysHowManyComparisonsThereAre) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  EXPECT_THAT(report_text(s, true), Not(HasSubstr("of its comparison alone")));
  for (int extra = 0; extra < 2; ++extra) {
    s.manifest.methods.push_back(s.manifest.methods[1]);
    s.methods.push_back(s.methods[1]);
    s.manifest.methods.back().label = s.methods.back().label = "hybrid:budget=0." + std::to_string(extra + 3);
  }
  EXPECT_THAT(report_text(s, true),
              HasSubstr(" Each p is that of its comparison alone: of 3 without a true difference, "
                        "were they independent, one or more would be below 0.05 in 14 % of runs."));
  for (MethodSummary& m : s.methods) m.overall.difference.has_p = false;  // scores that are shares
  EXPECT_THAT(report_text(s, true),
              AllOf(HasSubstr(" Each interval of a difference is that of its comparison alone: of 3"),
                    HasSubstr("one or more would have no 0 in theirs in 14 % of runs.")));
}

TEST(Report, SaysHowLargeADifferenceTheSamplesFind) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  PairedEstimate& difference = s.methods[1].overall.difference;
  ASSERT_TRUE(difference.has_p);
  difference.detectable = 0.3;
  EXPECT_THAT(report_text(s, true), AllOf(HasSubstr("true difference of so many points: 30.0 for hybrid:budget=0.2."),
                                          Not(HasSubstr("Too few samples"))));
  difference.detectable = 0.861;
  EXPECT_THAT(report_text(s, true),
              AllOf(HasSubstr("Too few samples to find a true difference below 50 points in four of five runs: "
                              "hybrid:budget=0.2."),
                    HasSubstr("McNemar's test"), Not(HasSubstr("so many points"))));
}

TEST(Table, TextIsThis) {
  Table t;
  t.head = {"method", "accuracy, % [95 %]", "n"};
  t.rows = {{"full", "100.0 [83.9, 100.0]", "20"}, {"é", "5.0", "1000"}};
  t.clock = "simulated for h200";
  EXPECT_EQ(t.text(),
            "        ── simulated for h200 ───\n"
            "method   accuracy, % [95 %]     n\n"
            "──────  ───────────────────  ────\n"
            "full    100.0 [83.9, 100.0]    20\n"
            "é                       5.0  1000\n");
  EXPECT_EQ(t.markdown(),
            "Figures are simulated for h200.\n\n"
            "| method | accuracy, % [95 %] | n |\n"
            "|---|---:|---:|\n"
            "| full | 100.0 [83.9, 100.0] | 20 |\n"
            "| é | 5.0 | 1000 |\n");
}

TEST(Table, NarrowerThanItsClockStillNamesIt) {
  Table t;
  t.head = {"m", "TPOT"};
  t.rows = {{"a", "1"}};
  t.clock = "simulated for a machine with a very long name";
  EXPECT_THAT(t.text(), HasSubstr(t.clock));
  t.clock = "measured on " + std::string(30, 'x') + " " + std::string(30, 'y') + " " + std::string(30, 'z');
  EXPECT_LE(widest(t.text()), 100u);
  for (const char c : {'x', 'y', 'z'}) EXPECT_THAT(t.text(), HasSubstr(std::string(30, c)));
}

TEST(Table, NarrowNamesLeaveTheirRoomToWideOnes) {
  Table t;
  t.leading = 3;
  t.head = {"machine", "batch", "context", "tokens/s"};
  t.rows = {{"a-machine-with-long-name", "1", "8K", "12"}, {"another", "16", "128K", "3"}};
  EXPECT_THAT(t.text(80), HasSubstr("a-machine-with-long-name  1"));
  t.rows[0][0] += "-and-some-more-than-half-a-line";
  EXPECT_THAT(t.text(80), HasSubstr("…  1 "));
  EXPECT_THAT(t.text(80), Not(HasSubstr("half-a-line")));
}

TEST(Table, AnythingFitsTheWidthAndLosesNoColumn) {
  for (const std::size_t width : {40u, 60u, 80u, 100u}) {
    for (const std::size_t columns : {2u, 5u, 30u}) {
      for (const std::size_t size : {1u, 9u, 45u, 300u}) {
        for (const std::size_t leading : {1u, 2u}) {
          if (leading >= columns) continue;
          Table t;
          t.leading = leading;
          t.clock = "simulated for h200";
          std::vector<std::string> row;
          for (std::size_t c = 0; c < columns; ++c) {
            t.head.push_back("h" + std::to_string(c) + " long head of a column");
            row.push_back("<" + std::to_string(c) + ">" + std::string(size, 'x'));
          }
          t.rows = {row, row};
          const std::string text = t.text(width);
          EXPECT_LE(widest(text), width) << text;
          for (std::size_t c = 0; c < columns; ++c) EXPECT_THAT(text, HasSubstr("<" + std::to_string(c) + ">"));
        }
      }
    }
  }
}

TEST(Table, MarkdownIsSafeFromItsCells) {
  Table t;
  t.head = {"a|b", "c"};
  t.rows = {{"x\ny", "|"}};
  EXPECT_EQ(t.markdown(), "| a\\|b | c |\n|---|---:|\n| x\\u000ay | \\| |\n");
}

TEST(Table, TheTerminalIsSafeFromItsCells) {
  Table t;
  t.clock = "simulated for \x1b[8m\nh200";
  t.head = {"method\x07", "n"};
  t.rows = {{"a\nb\u202e", "\u009b1m"}};
  EXPECT_EQ(t.text(),
            "simulated for \\u001b[8m\\u000ah200\n"
            "method\\u0007           n\n"
            "──────────────  ────────\n"
            "a\\u000ab\\u202e  \\u009b1m\n");
}

/// A name that is syntax wherever it may stand.
constexpr const char* kHostile = "=[x](http://e)<img src=x>`$|&lt;\n# \x1b]0;t\x07\u202e\\write18{}%_*";

/// Bars that end a cell.
std::size_t bars(const std::string& line) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\\') {
      ++i;
    } else if (line[i] == '|') {
      ++count;
    }
  }
  return count;
}

TEST(Report, NamesOfAStrangersRunStayText) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  const auto headings = [](const std::string& text) {
    std::size_t count = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) count += line.starts_with('#') ? 1 : 0;
    return count;
  };
  const auto page = [&] { return report_text(s, /*markdown=*/true, /*with_plot=*/true) + provenance(s.manifest); };
  const std::size_t own = headings(page());
  Manifest& m = s.manifest;
  for (std::string* name :
       {&m.model, &m.command, &m.protocol_id, &m.clock, &m.machine.cpu_model, &m.programs[0].git_commit,
        &m.weights_hash, &m.tokenizer_hash, &m.programs[0].tandem_version, &m.started_utc, &m.benchmark})
    *name += kHostile;
  s.remarks = {std::string("# ") + kHostile};
  for (std::size_t i = 0; i < s.methods.size(); ++i) s.methods[i].label = m.methods[i].label += kHostile;
  for (std::string& task : m.tasks) task += kHostile;
  for (MethodSummary& method : s.methods) {
    for (AccuracyCell& cell : method.cells) cell.task += kHostile;
    for (LengthLatency& at : method.by_length) at.latency.idle_ms_by_cause = {{kHostile, 1.0}};
  }
  const std::string markdown = page();
  for (const char* raw : {"\x1b", "\x07", "\u202e"}) EXPECT_THAT(markdown, Not(HasSubstr(raw)));
  EXPECT_EQ(headings(markdown), own);
  std::size_t cells = 0;
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("- command: ``") || line.starts_with("- protocol: ``")) continue;  // code
    for (const char* raw : {"[x](", "http://", ")<img"}) EXPECT_THAT(line, Not(HasSubstr(raw)));
    if (line.starts_with("|") && cells > 0) {
      EXPECT_EQ(bars(line), cells) << line;
    }
    cells = line.starts_with("|") ? bars(line) : 0;
  }
  const std::string terminal = report_text(s, /*markdown=*/false);
  for (const char* raw : {"\x1b", "\x07", "\u202e"}) EXPECT_THAT(terminal, Not(HasSubstr(raw)));
}

TEST(Table, WrapKeepsWordsAndLines) {
  EXPECT_EQ(counted(0, "sample") + counted(1, "sample") + counted(20, "sample"), "0 samples1 sample20 samples");
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrap("ééé éé", 6), "ééé éé");
  EXPECT_EQ(wrap("longerthanthat a", 4), "longerthanthat\na");
  EXPECT_EQ(wrap("a\nb  c", 10), "a\nb c");
  EXPECT_EQ(wrap("", 5), "");
}

TEST(Report, TerminalFitsAndTimesCarryTheirClock) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  for (int extra = 0; extra < 9; ++extra) {  // many methods with long options
    s.manifest.methods.push_back(
        {"hybrid:budget=0." + std::to_string(extra) + ",sink=4,recent=64,recall=8", "hybrid", {}, {}});
    s.methods.push_back(s.methods[1]);
    s.methods.back().label = s.manifest.methods.back().label;
  }
  s.remarks = {
      "Some method with option=0 does what others do not, and this sentence about it is longer than a line of "
      "a terminal."};
  const std::string text = report_text(s, false);
  EXPECT_LE(widest(text), kTerminalWidth) << text;
  EXPECT_THAT(text, HasSubstr("\nSome method with option=0 "));
  for (const char* part :
       {"Accuracy", "Latency", "Where the device waits", "Bytes per decoded token", "TPOT", "Host share", "88.8",
        "Wilson score", "Newcombe paired", "near ties", "hybrid:budget=0.8 = hybrid:budget=0.8,sink=4,recent=64",
        "simulated for h200", "· host", "McNemar"})
    EXPECT_THAT(text, HasSubstr(part));
  const std::string markdown = report_text(s, true);
  for (const MethodEntry& method : s.manifest.methods) EXPECT_THAT(markdown, HasSubstr("| " + method.label + " |"));
  EXPECT_EQ(count(markdown, "simulated for h200"), 1u) << "the clock, at the head";
  EXPECT_THAT(markdown, HasSubstr("of 10 without a true difference, were they independent, one or more would be below "
                                  "0.05 in 40 % of runs."));
  // Every Markdown table line has as many cells as its head.
  std::size_t bars = 0;
  for (std::size_t begin = 0; begin < markdown.size();) {
    const std::size_t end = std::min(markdown.find('\n', begin), markdown.size());
    const std::string line = markdown.substr(begin, end - begin);
    const auto here = static_cast<std::size_t>(std::count(line.begin(), line.end(), '|'));
    if (here > 0 && bars > 0) {
      EXPECT_EQ(here, bars) << line;
    }
    bars = here;
    begin = end + 1;
  }
}

TEST(Report, APageBeginsWithTheAnswerAndTheFront) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  const std::string page = report_text(s, true, /*with_plot=*/true);
  std::size_t at = 0;
  for (const char* part : {"# RULER on tiny\n", "\n- ", "](pareto.png)", "\n## Accuracy\n", "](plot.png)",
                           "\n## Where the device waits\n", "\n## Bytes per decoded token\n", "\n## By task\n"}) {
    const std::size_t next = page.find(part, at);
    ASSERT_NE(next, std::string::npos) << part << " is not behind the parts before:\n" << page;
    at = next;
  }
  EXPECT_THAT(report_text(s, true), Not(HasSubstr(".png"))) << "nothing was drawn";
  s.methods[1].latency.reset();
  EXPECT_THAT(report_text(s, true, true), AllOf(Not(HasSubstr("pareto.png")), HasSubstr("plot.png")))
      << "one method alone has times";
}

TEST(Report, TheBestScoreIsFirst) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  std::swap(s.methods[0], s.methods[1]);
  const std::string page = report_text(s, true);
  EXPECT_LT(page.find("| full | 100.0 ["), page.find("| hybrid:budget=0.2 | 75.0 ["));
}

TEST(Report, ScoresThatAreNoAccuracyAreNotCalledSo) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  for (const char* shares : {"longbench", "leval", "longproc"}) {
    s.manifest.benchmark = shares;
    for (const bool markdown : {false, true})
      EXPECT_THAT(report_text(s, markdown), AllOf(Not(HasSubstr("ccuracy")), HasSubstr("score, %"))) << shares;
  }
}

TEST(Report, NamesWhereALosslessMethodParted) {
  TemporaryFolder root;
  Summary s = summarise(RunFolder::open(write_run(root)));
  EXPECT_THAT(report_text(s, true), Not(HasSubstr("is lossless")));
  for (std::uint32_t i = 0; i < 4; ++i) {
    SampleResult& sample = s.methods[1].parted.emplace_back();
    static_cast<SampleKey&>(sample) = {"ruler", "niah_single_1", 2048, i, s.methods[1].label};
    sample.parted = Parting{i + 5, {{17, 3}, {12.5, 12.25}}, {{3, 17}, {12.75, 12}}};
  }
  const std::string text = report_text(s, true);
  EXPECT_THAT(text, HasSubstr(s.methods[1].label + " is lossless, and its tokens part from full's in 4 of "));
  EXPECT_THAT(text, HasSubstr("niah_single_1 at 2K, sample 2: step 7, best logits 12.5 and 12.25 (gap 0.25) of full, "
                              "12.75 and 12 of its own. samples.jsonl names the others."));
  EXPECT_THAT(text, Not(HasSubstr("sample 3:")));
}

}  // namespace
}  // namespace tandem::eval
