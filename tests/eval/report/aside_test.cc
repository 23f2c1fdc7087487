// What --force replaces comes back until the new run has a finished sample, wherever the process was killed.
#include "eval/report/aside.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class Replaced : public ::testing::Test {
 protected:
  Replaced() {
    newer_.command += " --seed 7";
    RunFolder folder = RunFolder::create(path_, earlier_);
    append(folder, 0);
    append(folder, 1);
    samples_ = read_bytes(path_ / "samples.jsonl");
    manifest_ = read_bytes(path_ / "manifest.json");
  }

  static void append(RunFolder& folder, std::uint32_t index) {
    folder.append(example_sample(index));
    folder.append(example_timing(index));
  }

  /// The new run's process is killed when the earlier run lies aside and these lines are written.
  void killed_with(const std::string& samples, const std::string& timings) const {
    { const RunFolder begun = RunFolder::create(path_, newer_, /*force=*/true); }
    EXPECT_TRUE(lies_aside(path_));
    write_bytes(path_ / "samples.jsonl", samples);
    write_bytes(path_ / "timings.jsonl", timings);
    write_bytes(path_ / "errors.jsonl", "of the new run");
  }

  void expect_earlier() const {
    EXPECT_EQ(read_bytes(path_ / "manifest.json"), manifest_);
    EXPECT_EQ(read_bytes(path_ / "samples.jsonl"), samples_);
    EXPECT_FALSE(fs::exists(path_ / "errors.jsonl"));
    EXPECT_FALSE(fs::exists(path_ / kAside));
  }

  TemporaryFolder root_;
  fs::path path_ = root_ / "run";
  Manifest earlier_ = example_manifest(), newer_ = example_manifest();
  std::string samples_, manifest_;
};

TEST_F(Replaced, ComesBackWhereTheKilledRunHasNoFinishedSample) {
  const std::string sample = to_line(example_sample(0)), timing = to_line(example_timing(0));
  const std::pair<std::string, std::string> left[] = {
      {"", ""},
      {sample.substr(0, 50), ""},
      {sample + "\n", ""},
      {sample + "\n", timing.substr(0, 50)},
      {"?" + sample + "\n", timing + "\n"},
      {sample + "\n", to_line(example_timing(3)) + "\n"},
  };
  for (const auto& [samples, timings] : left) {
    killed_with(samples, timings);
    RunFolder::check_new(path_, /*force=*/true);
    expect_earlier();
    killed_with(samples, timings);
    EXPECT_THAT([&] { RunFolder::create(path_, newer_); }, ThrowsMessage<InputError>(HasSubstr("already holds a run")));
    expect_earlier();
    killed_with(samples, timings);
    EXPECT_EQ(RunFolder::resume(path_, earlier_).finished().size(), 2u);
    expect_earlier();
    killed_with(samples, timings);
    EXPECT_THAT([&] { RunFolder::resume(path_, newer_); }, ThrowsMessage<InputError>(HasSubstr("by another command")));
    expect_earlier();
  }
}

TEST_F(Replaced, IsNotLostByBeginningTwice) {
  killed_with("", "");
  killed_with("", "");
  RunFolder::create(path_, newer_, /*force=*/true).discard();
  expect_earlier();
}

TEST_F(Replaced, IsGoneWhenTheNewRunWithAFinishedSampleGoesOn) {
  killed_with(to_line(example_sample(3)) + "\n", to_line(example_timing(3)) + "\n");
  RunFolder::check_new(path_, /*force=*/true);
  EXPECT_TRUE(lies_aside(path_)) << "a check removes nothing";
  RunFolder folder = RunFolder::resume(path_, newer_);
  EXPECT_EQ(folder.finished().size(), 1u);
  folder.keep();
  EXPECT_FALSE(fs::exists(path_ / kAside));
  EXPECT_EQ(RunFolder::open(path_).manifest().command, newer_.command);
}

TEST_F(Replaced, AndWhatIsInFrontStayWhereNobodyKnowsWhatThatIs) {
  killed_with("", "");
  write_bytes(path_ / "manifest.json", "{}");
  EXPECT_THAT([&] { RunFolder::create(path_, newer_, /*force=*/true); },
              ThrowsMessage<InputError>(HasSubstr("holds no run")));
  EXPECT_TRUE(fs::exists(path_ / "errors.jsonl"));
  EXPECT_EQ(read_bytes(path_ / kAside / "samples.jsonl"), samples_);
  // A later program's: it has something where there are lines, whatever these say.
  const std::string later = R"({"schema_version": 99, "command": "tandem compare"})";
  write_bytes(path_ / "manifest.json", later);
  write_bytes(path_ / "samples.jsonl", "{}\n");
  RunFolder::check_new(path_, /*force=*/true);
  EXPECT_EQ(read_bytes(path_ / "manifest.json"), later);
  write_bytes(path_ / "samples.jsonl", "");
  RunFolder::check_new(path_, /*force=*/true);
  expect_earlier();
}

TEST_F(Replaced, StaysAsideWhereItCannotBeMoved) {
  killed_with("", "");
  fs::remove(path_ / "samples.jsonl");
  fs::create_directories(path_ / "samples.jsonl" / "in the way");
  RunFolder::check_new(path_, /*force=*/true);
  EXPECT_EQ(read_bytes(path_ / "manifest.json"), manifest_);
  EXPECT_EQ(read_bytes(path_ / kAside / "samples.jsonl"), samples_);
}

TEST(Aside, NothingLiesThereInAFolderThatIsNone) {
  const TemporaryFolder root;
  const auto never = []() -> bool { throw LogicError("asked"); };
  undo_a_killed_beginning(root / "none", never, {});
  EXPECT_FALSE(lies_aside(root / "none"));
  bring_back(root / "none");
  EXPECT_FALSE(fs::exists(root / "none"));
}

}  // namespace
}  // namespace tandem::eval
