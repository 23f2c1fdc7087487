// Runs on a disk that gets full, and runs whose files are damaged: what was finished stays, and a resumed run ends with
// the bytes of one that nothing happened to.
#include <algorithm>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>

#include "engine/common/paths.h"
#include "tests/cli/background.h"
#include "tests/cli/program_fixture.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

constexpr const char* kRun = "compare --no-plot --quiet --tasks niah_single_1 --lengths 256 --methods full,hgca ";
constexpr const char* kEarlier = "--samples 2 --seed 7 ";  // than the run of kRun: other samples

class SurvivalProgram : public ProgramTest {
 protected:
  /// A run of `samples` samples that nothing happens to, for comparison.
  void make_whole(int samples) {
    command_ = kRun + fmt::format("--samples {} ", samples);
    ASSERT_EQ(cli::run(command_ + "--out " + folder("whole")).code, 0);
    const std::size_t all = cli::lines(bytes(folder("whole"), "samples.jsonl"));
    ASSERT_EQ(all, static_cast<std::size_t>(2 * samples));
  }

  /// A run that ended for want of room: one sentence, whole lines, a run that can be resumed.
  void expect_stopped(const cli::Outcome& outcome, const std::string& run, const char* why) {
    EXPECT_EQ(outcome.code, 3) << outcome.text;
    EXPECT_THAT(outcome.text,
                AllOf(HasSubstr("cannot be written"), HasSubstr(why), HasSubstr("--resume --out " + run)));
    EXPECT_EQ(cli::lines(outcome.text), 1u) << outcome.text;
    for (const char* file : {"samples.jsonl", "timings.jsonl"}) {
      const std::string text = bytes(run, file);
      EXPECT_TRUE(text.empty() || text.back() == '\n') << file;
    }
  }

  void expect_resumed_whole(const std::string& run) {
    const cli::Outcome resumed = cli::run(command_ + "--resume --out " + run);
    ASSERT_EQ(resumed.code, 0) << resumed.text;
    for (const char* file : {"samples.jsonl", "timings.jsonl"})
      EXPECT_EQ(bytes(run, file), bytes(folder("whole"), file)) << file;
    const auto summary = [&](const std::string& of) {
      auto json = parse_ordered_json(bytes(of, "summary.json"), "JSON");
      json.erase("command");  // the room for KV may be another
      return json;
    };
    EXPECT_EQ(summary(run), summary(folder("whole")));
  }

  std::string command_;
};

TEST_F(SurvivalProgram, NoRoomForMoreSamples) {
  make_whole(8);
  const std::string run = folder("a");
  expect_stopped(cli::run_limited(command_ + "--out " + run, 4096), run, "File too large");
  const std::size_t kept = cli::lines(bytes(run, "samples.jsonl"));
  EXPECT_GE(kept, 2u);
  EXPECT_LT(kept, 16u);
  expect_stopped(cli::run_limited(command_ + "--resume --out " + run, 4096), run, "File too large");
  EXPECT_EQ(cli::lines(bytes(run, "timings.jsonl")),
            cli::lines(bytes(run, "samples.jsonl")) - 1);  // nothing is lost or doubled
  expect_resumed_whole(run);
}

TEST_F(SurvivalProgram, NoRoomForMoreSamplesUnderForce) {
  make_whole(8);
  const std::string run = folder("a");
  ASSERT_EQ(cli::run(kRun + std::string(kEarlier) + "--out " + run).code, 0);
  const cli::Outcome stopped = cli::run_limited(command_ + "--force --out " + run, 4096);
  expect_stopped(stopped, run, "File too large");
  EXPECT_THAT(stopped.text, HasSubstr("--resume --out " + run + " in place of --force."));
  EXPECT_GE(cli::lines(bytes(run, "samples.jsonl")), 2u);
  expect_resumed_whole(run);
}

TEST_F(SurvivalProgram, NoRoomForTheFirstSample) {
  make_whole(2);
  const std::string run = folder("a");
  ASSERT_EQ(cli::run(kRun + std::string(kEarlier) + "--out " + run).code, 0);
  const auto before = contents(run);
  for (const rlim_t limit : {rlim_t{100}, rlim_t{fs::file_size(folder("whole") + "/manifest.json") / 2}}) {
    const cli::Outcome fresh = cli::run_limited(command_ + "--out " + folder("b"), limit);
    EXPECT_EQ(fresh.code, 3);
    EXPECT_THAT(fresh.text, AllOf(HasSubstr("cannot be written (File too large)"), Not(HasSubstr("--resume"))));
    EXPECT_FALSE(fs::exists(folder("b")));
    const cli::Outcome forced = cli::run_limited(command_ + "--force --out " + run, limit);
    EXPECT_EQ(forced.code, 3);
    EXPECT_EQ(contents(run), before);
  }
}

TEST_F(SurvivalProgram, NoRoomForTheReport) {
  make_whole(2);
  const std::string run = folder("a");
  const auto size = [&](const char* file) { return fs::file_size(folder("whole") + "/" + file); };
  const rlim_t largest = std::max(size("timings.jsonl"), size("manifest.json"));
  ASSERT_LT(largest, size("summary.json"));
  const cli::Outcome outcome = cli::run_limited(command_ + "--out " + run, largest);
  expect_stopped(outcome, run, "File too large");
  EXPECT_THAT(outcome.text, HasSubstr("All samples are finished and kept"));
  EXPECT_FALSE(fs::exists(run + "/summary.json"));
  EXPECT_FALSE(fs::exists(run + "/summary.json.new"));
  expect_resumed_whole(run);
}

constexpr const char* kSlow =
    "compare --no-plot --quiet --tasks niah_single_1 --lengths 8K --samples 1 --methods full ";

TEST_F(SurvivalProgram, AnEndBeforeTheFirstSampleLeavesTheEarlierRun) {
  const std::string run = folder("a"), fresh = folder("new/../new/b"), said = folder("said");
  ASSERT_EQ(cli::run(kRun + std::string(kEarlier) + "--out " + run).code, 0);
  const auto before = contents(run);
  for (const int signal : {SIGINT, SIGKILL}) {
    for (const std::string& out : {run, fresh}) {
      const pid_t child = cli::start(kSlow + ("--force --out " + out), said);
      ASSERT_GT(child, 0);
      if (out == run)
        ASSERT_TRUE(cli::wait_until_locked(run)) << "/proc/locks does not have it";
      else
        cli::wait_for_file(folder("new/b"));
      kill(child, signal);
      EXPECT_EQ(cli::exit_code_of(child), signal == SIGINT ? 3 : 128 + SIGKILL);
      if (signal != SIGINT) continue;
      EXPECT_THAT(read_bytes(said), AllOf(HasSubstr("before a sample was finished"), Not(HasSubstr("--resume"))));
      EXPECT_FALSE(fs::exists(folder("new")));
    }
    EXPECT_EQ(contents(run), before);
  }
  EXPECT_TRUE(fs::is_empty(folder("new/b")));
  EXPECT_EQ(cli::run(kRun + std::string(kEarlier) + "--out " + fresh).code, 0) << "an empty folder is free";
  EXPECT_EQ(bytes(folder("new/b"), "samples.jsonl"), bytes(run, "samples.jsonl"));
}

TEST_F(SurvivalProgram, AFolderThatIsMovedRemovedOrEmptiedIsASentence) {
  make_whole(24);
  const std::string run = folder("a"), moved = folder("moved");
  const auto harmed = [&](const std::function<void()>& harm, const std::string& says) {
    const std::string said = folder("said");
    const pid_t child = cli::start(command_ + "--out " + run, said);
    cli::wait_for_lines(run + "/timings.jsonl", 2);
    harm();
    EXPECT_EQ(cli::exit_code_of(child), 3);
    EXPECT_EQ(cli::lines(read_bytes(said)), 1u) << read_bytes(said);
    EXPECT_THAT(read_bytes(said), AllOf(HasSubstr(run), HasSubstr(says), Not(HasSubstr("samples are kept"))));
  };
  harmed([&] { fs::rename(run, moved); }, "was moved to '" + moved + "'");
  EXPECT_FALSE(fs::exists(run));
  expect_resumed_whole(moved);
  harmed([&] { fs::remove_all(run); }, "was removed");
  EXPECT_FALSE(fs::exists(run));
  harmed([&] { fs::remove(run + "/samples.jsonl"); }, "samples.jsonl' was removed");
  expect_resumed_whole(run);
  fs::remove_all(run);
  harmed(
      [&] {
        for (const auto& entry : fs::directory_iterator(run)) fs::remove(entry.path());
      },
      "was removed");
  EXPECT_EQ(cli::run(command_ + "--out " + run).code, 0) << "an empty folder is free";
}

TEST_F(SurvivalProgram, TooLittleRoomForALaterMethodKeepsFinishedSamples) {
  const std::string command =
      "compare --no-plot --quiet --tasks niah_single_1 --lengths 256 --samples 2 --methods full,full-host ";
  ASSERT_EQ(cli::run(command + "--out " + folder("whole")).code, 0);
  const std::string run = folder("a");
  ASSERT_EQ(cli::run(kRun + std::string(kEarlier) + "--out " + run).code, 0);
  for (const char* begin : {"--force", "--resume"}) {
    const cli::Outcome small = cli::run(command + begin + " --host-kv 64K --out " + run, cli::kOnlyErrors);
    EXPECT_EQ(small.code, 2) << small.text;
    EXPECT_EQ(cli::lines(small.text), 1u) << small.text;
    EXPECT_THAT(small.text, AllOf(HasSubstr("host KV store is full"), HasSubstr("Finished samples are kept"),
                                  HasSubstr("--resume --out " + run)));
    EXPECT_EQ(cli::lines(bytes(run, "samples.jsonl")), 1u);  // full's
  }
  command_ = command + "--host-kv 1G --device-kv 1G ";
  expect_resumed_whole(run);
  EXPECT_THAT(bytes(run, "manifest.json"), AllOf(HasSubstr("--host-kv 1G"), Not(HasSubstr("64K"))));
}

TEST_F(SurvivalProgram, NoSampleCountsWhoseWeightsChanged) {
  const fs::path model = root_.path() / "model", weights = model / "model.safetensors";
  fs::copy(data_path("models/tiny"), model);
  const std::string sound = read_bytes(weights), run = folder("a"), said = folder("said");
  std::string other = sound;
  other[other.size() / 2] = static_cast<char>(~other[other.size() / 2]);
  command_ = kRun + fmt::format("--samples 40 --model {} ", model.string());
  ASSERT_EQ(cli::run(command_ + "--out " + folder("whole")).code, 0);
  const auto finished = [&] { return cli::lines_of(run + "/timings.jsonl"); };
  // Begins the run or goes on with it, and does harm when two more samples are finished.
  const auto harmed = [&](const char* begin, const std::function<void(pid_t)>& harm) {
    const std::size_t before = finished();
    const pid_t child = cli::start(command_ + begin + " --out " + run, said);
    cli::wait_for_lines(run + "/timings.jsonl", before + 2);
    harm(child);
    EXPECT_EQ(cli::exit_code_of(child), 3);
  };
  const auto write_over = [&](pid_t) {
    std::fstream file(weights, std::ios::in | std::ios::out | std::ios::binary);
    file << other;
  };
  const auto replace = [&](pid_t) {
    write_bytes(root_ / "other", other);
    fs::rename(root_ / "other", weights);
  };
  harmed("", write_over);
  EXPECT_THAT(read_bytes(said), AllOf(HasSubstr(weights.string()), HasSubstr("No sample of this process counts."),
                                      HasSubstr("--resume --out " + run)));
  EXPECT_EQ(cli::lines(read_bytes(said)), 1u) << read_bytes(said);
  EXPECT_EQ(finished(), 0u);
  EXPECT_EQ(cli::run(command_ + "--resume --out " + run).code, 2) << "other weights than the run has";
  write_bytes(weights, sound);
  harmed("--resume", [](pid_t child) { kill(child, SIGINT); });
  const std::string kept = bytes(run, "samples.jsonl");
  EXPECT_GE(finished(), 2u);
  harmed("--resume", replace);
  EXPECT_THAT(read_bytes(said), HasSubstr("No sample of this process counts; those before are kept."));
  EXPECT_EQ(bytes(run, "samples.jsonl"), kept);
  write_bytes(weights, sound);
  expect_resumed_whole(run);
}

/// A disk of 64 KB; `mounted` false where this process may not mount one.
class SmallDisk {
 public:
  explicit SmallDisk(fs::path at) : at_(std::move(at)) {
    fs::create_directories(at_);
    mounted = mount("tandem-test", at_.c_str(), "tmpfs", 0, "size=64k") == 0;
  }
  ~SmallDisk() {
    if (mounted) umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool grow() { return mount("tandem-test", at_.c_str(), "tmpfs", MS_REMOUNT, "size=4m") == 0; }
  bool mounted = false;

 private:
  fs::path at_;
};

TEST_F(SurvivalProgram, AFullDisk) {
  make_whole(40);
  for (const bool force : {false, true}) {
    SmallDisk disk(root_.path() / "disk");
    if (!disk.mounted)
      GTEST_SKIP() << "this process may not mount a small disk; limits on the size of files are tested";
    const std::string run = folder("disk/run");
    if (force) {
      ASSERT_EQ(cli::run(kRun + std::string(kEarlier) + "--out " + run).code, 0);
    }
    expect_stopped(cli::run(command_ + (force ? "--force --out " : "--out ") + run, cli::kOnlyErrors), run,
                   "No space left on device");
    const std::size_t kept = cli::lines(bytes(run, "timings.jsonl"));
    EXPECT_GE(kept, 2u);
    EXPECT_LT(kept, 80u);
    expect_stopped(cli::run(command_ + "--resume --out " + run, cli::kOnlyErrors), run, "No space left on device");
    EXPECT_GE(cli::lines(bytes(run, "timings.jsonl")), kept);
    ASSERT_TRUE(disk.grow());
    expect_resumed_whole(run);
  }
}

TEST_F(SurvivalProgram, WeightsThatAreCutWhileTheyAreUsed) {
  const fs::path model = root_ / "model";
  fs::copy(data_path("models/tiny"), model);
  const std::string weights = read_bytes(model / "model.safetensors"), run = folder("a"), errors = folder("errors");
  command_ = kRun + fmt::format("--samples 40 --model {} ", model.string());
  ASSERT_EQ(cli::run(command_ + "--out " + folder("whole")).code, 0);
  for (const std::size_t left : {std::size_t{0}, weights.size() / 2}) {
    const pid_t child = cli::start(command_ + "--out " + run, errors);
    cli::wait_for_lines(run + "/timings.jsonl", 1);
    fs::resize_file(model / "model.safetensors", left);
    ASSERT_TRUE(cli::ends_within(child, std::chrono::seconds(10)));
    EXPECT_EQ(cli::exit_code_of(child), 3);
    const std::string said = read_bytes(errors);
    const std::string file = model.string() + "/model.safetensors";
    EXPECT_THAT(said, AllOf(AnyOf(HasSubstr(file + " became shorter while it was used"),
                                  HasSubstr(file + " were replaced, or changed their size")),
                            HasSubstr("--resume --out " + run)));
    EXPECT_EQ(cli::lines(said), 1u) << said;
    EXPECT_LT(cli::lines(bytes(run, "timings.jsonl")), 80u);
    write_bytes(model / "model.safetensors", weights);
    expect_resumed_whole(run);
    fs::remove_all(run);
  }
}

TEST_F(SurvivalProgram, DamagedLinesAreRunAgain) {
  make_whole(4);
  const std::string run = folder("a");
  fs::copy(folder("whole"), run);
  std::string text = bytes(run, "samples.jsonl");
  const std::size_t begin = text.find('\n') + 1, end = text.find('\n', begin);
  const std::string damaged = text.substr(begin, 50) + std::string(9, '\0');
  write_bytes(run + "/samples.jsonl", text.replace(begin, end - begin, damaged));
  const cli::Outcome said = cli::run(command_ + "--resume --out " + run, cli::kOnlyErrors);
  EXPECT_EQ(said.code, 0);
  EXPECT_EQ(cli::lines(said.text), 1u) << said.text;
  EXPECT_THAT(said.text, AllOf(HasSubstr(run + "/samples.jsonl:2: not valid JSON from byte 51"), HasSubstr("run again"),
                               HasSubstr(run + "/samples.jsonl.damaged")));
  EXPECT_EQ(bytes(run, "samples.jsonl.damaged"), damaged + "\n");
  for (const char* file : {"samples.jsonl", "timings.jsonl", "summary.json"})
    EXPECT_EQ(bytes(run, file), bytes(folder("whole"), file)) << file;
  const cli::Outcome again = cli::run(command_ + "--resume --out " + run, cli::kOnlyErrors);
  EXPECT_EQ(again.text, "");  // said once
}

TEST_F(SurvivalProgram, DamagedManifestAndSummary) {
  make_whole(2);
  const std::string run = folder("a");
  fs::copy(folder("whole"), run);
  write_bytes(run + "/summary.json", "{\"damaged");
  expect_resumed_whole(run);  // the summary follows from the samples
  const std::string manifest = bytes(run, "manifest.json");
  write_bytes(run + "/manifest.json", manifest.substr(0, 300));
  const cli::Outcome refused = cli::run(command_ + "--resume --out " + run, cli::kOnlyErrors);
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(cli::lines(refused.text), 1u) << refused.text;
  EXPECT_THAT(refused.text, AllOf(HasSubstr(run + "/manifest.json: not valid JSON from byte 301"),
                                  HasSubstr("put a copy of the file back")));
  write_bytes(run + "/manifest.json", manifest);
  EXPECT_EQ(cli::run(command_ + "--resume --out " + run).code, 0);
}

}  // namespace
}  // namespace tandem::testing
