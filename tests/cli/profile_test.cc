// tandem profile heads as a user meets it: the table, the file, and what bad options say.
#include <filesystem>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>
#include <sstream>
#include <vector>

#include "engine/common/json.h"
#include "tests/cli/program_fixture.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;

std::size_t columns(const std::string& line) {
  std::size_t count = 0;
  for (const char c : line) count += (c & 0xC0) != 0x80;
  return count;
}

TEST(ProfileHeads, WritesTheSameTableAndFileEachTime) {
  const TemporaryFolder folder;
  const std::string options = "profile heads --quiet --length 512 --samples 1 --tasks single --each-head --out ";
  const cli::Outcome first = cli::run(options + (folder.path() / "a.json").string());
  const cli::Outcome second = cli::run(options + (folder.path() / "b.json").string() + " --threads 1");
  ASSERT_EQ(first.code, 0) << first.text;
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_EQ(read_bytes(folder.path() / "a.json"), read_bytes(folder.path() / "b.json"));
  std::istringstream lines(first.text);
  std::size_t heads = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(".json") == std::string::npos) {
      EXPECT_LE(columns(line), 100u) << line;
    }
    heads += line.size() > 3 && line[1] == '.' && std::isdigit(line[0]) != 0;
  }
  EXPECT_EQ(heads, 6u * 8 + 6u * 2);  // query heads and KV heads
  EXPECT_THAT(first.text, ::testing::AllOf(HasSubstr("Fluxion"), HasSubstr("AsyncSpade"), HasSubstr("ScoutAttention")));
}

TEST(ProfileHeads, FileHoldsEveryHead) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "heads.json").string();
  ASSERT_EQ(cli::run("profile heads --quiet --length 512 --samples 1 --tasks niah_single_1 --out " + file).code, 0);
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("schema"), "tandem-heads-1");
  EXPECT_EQ(json.at("prompts"), 1);
  ASSERT_EQ(json.at("layers").size(), 6u);
  for (const Json& layer : json.at("layers")) {
    ASSERT_EQ(layer.at("q_heads").size(), 8u);
    ASSERT_EQ(layer.at("kv_heads").size(), 2u);
    EXPECT_EQ(layer.at("input_change").at("cosine").is_null(), layer.at("layer") == 0);
    EXPECT_EQ(layer.at("input_change").at("added").is_null(), layer.at("layer") == 0);
    for (const Json& head : layer.at("q_heads")) {
      const double sinks = head.at("sink_mass"), window = head.at("window_mass");
      EXPECT_TRUE(sinks >= 0 && window > 0 && sinks + window <= 1.0000005) << head;
      EXPECT_LE(head.at("budget").at("0.90").at("1"), head.at("budget").at("0.95").at("1"));
      EXPECT_LE(head.at("budget").at("0.95").at("1"), head.at("budget").at("0.95").at("64"));
      EXPECT_EQ(head.at("layer_ahead_cosine").at("next").is_null(), layer.at("layer") == 0);
    }
  }
}

TEST(ProfileHeads, TakesAText) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 300; ++i) text += "Sentence " + std::to_string(i) + " of a plain text. ";
  write_bytes(folder.path() / "text.txt", text);
  const std::string file = (folder.path() / "heads.json").string();
  const cli::Outcome outcome = cli::run("profile heads --quiet --length 512 --samples 2 --text-file " +
                                        (folder.path() / "text.txt").string() + " --out " + file);
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("text.txt"));
  const Json json = parse_json(read_bytes(file), "JSON");
  EXPECT_EQ(json.at("prompts"), 2);
  EXPECT_EQ(json.at("queries"), 2 * 32);
  EXPECT_EQ(json.at("mean_tokens"), 512);
}

TEST(ProfileLayerAhead, TableAndFileAgree) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "ahead.json").string();
  const cli::Outcome outcome =
      cli::run("profile layer-ahead --quiet --length 512 --samples 1 --tasks niah_single_1 --out " + file);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, ::testing::AllOf(HasSubstr("predicted one layer ahead"), HasSubstr("Llama 3.1 8B")));
  const Json layers = parse_json(read_bytes(file), "JSON").at("layers");
  ASSERT_EQ(layers.size(), 6u);
  for (std::size_t layer = 1; layer < layers.size(); ++layer) {
    double mean = 0;
    for (const Json& head : layers[layer].at("q_heads")) mean += head.at("layer_ahead_cosine").at("next").get<double>();
    char cosine[64];
    std::snprintf(cosine, sizeof cosine, "%.3f", mean / 8);
    const std::size_t row = outcome.text.find("\n" + std::to_string(layer) + "    ");
    ASSERT_NE(row, std::string::npos);
    EXPECT_NE(outcome.text.substr(row, 30).find(cosine), std::string::npos) << outcome.text.substr(row, 30);
    const Json& change = layers[layer].at("input_change");
    std::istringstream line(outcome.text.substr(row, outcome.text.find('\n', row + 1) - row));
    const std::vector<std::string> cells{std::istream_iterator<std::string>(line), {}};
    ASSERT_EQ(cells.size(), 5u);
    EXPECT_EQ(cells[3], fmt::format("{:.3f}", change.at("cosine").get<double>()));
    EXPECT_EQ(cells[4], fmt::format("{:.2f}", change.at("added").get<double>()));
  }
}

TEST(ProfileScoutRecall, ItsFileIsWhatTheMethodLoads) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "recall.json").string();
  const cli::Outcome outcome = cli::run(
      "profile scout-recall --quiet --length 1K --samples 1 --tasks niah_single_1 --budget 256 --steps 8 --out " +
      file);
  ASSERT_EQ(outcome.code, 0) << outcome.text;
  const Json intervals = parse_json(read_bytes(file), "JSON").at("intervals");
  ASSERT_EQ(intervals.size(), 6u);
  std::string spelled;
  for (const Json& steps : intervals) {
    EXPECT_TRUE(steps >= 1 && steps <= 8) << steps;
    spelled += (spelled.empty() ? "" : "-") + std::to_string(steps.get<int>());
  }
  const cli::Outcome run = cli::run(
      "compare --quiet --no-plot --tasks niah_single_1 --lengths 1K --samples 1 --methods "
      "scoutattention:budget=256,recall=" +
      file + " --out " + (folder.path() / "run").string());
  ASSERT_EQ(run.code, 0) << run.text;
  EXPECT_THAT(read_bytes(folder.path() / "run" / "manifest.json"), HasSubstr("\"recall\": \"" + spelled + "\""));
  const cli::Outcome all = cli::run("profile scout-recall --quiet --length 512 --samples 1 --tasks niah_single_1");
  EXPECT_EQ(all.code, 2);
  EXPECT_THAT(all.text, HasSubstr("there is nothing to recall"));
}

INSTANTIATE_TEST_SUITE_P(
    Profile, RefusedUsage,
    ::testing::Values(cli::BadUsage{"profile", "see tandem profile --help."},
                      cli::BadUsage{"profile hedas", "tandem profile has no 'hedas'. Did you mean 'heads'?"},
                      cli::BadUsage{"profile heads --modle x", "of tandem profile heads. Did you mean '--model'?"},
                      cli::BadUsage{"profile heads x", "'x' is one word too many; see tandem profile heads --help."},
                      cli::BadUsage{"profile heads --length 300", "every head would be a streaming one"},
                      cli::BadUsage{"profile heads --length 1K,2K", "give one length"},
                      cli::BadUsage{"profile heads --length 1M", "positions of model 'embedded'"},
                      cli::BadUsage{"profile layer-ahead --length 1", "--length is 1: give at least 2 tokens"},
                      cli::BadUsage{"profile heads --length 330 --window 4294967290", "cover that already"},
                      cli::BadUsage{"profile query-shift --epsilon inf", "--epsilon is 'inf'"},
                      cli::BadUsage{"profile heads --samples 0", "--samples is 0"},
                      cli::BadUsage{"profile heads --window 0", "--window is 0"},
                      cli::BadUsage{"profile heads --tasks niah_singel_1", "Did you mean 'niah_single_1'?"},
                      cli::BadUsage{"profile heads --text-file /no/such/text",
                                    "--text-file '/no/such/text' cannot be read (No such file or directory)."},
                      cli::BadUsage{"profile heads --text-file /dev/null", "cannot be read (not a regular file)"},
                      cli::BadUsage{"profile heads --model tiny --text-file '" TANDEM_PROGRAM "'", "is no UTF-8"},
                      cli::BadUsage{"profile heads --text-file a --tasks vt",
                                    "--tasks changes nothing with --text-file"},
                      cli::BadUsage{"profile heads --out /no/such/folder/x.json", "'/no/such/folder' does not exist"},
                      cli::BadUsage{"profile heads --out /tmp", "is a folder"},
                      cli::BadUsage{"profile scout-recall --steps 1", "--steps is 1: give 2 to 100000."},
                      cli::BadUsage{"profile scout-recall --threshold 1", "--threshold is 1"},
                      cli::BadUsage{"profile scout-recall --budget 64", "Option 'budget' of method 'scoutattention'"},
                      cli::BadUsage{"profile heads --model /no/such/model", "/no/such/model"}));

TEST(ProfileHeads, ReplacesAFileOnlyWhenTold) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "heads.json").string();
  write_bytes(file, "precious");
  const std::string command = "profile heads --quiet --length 512 --samples 1 --tasks niah_single_1 --out " + file;
  EXPECT_EQ(cli::run(command).code, 2);
  EXPECT_EQ(read_bytes(file), "precious");
  EXPECT_EQ(cli::run(command + " --force").code, 0);
  EXPECT_NE(read_bytes(file), "precious");
}

}  // namespace
}  // namespace tandem::testing
