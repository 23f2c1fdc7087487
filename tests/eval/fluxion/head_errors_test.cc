// Errors of heads in a run's folder: what is counted, what a run that goes on keeps, and what the table says.
#include "eval/fluxion/head_errors.h"

#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using namespace eval;
using ::testing::HasSubstr;

constexpr const char* kSpec = "fluxion:sinks=16,window=32,heads=oracle,tau=0.05,line=cover";

Manifest manifest() {
  Manifest m;
  m.methods = {{"full", "full", {}, {}}, {kSpec, "fluxion", {}, {}}};
  return m;
}

SampleKey key(std::uint32_t index) {
  return {"ruler", "niah_single_1", 512, index, kSpec};
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

TEST(HeadErrorLog, KeepsWhatEachBatchShowed) {
  const TemporaryFolder folder;
  Bench bench(tiny_model());
  std::map<std::string, HeadErrorCounts> once;
  {
    HeadErrorLog log(folder.path());
    const auto full = log.make("full"), fluxion = log.make(kSpec);
    bench.decode(*full, {random_prompt(200, 1)}, 2);
    SampleKey of_full = key(0);
    of_full.method = "full";
    log.decoded(of_full);  // nothing is seen of it
    bench.decode(*fluxion, {random_prompt(200, 1)}, 3);
    log.decoded(key(0));
    once = read_head_errors(folder.path(), manifest());
    ASSERT_EQ(once.size(), 1u);
    EXPECT_EQ(once[kSpec].heads, 3u * 2 * 4);  // steps, layers, query heads
    EXPECT_EQ(once[kSpec].above[0], 0u);       // what a covering line promises
    EXPECT_GT(once[kSpec].error, 0);
  }
  const auto torn = [&] { std::ofstream(folder.path() / "errors.jsonl", std::ios::app) << "{\"task\": \"niah"; };
  torn();  // was being written
  {
    HeadErrorLog log(folder.path());
    const auto fluxion = log.make(kSpec);
    bench.decode(*fluxion, {random_prompt(200, 1)}, 3);
    log.decoded(key(0));  // the run had ended before this batch's results were kept
    bench.decode(*fluxion, {random_prompt(300, 2)}, 1);
    log.decoded(key(1));
  }
  torn();
  const auto both = read_head_errors(folder.path(), manifest());
  EXPECT_EQ(both.at(kSpec).heads, 3u * 2 * 4 + 2 * 4);
  Summary summary;
  summary.manifest = manifest();
  summary.methods.resize(2);
  summary.methods[0].label = "full";
  summary.methods[1].label = kSpec;
  const std::string text = head_errors_text(both, summary, /*markdown=*/true);
  EXPECT_THAT(text, HasSubstr(std::string("| ") + kSpec + " |"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("| full |")));
  EXPECT_THAT(head_errors_json(both, manifest()), HasSubstr("\"heads\": 32"));
  EXPECT_EQ(head_errors_text({}, summary, true), "");
}

TEST(HeadErrorLog, DamagedLinesAreNamed) {
  const TemporaryFolder folder;
  write_bytes(folder.path() / "errors.jsonl", "{\"task\": 3}\n");
  try {
    read_head_errors(folder.path(), manifest());
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("errors.jsonl:1"));
  }
}

}  // namespace
}  // namespace tandem::testing
