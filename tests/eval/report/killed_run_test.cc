// A process that begins a run, or replaces one, is killed before each of its calls that change a file: what is there is
// always one run or the other, whole.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/common/error.h"
#include "eval/report/run_folder.h"
#include "tests/eval/report/fixtures.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;

enum class End : std::uint8_t { done, killed, unknown };  // unknown: this process may not trace another

/// Calls that change what is in a folder.
bool changes_files(std::uint64_t call) {
  return call == SYS_openat || call == SYS_write || call == SYS_renameat || call == SYS_unlinkat || call == SYS_rmdir;
}

/// Does the work in a process that is killed before such a call, the `number`th from 1 on.
template <class Work>
End killed_before(int number, const Work& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
    raise(SIGSTOP);
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
  // The process stops before and after each call.
  while (WIFSTOPPED(status)) {
    __ptrace_syscall_info call{};
    const long bytes = ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(call), &call);
    const bool before = bytes > 0 && call.op == PTRACE_SYSCALL_INFO_ENTRY;
    if (before && changes_files(call.entry.nr) && --number == 0) kill(child, SIGKILL);
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
  }
  if (WIFSIGNALED(status)) return End::killed;
  return WEXITSTATUS(status) == 0 ? End::done : End::unknown;
}

class KilledRun : public ::testing::Test {
 protected:
  KilledRun() { newer_.command += " --seed 7"; }

  static void append(RunFolder& folder, std::uint32_t index) {
    folder.append(example_sample(index));
    folder.append(example_timing(index));
  }

  /// Begins the newer run with two samples.
  void begin() const {
    RunFolder folder = RunFolder::create(path_, newer_, /*force=*/true);
    folder.write("equal.json", "newer");
    append(folder, 2);
    append(folder, 3);
  }

  /// The runs in the folder that a reader sees: "earlier", "newer" or none, with the number of samples.
  std::string seen() const {
    if (!fs::exists(path_ / "manifest.json")) return "none";
    const RunFolder run = RunFolder::open(path_);
    const bool newer = run.manifest().command == newer_.command;
    for (const SampleKey& key : run.finished()) EXPECT_EQ(key.index >= 2, newer);
    EXPECT_EQ(read_bytes(path_ / "equal.json"), newer ? "newer" : "earlier");
    return (newer ? "newer " : "earlier ") + std::to_string(run.finished().size());
  }

  TemporaryFolder root_;
  fs::path path_ = root_ / "run";
  Manifest earlier_ = example_manifest(), newer_ = example_manifest();
};

TEST_F(KilledRun, ReplacesAnEarlierOneOrLeavesItWhole) {
  const fs::path kept = root_ / "kept";
  {
    RunFolder folder = RunFolder::create(kept, earlier_);
    folder.write("equal.json", "earlier");
    append(folder, 0);
    append(folder, 1);
  }
  write_bytes(kept / "notes.txt", "mine");
  std::map<std::string, int> found;
  const fs::path halfway = root_ / "halfway";
  End end = End::killed;
  for (int number = 1; end == End::killed; ++number) {
    fs::remove_all(path_);
    fs::copy(kept, path_);
    end = killed_before(number, [&] { begin(); });
    if (end == End::unknown) GTEST_SKIP() << "this process may not trace another";
    if (++found[seen()]; seen() == "none" && !fs::exists(halfway)) fs::copy(path_, halfway);
    // Whatever looks at the folder next ends what was begun.
    EXPECT_NO_THROW(RunFolder::check_new(path_, /*force=*/true));
    const std::string there = seen();
    EXPECT_TRUE(there == "earlier 2" || there == "newer 1" || there == "newer 2") << there << ", call " << number;
    EXPECT_NO_THROW(RunFolder::resume(path_, there == "earlier 2" ? earlier_ : newer_)) << number;
    EXPECT_EQ(read_bytes(path_ / "notes.txt"), "mine");
    begin();
    EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 5) << "manifest, samples, timings, equal and notes";
  }
  EXPECT_GT(found["earlier 2"], 5);
  EXPECT_GT(found["newer 1"], 1);
  EXPECT_GT(found["newer 2"], 0);
  EXPECT_GT(found["none"], 2) << "between the two";
  // Also where the one that ends it is killed.
  end = End::killed;
  for (int number = 1; end == End::killed; ++number) {
    fs::remove_all(path_);
    fs::copy(halfway, path_);
    end = killed_before(number, [&] { RunFolder::check_new(path_, /*force=*/true); });
    RunFolder::check_new(path_, /*force=*/true);
    EXPECT_EQ(seen(), "newer 1") << number;
  }
}

TEST_F(KilledRun, BeginsOrCanBegin) {
  End end = End::killed;
  for (int number = 1; end == End::killed; ++number) {
    fs::remove_all(path_);
    end = killed_before(number, [&] { begin(); });
    if (end == End::unknown) GTEST_SKIP() << "this process may not trace another";
    try {
      RunFolder::create(path_, newer_);
    } catch (const InputError& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr("already holds a run")) << number;
      EXPECT_NO_THROW(RunFolder::resume(path_, newer_)) << number;
      EXPECT_GE(RunFolder::open(path_).finished().size(), 1u) << number;
    }
    begin();
    EXPECT_EQ(std::distance(fs::directory_iterator(path_), {}), 4) << number;
  }
}

TEST_F(KilledRun, IsNoRunToReadersWhileItIsReplaced) {
  begin();
  fs::rename(path_ / "manifest.json", path_ / "manifest.json.old");
  EXPECT_THROW(RunFolder::open(path_), InputError);
  EXPECT_NO_THROW(RunFolder::check_new(path_, true)) << "nothing to go on with: it is there again";
  EXPECT_EQ(seen(), "newer 2");
}

}  // namespace
}  // namespace tandem::eval
