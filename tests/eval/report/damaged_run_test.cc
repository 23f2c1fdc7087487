// Runs whose files were damaged or whose disk was full: what is lost is run again, and the end is the same bytes.
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "eval/report/run_folder.h"
#include "tests/eval/report/file_size_limit.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::ThrowsMessage;

/// Four samples under two methods, in batches of two.
class DamagedRun : public ::testing::Test {
 protected:
  DamagedRun() {
    RunFolder folder = RunFolder::create(path_, example_manifest());
    finish(folder);
    samples_ = read_bytes(path_ / "samples.jsonl");
    timings_ = read_bytes(path_ / "timings.jsonl");
  }

  /// Runs what is not there, as run_compare() does.
  static void finish(RunFolder& folder) {
    const auto order = keys_in_order(example_manifest(), 2);
    const auto done = folder.finished();
    for (const SampleKey& key : order) {
      if (done.contains(key)) continue;
      folder.append(example_sample(key.index, key.method));
      folder.append(example_timing(key.index, key.method));
    }
    folder.arrange(order);
  }

  /// Damages, resumes, finishes: everything is as it was. Returns what was said; `redone`: samples run again.
  std::vector<std::string> repaired(const char* file, const std::string& text, std::size_t redone) {
    write_bytes(path_ / file, text);
    RunFolder folder = RunFolder::resume(path_, example_manifest());
    EXPECT_EQ(folder.finished().size(), 8 - redone);
    std::vector<std::string> said = folder.repairs();
    finish(folder);
    EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), samples_);
    EXPECT_EQ(read_bytes(path_ / "timings.jsonl"), timings_);
    return said;
  }

  static std::string line(const std::string& text, std::size_t number) {
    std::size_t begin = 0;
    for (std::size_t i = 1; i < number; ++i) begin = text.find('\n', begin) + 1;
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  static std::string with_line(std::string text, std::size_t number, const std::string& other) {
    const std::string old = line(text, number);
    return text.replace(text.find(old), old.size(), other);
  }

  TemporaryFolder root_;
  fs::path path_ = root_ / "run";
  std::string samples_, timings_;
};

TEST_F(DamagedRun, OrderIsThatOfTheLoops) {
  std::vector<std::string> order;
  for (const SampleKey& key : keys_in_order(example_manifest(), 3))
    order.push_back(key.method.substr(0, 1) + std::to_string(key.index));
  EXPECT_THAT(order, ::testing::ElementsAre("f0", "f1", "f2", "h0", "h1", "h2", "f3", "h3"));
}

TEST_F(DamagedRun, OneLineCostsOneSample) {
  const std::string third = line(samples_, 3);
  const std::vector<std::pair<std::string, const char*>> damages = {
      {"broken", "samples.jsonl:3: not valid JSON from byte 1 of 6 on"},
      {"", "not valid JSON"},
      {third.substr(0, 40), "not valid JSON from byte 41 of 40 on"},
      {std::string(60, '\0'), "not valid JSON from byte 1"},
      {third.substr(0, 30) + std::string(5, '\0') + third.substr(35), "not valid JSON"},
      {third.substr(0, 30) + "\xff" + third.substr(31), "not valid JSON"},
      {"[1, 2]", "an object was expected"},
      {std::string(third).replace(third.find("\"score\":0"), 9, "\"score\":7"), "'score'"},
      {std::string(third).replace(third.find("\"length\""), 8, "\"lengtx\""), "'length' is missing"},
      {std::string(third).replace(third.find("niah"), 4, "nibh"), "the task 'nibh_single_1' is not in"},
      {std::string(third).replace(third.find("\"index\":0"), 9, "\"index\":9"), "the index '9' is not in"},
      {"{\"benchmark\":1e999}", "a number is too large"},
  };
  std::string aside;
  for (const auto& [damaged, what] : damages) {
    const auto said = repaired("samples.jsonl", with_line(samples_, 3, damaged), 1);
    ASSERT_EQ(said.size(), 1u) << damaged;
    EXPECT_THAT(said[0], AllOf(HasSubstr("samples.jsonl:3"), HasSubstr(what), HasSubstr("samples.jsonl.damaged"),
                               HasSubstr("run again")));
    EXPECT_THAT(said[0], Not(HasSubstr("json.exception")));
    aside += damaged + "\n";
    EXPECT_EQ(read_bytes(path_ / "samples.jsonl.damaged"), aside);
  }
}

TEST_F(DamagedRun, ATimingCostsItsSampleToo) {
  const auto said = repaired("timings.jsonl", with_line(timings_, 5, "?"), 1);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], AllOf(HasSubstr("timings.jsonl:5"), HasSubstr("timings.jsonl.damaged")));
  EXPECT_EQ(read_bytes(path_ / "timings.jsonl.damaged"), "?\n");
}

TEST_F(DamagedRun, ACopyOfALineIsTakenOut) {
  const auto said = repaired("samples.jsonl", samples_ + line(samples_, 2) + "\n", 0);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], AllOf(HasSubstr("samples.jsonl:9"), HasSubstr("already on line 2"), HasSubstr("copy"),
                             Not(HasSubstr("run again"))));
}

TEST_F(DamagedRun, LinesThatContradictEachOtherAreBothRunAgain) {
  std::string other = line(samples_, 2);
  other.replace(other.find("\"score\":0.3333333333333333"), 26, "\"score\":1.0");
  const auto said = repaired("samples.jsonl", samples_ + other + "\n", 1);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_THAT(said[0], AllOf(HasSubstr("samples.jsonl:2"), HasSubstr("line 9 says something else")));
  EXPECT_THAT(said[1], AllOf(HasSubstr("samples.jsonl:9"), HasSubstr("already on line 2")));
  EXPECT_EQ(read_bytes(path_ / "samples.jsonl.damaged"), line(samples_, 2) + "\n" + other + "\n");
}

TEST_F(DamagedRun, AnyLossAtAnyPlaceEndsWithTheSameBytes) {
  // Bytes zeroed, cut out or doubled anywhere, newlines too; some of it gives sound lines in another notation.
  for (std::size_t at = 0; at < samples_.size(); at += 331) {
    for (const int kind : {0, 1, 2}) {
      std::string text = samples_;
      const std::size_t size = std::min<std::size_t>(64, text.size() - at);
      if (kind == 0) text.replace(at, size, std::string(size, '\0'));
      if (kind == 1) text.erase(at, size);
      if (kind == 2) text.insert(at, text.substr(at, size));
      write_bytes(path_ / "samples.jsonl", text);
      RunFolder folder = RunFolder::resume(path_, example_manifest());
      EXPECT_GE(folder.finished().size(), 4u) << at << " " << kind;
      finish(folder);
      ASSERT_EQ(read_bytes(path_ / "samples.jsonl"), samples_) << at << " " << kind;
      ASSERT_EQ(read_bytes(path_ / "timings.jsonl"), timings_) << at << " " << kind;
    }
  }
  std::string spaced = samples_;
  spaced.insert(spaced.find(','), " ");  // another notation is the same line
  EXPECT_TRUE(repaired("samples.jsonl", spaced, 0).empty());
}

TEST_F(DamagedRun, AnotherCommandChangesNothing) {
  const std::string damaged = "broken\n" + samples_ + "half";
  write_bytes(path_ / "samples.jsonl", damaged);
  Manifest other = example_manifest();
  other.command += " --seed 7";
  EXPECT_THAT([&] { RunFolder::resume(path_, other); },
              ThrowsMessage<InputError>(HasSubstr("made by another command")));
  EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), damaged);
  EXPECT_FALSE(fs::exists(path_ / "samples.jsonl.damaged"));
}

TEST_F(DamagedRun, AnotherClockProfileOrMethodChangesNothing) {
  const std::string damaged = "broken\n" + samples_ + "half";
  write_bytes(path_ / "samples.jsonl", damaged);
  Manifest clock = example_manifest(), profile = clock, file = clock, option = clock;
  clock.clock = "measured on a CPU, 1 threads";
  profile.hardware_hash = "h2";
  file.methods[1].content = "c2";
  option.methods[1].options[0].second = "0.3";  // by another default
  const std::pair<const Manifest*, const char*> others[] = {{&clock, "here they would be measured on a CPU, 1 threads"},
                                                            {&profile, "profile 'h200' has changed"},
                                                            {&file, "Method 'hybrid:budget=0.2' is another one"},
                                                            {&option, "Method 'hybrid:budget=0.2' is another one"}};
  for (const auto& [manifest, says] : others) {
    EXPECT_THAT([&] { RunFolder::resume(path_, *manifest); }, ThrowsMessage<InputError>(HasSubstr(says)));
    EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), damaged);
  }
  // What an older program did not write down is not known to differ.
  Manifest older = example_manifest();
  older.schema_version = 4;
  write_bytes(path_ / "manifest.json", to_json_text(older));
  EXPECT_EQ(RunFolder::resume(path_, profile).finished().size(), 8u);
}

TEST_F(DamagedRun, AManifestIsASentence) {
  const std::string good = read_bytes(path_ / "manifest.json");
  for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2), std::string(50, '\0'),
                                 std::string(good).replace(good.find("\"seed\""), 6, "\"sead\"")}) {
    write_bytes(path_ / "manifest.json", bad);
    for (const bool resume : {false, true}) {
      EXPECT_THAT([&] { resume ? RunFolder::resume(path_, example_manifest()) : RunFolder::open(path_); },
                  ThrowsMessage<InputError>(AllOf(HasSubstr("manifest.json: "), HasSubstr("copy of the file back"),
                                                  Not(HasSubstr("json.exception")))));
    }
  }
  const std::string version = "version\": " + std::to_string(kSchemaVersion);
  write_bytes(path_ / "manifest.json", std::string(good).replace(good.find(version), version.size(), "version\": 99"));
  EXPECT_THAT([&] { RunFolder::open(path_); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("Use the program that made"), Not(HasSubstr("copy")))));
  EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), samples_);
}

TEST_F(DamagedRun, AFullDiskAtTheBeginningLeavesTheEarlierRun) {
  const FileSizeLimit limit(100);
  EXPECT_THAT([&] { begun_run(path_, example_manifest(), true); }, ThrowsMessage<RunError>(HasSubstr("manifest.json")));
  EXPECT_THROW(begun_run(root_ / "b", example_manifest()), RunError);
  EXPECT_FALSE(fs::exists(root_ / "b"));
  EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), samples_);
  EXPECT_EQ(RunFolder::open(path_).samples().size(), 8u);
  EXPECT_FALSE(fs::exists(path_ / "manifest.json.new"));
}

TEST_F(DamagedRun, AFullDiskLeavesDamageAsItIs) {
  const std::string damaged = "broken\n" + samples_;
  write_bytes(path_ / "samples.jsonl", damaged);
  const FileSizeLimit limit(100);
  EXPECT_THROW(RunFolder::resume(path_, example_manifest()), RunError);
  EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), damaged);
}

TEST_F(DamagedRun, AFailedFirstSampleLeavesTheEarlierRun) {
  {
    RunFolder again = RunFolder::create(path_, example_manifest(), true);
    const FileSizeLimit limit(100);
    again.append(example_sample(0));
    EXPECT_THROW(again.append(example_timing(0)), RunError);
    EXPECT_FALSE(again.begun());
  }
  EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), samples_);
}

}  // namespace
}  // namespace tandem::eval
