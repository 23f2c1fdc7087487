// Tables of finished runs: figures by hand, of the invented run of eval/report's tests.
#include "eval/tables/tables.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "engine/common/error.h"
#include "eval/report/markdown.h"
#include "tests/eval/report/example_run.h"

namespace tandem::eval {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Tables : public ::testing::Test {
 protected:
  std::vector<ReportedRun> twice() const { return {read_run(folder_, "a"), read_run(folder_, "b")}; }

  TemporaryFolder root_;
  std::filesystem::path folder_ = write_run(root_);
};

/// Cells of a line of comma-separated values, by an automaton of its own.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[i++];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

TEST_F(Tables, OneRunHasItsFigures) {
  const std::vector<ReportedRun> runs = {read_run(folder_, "a")};
  const std::string text = tables_text(runs, TableFormat::markdown);
  // Sixteen samples each; the second method misses four of them.
  EXPECT_THAT(text, HasSubstr("a: ruler of tiny, niah_single_1, niah_single_2 at 1K, 2K, 16 samples per method"));
  EXPECT_THAT(text, HasSubstr("| full | 100.0 ["));
  EXPECT_THAT(text, HasSubstr("| hybrid:budget=0.2 | 75.0 ["));
  EXPECT_THAT(text, HasSubstr("| -25.0 ["));
  // 6 ms to the first token, then 1 and 3 ms; half of the second's steps take twice as long: mean 3 ms. It waits for 40
  // and for 6.2 / 9.5 of its steps' time.
  EXPECT_THAT(text, HasSubstr("Figures are simulated for h200.\n\n| method | TTFT ms | TPOT ms |"));
  EXPECT_THAT(text, HasSubstr("| full | 6 | 2 | 0.7333 | 40.0 | 1.00 | 2.00 |"));
  EXPECT_THAT(text, HasSubstr("| hybrid:budget=0.2 | 6 | 3 | 1.4 | 52.6 | 1.00 | 2.00 |"));
  EXPECT_THAT(text, HasSubstr("means of the lengths' means"));
  EXPECT_THAT(text, Not(HasSubstr("NOT COMPLETE")));
}

TEST_F(Tables, RunsStandSideBySide) {
  std::vector<ReportedRun> runs = twice();
  EXPECT_THAT(unlike(runs), IsEmpty());
  runs[1].methods.erase(runs[1].methods.begin());
  runs[1].methods[0].label = "other";
  const std::string text = tables_text(runs, TableFormat::markdown);
  EXPECT_THAT(text, AllOf(HasSubstr("a: accuracy"), HasSubstr("b: accuracy"), HasSubstr("b: TPOT ms")));
  EXPECT_THAT(text, HasSubstr("| other | - | - | 75.0 ["));
  EXPECT_THAT(text, HasSubstr("| full | 6 | 2 | 0.7333 | 40.0 | 1.00 | 2.00 | - | - | - | - | - | - |"));
  runs[1].manifest.clock = "measured on a CPU";
  const std::string clocks = tables_text(runs, TableFormat::markdown);
  EXPECT_THAT(clocks, AllOf(HasSubstr("a: TPOT ms, simulated for h200"), HasSubstr("b: TPOT ms, measured on a CPU")));
  runs[1].manifest.clock.clear();
  EXPECT_THAT(tables_text(runs, TableFormat::terminal), Not(HasSubstr("b: TPOT")));
}

TEST_F(Tables, APredictionThatCannotBeReadLeavesTheRest) {
  for (const char* damaged : {"", "{", "{\"clock\": \"simulated for h200\", \"model\": \"m\"}"}) {
    write_bytes(folder_ / "target.json", damaged);
    const std::vector<ReportedRun> runs = {read_run(folder_, "a")};
    EXPECT_THAT(tables_text(runs, TableFormat::markdown),
                AllOf(HasSubstr("| full | 100.0 ["), HasSubstr("a: the prediction at a target shape cannot be shown. "),
                      HasSubstr("target.json")))
        << damaged;
    EXPECT_THAT(tables_text(runs, TableFormat::latex), HasSubstr("% a: the prediction at a target shape cannot"));
    EXPECT_THAT(tables_csv(runs), HasSubstr("a,tiny,"));
  }
}

TEST_F(Tables, UnlikeRunsAreTold) {
  const auto told = [&](const auto& change) {
    std::vector<ReportedRun> runs = twice();
    change(runs[1].manifest);
    const auto sentences = unlike(runs);
    return sentences.empty() ? std::string("alike") : sentences.front();
  };
  EXPECT_EQ(told([](Manifest&) {}), "alike");
  EXPECT_EQ(told([](Manifest& m) {
              m.model = "another";
              m.programs[0].git_commit = "x";
            }),
            "alike");
  EXPECT_EQ(told([](Manifest& m) { m.samples = 8; }), "b has samples '8' where 'a' has '4'.");
  EXPECT_THAT(told([](Manifest& m) { m.tasks = {"vt"}; }),
              HasSubstr("the tasks 'vt' where 'a' has 'niah_single_1,niah_single_2'"));
  EXPECT_THAT(told([](Manifest& m) { m.lengths = {512}; }), HasSubstr("the lengths '512'"));
  EXPECT_THAT(told([](Manifest& m) { m.seed = 1; }), HasSubstr("the seed '1'"));
  EXPECT_THAT(told([](Manifest& m) { m.benchmark = "longbench"; }), HasSubstr("the benchmark 'longbench'"));
  EXPECT_THAT(told([](Manifest& m) { m.protocol_id += "+tok:x"; }), HasSubstr("the protocol's tok 'x'"));
  std::vector<ReportedRun> budgets = twice();
  budgets[0].manifest.protocol_id += "+budget:hgca=device-kv,quest=tokens";
  budgets[1].manifest.protocol_id += "+budget:h2o=tokens,quest=tokens";
  EXPECT_THAT(unlike(budgets), IsEmpty()) << "what only one has is no difference";
  budgets[1].manifest.protocol_id += "-of-all";
  EXPECT_THAT(unlike(budgets).at(0), HasSubstr("the protocol's budget"));
  EXPECT_THAT(tables_text(budgets, TableFormat::terminal), HasSubstr("Not comparable: b has"));
}

TEST_F(Tables, OtherWeightsOfAModelAreTold) {
  std::vector<ReportedRun> runs = twice();
  EXPECT_THAT(tables_text(runs, TableFormat::markdown), Not(HasSubstr(" than in ")));
  runs[1].manifest.weights_hash = "w2";
  EXPECT_THAT(tables_text(runs, TableFormat::markdown),
              HasSubstr("tiny has other weights in b than in a (w2 and w1)."));
  runs[1].manifest.weights_hash = "w1";
  runs[1].manifest.config_hash = "c2";
  EXPECT_THAT(tables_text(runs, TableFormat::latex), HasSubstr("tiny has another config.json in b than in a."));
  runs[1].manifest.config_hash.clear();
  EXPECT_THAT(tables_text(runs, TableFormat::latex), Not(HasSubstr(" than in "))) << "of before schema version 10";
  runs[1].manifest.weights_hash = "w2";
  runs[1].manifest.model = "another";
  EXPECT_THAT(tables_text(runs, TableFormat::latex), Not(HasSubstr(" than in "))) << "its name says it";
}

TEST_F(Tables, AnUnfinishedRunSaysSo) {
  const TemporaryFolder root;
  const std::vector<ReportedRun> runs = {read_run(write_run(root, /*all=*/false), "part")};
  EXPECT_THAT(tables_text(runs, TableFormat::terminal), HasSubstr("NOT COMPLETE"));
  EXPECT_THROW(read_run(root / "none", "none"), InputError);
}

TEST_F(Tables, ABudgetForTheWholeContextIsMarked) {
  std::vector<ReportedRun> runs = twice();
  EXPECT_THAT(tables_text(runs, TableFormat::markdown), Not(HasSubstr("budget |")));
  runs[1].methods[1].attends_everything_at = {2048};
  EXPECT_THAT(tables_text(runs, TableFormat::markdown), AllOf(HasSubstr("| b: budget |"), Not(HasSubstr("a: budget")),
                                                              HasSubstr("| attends everything at 2K |")));
}

TEST_F(Tables, OneLengthHasItsPercentilesAndNoNoteOnWeights) {
  std::vector<ReportedRun> runs = {read_run(folder_, "a")};
  runs[0].manifest.lengths.pop_back();
  for (MethodSummary& m : runs[0].methods) {
    m.by_length.pop_back();
    m.latency = m.by_length[0].latency;
  }
  const std::string text = tables_text(runs, TableFormat::markdown);
  EXPECT_THAT(text, HasSubstr("| full | 6 | 2 | 3 | 0.7333 | 40.0 | 1.00 | 2.00 |"));
  EXPECT_THAT(text, AllOf(HasSubstr("p99 ms"), Not(HasSubstr("lengths' means"))));
}

TEST_F(Tables, TheBaselineIsTheManifestsAlsoWhereItHasNoSample) {
  const TemporaryFolder root;
  const Manifest manifest = example_manifest();
  {
    RunFolder folder = RunFolder::create(root / "run", manifest);
    folder.append(example_sample(0, "hybrid:budget=0.2"));
    folder.append(example_timing(0, "hybrid:budget=0.2"));
  }
  std::vector<ReportedRun> runs = {read_run(root / "run", "part")};
  const std::string alone = tables_text(runs, TableFormat::markdown);
  EXPECT_THAT(alone, AllOf(HasSubstr("full, its first method, has no sample yet: there are no differences to it."),
                           HasSubstr("NOT COMPLETE"), Not(HasSubstr("points more"))));
  runs.push_back(read_run(folder_, "a"));
  const std::string both = tables_text(runs, TableFormat::markdown);
  EXPECT_THAT(both, AllOf(HasSubstr("a: points more than full"), Not(HasSubstr("part: points more"))));
  EXPECT_THAT(both, HasSubstr("| full | - | 100.0 ["));
}

TEST_F(Tables, CsvHasALineForEachFigure) {
  std::istringstream lines(tables_csv(twice()));
  std::string line;
  std::getline(lines, line);
  const std::vector<std::string> heads = cells_of(line);
  std::vector<std::map<std::string, std::string>> rows;
  while (std::getline(lines, line)) {
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), heads.size()) << line;
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < heads.size(); ++i) row[heads[i]] = cells[i];
  }
  ASSERT_EQ(rows.size(), 2u * 2 * (1 + 2 + 4));  // runs, methods; all, lengths, tasks by length
  const auto at = [&](const char* method, const char* task, const char* length) {
    for (const auto& row : rows)
      if (row.at("method") == method && row.at("task") == task && row.at("length") == length) return row;
    return std::map<std::string, std::string>();
  };
  auto all = at("hybrid:budget=0.2", "all", "all");
  EXPECT_EQ(all["run"], "a");
  EXPECT_EQ(all["value"], "0.75");
  EXPECT_EQ(all["difference"], "-0.25");
  EXPECT_EQ(all["n"], "16");
  EXPECT_EQ(all["tpot_ms"], "3");
  EXPECT_NEAR(std::stod(all["busy_ms"]) + std::stod(all["idle_ms"]), std::stod(all["step_ms"]), 1e-9);
  EXPECT_NEAR(
      std::stod(all["idle_ms_launch"]) + std::stod(all["idle_ms_host_attention"]) + std::stod(all["idle_ms_recall"]),
      std::stod(all["idle_ms"]), 1e-9);
  EXPECT_EQ(all["tpot_p50_ms"] + all["tpot_p99_ms"], "") << "means of percentiles are none";
  EXPECT_EQ(at("hybrid:budget=0.2", "all", "2048")["tpot_p99_ms"], "6");
  EXPECT_EQ(at("hybrid:budget=0.2", "all", "1024")["tpot_ms"], "2");
  EXPECT_EQ(at("hybrid:budget=0.2", "all", "2048")["tpot_ms"], "4");
  auto cell = at("full", "niah_single_2", "2048");
  EXPECT_EQ(cell["n"], "4");
  EXPECT_EQ(cell["difference"] + cell["p"] + cell["tpot_ms"], "") << "times are of all tasks together";
}

TEST_F(Tables, WithoutALaterStepNoFormatHasATimePerToken) {
  std::vector<ReportedRun> runs = {read_run(folder_, "a")};
  for (MethodSummary& m : runs[0].methods) {
    m.by_length.pop_back();
    LatencySummary& l = m.by_length[0].latency;
    l.tpot_ms = l.tpot_p50_ms = l.tpot_p90_ms = l.tpot_p99_ms = std::nullopt;
    m.latency = l;
  }
  runs[0].manifest.lengths.pop_back();
  EXPECT_THAT(tables_text(runs, TableFormat::markdown),
              HasSubstr("| full | 6 | - | - | 0.7333 | 40.0 | 1.00 | 2.00 |"));
  EXPECT_THAT(tables_text(runs, TableFormat::latex), HasSubstr("full & 6 & - & - & 0.7333 & 40.0 & 1.00 & 2.00"));
  std::istringstream csv(tables_csv(runs));
  std::string heads, first;
  std::getline(csv, heads);
  std::getline(csv, first);
  const std::vector<std::string> names = cells_of(heads), cells = cells_of(first);
  ASSERT_EQ(names.size(), cells.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i].starts_with("tpot") || names[i] == "touched_bytes_per_token") {
      EXPECT_EQ(cells[i], "") << names[i];
    }
  }
}

TEST(Csv, QuotesWhatSeparates) {
  EXPECT_EQ(csv_cell("plain"), "plain");
  EXPECT_EQ(csv_cell("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
  EXPECT_EQ(csv_cell("two\nlines"), "two\\u000alines");
  EXPECT_EQ(csv_cell("a;=b"), "\"a;=b\"") << "where a semicolon separates";
}

TEST(Csv, NoCellIsAFormula) {
  EXPECT_EQ(csv_cell("=1+1"), "'=1+1");
  EXPECT_EQ(csv_cell("=HYPERLINK(\"http://e\",\"x\")"), "\"'=HYPERLINK(\"\"http://e\"\",\"\"x\"\")\"");
  EXPECT_EQ(csv_cell("+1"), "'+1");
  EXPECT_EQ(csv_cell("-1"), "'-1");
  EXPECT_EQ(csv_cell("@SUM(A1)"), "'@SUM(A1)");
  EXPECT_EQ(csv_cell("  =1"), "'  =1");
  EXPECT_EQ(csv_cell("\t=1"), "\\u0009=1");
  EXPECT_EQ(csv_cell("\r=1"), "\\u000d=1");
  EXPECT_EQ(csv_cell("\uFF1D1"), "'\uFF1D1");
  EXPECT_EQ(csv_cell("full-offload"), "full-offload");
  EXPECT_EQ(csv_cell("\x1b\u202e"), "\\u001b\\u202e");
}

TEST_F(Tables, NamesOfAStrangersRunStayText) {
  const std::string name = "=x\r\n\\input{y}\u202e\x1b,%";
  std::vector<ReportedRun> runs = twice();
  for (ReportedRun& run : runs) {
    run.name += name;
    for (std::string* text : {&run.manifest.model, &run.manifest.clock, &run.manifest.programs[0].git_commit})
      *text = name + *text;
    for (MethodSummary& m : run.methods) m.label = name + m.label;
    run.manifest.methods[0].label = name + run.manifest.methods[0].label;
  }
  std::istringstream latex(tables_text(runs, TableFormat::latex));
  for (std::string line; std::getline(latex, line);) {
    EXPECT_EQ(line.find_first_of("\r\x1b"), std::string::npos) << line;
    if (line.starts_with('%')) continue;
    EXPECT_EQ(line.find("\\input{"), std::string::npos) << line;
  }
  std::istringstream csv(tables_csv(runs));
  std::string line;
  std::getline(csv, line);
  const std::vector<std::string> heads = cells_of(line);
  std::size_t rows = 0;
  for (; std::getline(csv, line); ++rows) {
    const std::vector<std::string> cells = cells_of(line);
    ASSERT_EQ(cells.size(), heads.size()) << line;
    for (std::size_t i = 0; i < 8; ++i) EXPECT_FALSE(cells[i].starts_with('=')) << heads[i];
  }
  EXPECT_EQ(rows, 2u * 2 * (1 + 2 + 4));
}

TEST(Latex, EscapesWhatTexWouldTakeForItsOwn) {
  EXPECT_EQ(latex_text("a_b & 50\u00a0% #1 {x} $"), "a\\_b \\& 50~\\% \\#1 \\{x\\} \\$");
  EXPECT_EQ(latex_text("<0.001 ~ \\ ^"), "$<$0.001 \\textasciitilde{} \\textbackslash{} \\textasciicircum{}");
  EXPECT_EQ(latex_text("-1.5 [-2.0, +0.5], layer-ahead, -"), "$-$1.5 [$-$2.0, +0.5], layer-ahead, -");
  EXPECT_EQ(latex_text("[1] *"), "{[}1] *") << "no argument of the row's end before it";
  EXPECT_EQ(latex_text("* a\nb\r\x1b"), "{*} a\\textbackslash{}u000ab\\textbackslash{}u000d\\textbackslash{}u001b");
  EXPECT_EQ(latex_comment("one\ntwo\rthree"), "% one\\u000atwo\\u000dthree\n");
}

TEST_F(Tables, LatexRowsHaveAsManyCellsAsColumns) {
  const std::string text = tables_text(twice(), TableFormat::latex);
  std::istringstream lines(text);
  std::size_t columns = 0, rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("\\begin{tabular}{")) columns = line.size() - std::string("\\begin{tabular}{}").size();
    if (!line.ends_with("\\\\") || line.find("multicolumn") != std::string::npos) continue;
    EXPECT_EQ(static_cast<std::size_t>(std::count(line.begin(), line.end(), '&')) + 1, columns) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 6u);  // a head and two methods, twice
  EXPECT_THAT(text, HasSubstr("& \\multicolumn{12}{c}{simulated for h200} \\\\\n\\cmidrule(lr){2-13}"));
  EXPECT_THAT(text, HasSubstr("\n% Of runs at several lengths, times and idle "));
}

}  // namespace
}  // namespace tandem::eval
