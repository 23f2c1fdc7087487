// Errors of heads in a run's folder: what is counted, what a run that goes on keeps, and what the table says.
#include "eval/fluxion/head_errors.h"

#include <algorithm>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using namespace eval;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

constexpr const char* kSpec = "fluxion:sinks=16,window=32,heads=oracle,tau=0.05,line=cover";

Manifest manifest() {
  Manifest m;
  m.methods = {{"full", "full", {}, {}}, {kSpec, "fluxion", {}, {}}};
  m.benchmark = "ruler";
  m.tasks = {"niah_single_1"};
  m.lengths = {512};
  m.samples = 5;
  return m;
}

SampleKey key(std::uint32_t index, const std::string& method = kSpec) {
  return {"ruler", "niah_single_1", 512, index, method};
}

TEST(HeadErrorCounts, AddUp) {
  HeadErrorCounts counts;
  counts.add(HeadErrors{0, {0.0, 0.06, 0.6}, {1.0, 0.5, 0.0}});
  EXPECT_EQ(counts.heads, 3u);
  EXPECT_DOUBLE_EQ(counts.error, 0.66);
  EXPECT_DOUBLE_EQ(counts.attended, 1.5);
  EXPECT_EQ(counts.none, 1u);
  EXPECT_DOUBLE_EQ(counts.worst, 0.6);
  EXPECT_THAT(counts.above, ::testing::ElementsAre(2, 1, 1, 1));
  HeadErrorCounts twice = counts;
  twice.add(counts);
  EXPECT_EQ(twice.heads, 6u);
  EXPECT_THAT(twice.above, ::testing::ElementsAre(4, 2, 2, 2));
}

SampleResult result_of(const SampleKey& key) {
  SampleResult result;
  static_cast<SampleKey&>(result) = key;
  return result;
}

/// A run in batches of two, with a line of a made-up error for each.
class HeadErrorRun : public ::testing::Test {
 protected:
  fs::path path() const { return root_.path() / "run"; }
  std::string text() const { return read_bytes(path() / "errors.jsonl"); }

  /// What compare does: decodes batches that lack something, keeps what results are missing, then the errors.
  /// Returns the first samples of the batches that were decoded.
  std::vector<std::uint32_t> go_on(RunFolder& run, std::vector<std::string>* repairs = nullptr) {
    HeadErrorLog log(run, 2);
    if (repairs != nullptr) *repairs = log.repairs();
    Bench bench(tiny_model());
    const auto fluxion = log.make(kSpec);
    const auto there = run.finished();
    std::vector<std::uint32_t> decoded;
    for (const std::uint32_t first : {0u, 2u, 4u}) {
      bool missing = log.lacks(key(first)) || log.lacks(key(first, "full"));
      for (std::uint32_t i = first; i < std::min(first + 2, 5u); ++i)
        missing = missing || !there.contains(key(i, "full")) || !there.contains(key(i));
      if (!missing) continue;
      decoded.push_back(first);
      for (const std::string& method : {std::string("full"), std::string(kSpec)}) {
        if (method == kSpec) bench.decode(*fluxion, {random_prompt(200 + 20 * first, first)}, 2);
        for (std::uint32_t i = first; i < std::min(first + 2, 5u); ++i) {
          if (!there.contains(key(i, method))) run.append(result_of(key(i, method)));
        }
        log.decoded(key(first, method));
      }
    }
    log.arrange();
    run.arrange(keys_in_order(run.manifest(), 2));
    return decoded;
  }

  std::vector<std::uint32_t> resume(std::vector<std::string>* repairs = nullptr) {
    RunFolder run = RunFolder::resume(path(), manifest());
    return go_on(run, repairs);
  }

  std::string make_whole() {
    RunFolder run = RunFolder::create(path(), manifest());
    EXPECT_THAT(go_on(run), ElementsAre(0, 2, 4));
    return text();
  }

  TemporaryFolder root_;
};

TEST_F(HeadErrorRun, KeepsWhatEachBatchShowed) {
  const std::string whole = make_whole();
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 3) << "of fluxion alone";
  const auto errors = read_head_errors(path(), manifest());
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors.at(kSpec).heads, 3u * 2 * 2 * 4);  // batches, steps, layers, query heads
  EXPECT_EQ(errors.at(kSpec).above[0], 0u);           // what a covering line promises
  EXPECT_GT(errors.at(kSpec).error, 0);
  EXPECT_THAT(resume(), IsEmpty());
  EXPECT_EQ(text(), whole);
  Summary summary;
  summary.manifest = manifest();
  summary.methods.resize(2);
  summary.methods[0].label = "full";
  summary.methods[1].label = kSpec;
  const std::string table = head_errors_text(errors, summary, /*markdown=*/true);
  EXPECT_THAT(table, HasSubstr(std::string("| ") + kSpec + " |"));
  EXPECT_THAT(table, ::testing::Not(HasSubstr("| full |")));
  EXPECT_THAT(head_errors_json(errors, manifest()), HasSubstr("\"heads\": 48"));
  EXPECT_EQ(head_errors_text({}, summary, true), "");
}

TEST_F(HeadErrorRun, MissingAndDamagedLinesAreMadeAgain) {
  const std::string whole = make_whole();
  const std::size_t second = whole.find('\n') + 1, third = whole.find('\n', second) + 1;
  const std::string without = whole.substr(0, second) + whole.substr(third);
  const std::string other = std::string(whole).replace(whole.find("\"index\":2"), 9, "\"index\":7");
  const std::string odd = std::string(whole).replace(whole.find("\"index\":2"), 9, "\"index\":3");
  const struct {
    std::string text;
    std::vector<std::uint32_t> decoded;
    std::string said;  // empty: nothing
  } cases[] = {
      {"", {0, 2, 4}, ""},
      {without, {2}, ""},
      {whole.substr(0, whole.size() - 9), {4}, ""},
      {whole.substr(0, second) + "{\"task\": 3}\n" + whole.substr(third), {2}, "errors.jsonl:2: the field 'task'"},
      {whole.substr(0, second) + whole, {}, "errors.jsonl:2: the same sample is already on line 1"},
      {other, {2}, "errors.jsonl:2: sample 7 of niah_single_1 at length 512"},
      {odd, {2}, ""}};
  for (const auto& c : cases) {
    write_bytes(path() / "errors.jsonl", c.text);
    std::vector<std::string> repairs;
    EXPECT_EQ(resume(&repairs), c.decoded) << c.text;
    EXPECT_EQ(text(), whole);
    ASSERT_EQ(repairs.size(), c.said.empty() ? 0u : 1u) << c.text;
    if (!c.said.empty()) {
      EXPECT_THAT(repairs[0], AllOf(HasSubstr(c.said), HasSubstr("errors.jsonl.damaged")));
    }
  }
}

TEST_F(HeadErrorRun, ABatchThatIsDecodedAgainHasOneLine) {
  const std::string whole = make_whole();
  std::string samples = read_bytes(path() / "samples.jsonl");
  const std::size_t lost = samples.find("\"index\":3"), begin = samples.rfind('\n', lost) + 1;
  write_bytes(path() / "samples.jsonl", std::string(samples).erase(begin, samples.find('\n', lost) + 1 - begin));
  EXPECT_THAT(resume(), ElementsAre(2));
  EXPECT_EQ(text(), whole);
  EXPECT_EQ(read_bytes(path() / "samples.jsonl"), samples);
}

TEST_F(HeadErrorRun, DamagedLinesAreNamedToReaders) {
  make_whole();
  write_bytes(path() / "errors.jsonl", "{\"task\": 3}\n");
  try {
    read_head_errors(path(), manifest());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("errors.jsonl:1"));
  }
}

}  // namespace
}  // namespace tandem::testing
