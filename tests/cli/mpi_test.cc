// Two processes: the second is the cache rank. The same tokens as one process.
#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <thread>

#include "tests/cli/program.h"

namespace tandem::cli {
namespace {

namespace fs = std::filesystem;

std::string content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

Outcome shell(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1 </dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  Outcome outcome;
  std::array<char, 4096> buffer{};
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), pipe))
    outcome.text.append(buffer.data(), got);
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

const std::string kCompare = "compare --methods asyncspade:budget=128,place=peer,window=8";
const std::string kHere = " --tasks niah_single_1 --lengths 512 --quiet --no-plot --force --threads 1 --out ";
const std::string kShort = " --hw asyncspade-a100" + kHere;
const std::string kRun = kCompare + " --samples 2" + kShort;
const std::string kTwo = "'" TANDEM_MPIEXEC "' --allow-run-as-root --oversubscribe -n ";

TEST(Mpi, TwoProcessesGiveTheTokensOfOne) {
  const fs::path folder = fs::path(::testing::TempDir()) / "mpi_test";
  fs::remove_all(folder);
  const Outcome one = run(kRun + "'" + (folder / "one").string() + "'");
  ASSERT_EQ(one.code, 0) << one.text;
  const Outcome two = shell(kTwo + "2 '" TANDEM_PROGRAM "' " + kRun + "'" + (folder / "two").string() + "'");
  ASSERT_EQ(two.code, 0) << two.text;
  const std::string samples = content(folder / "one" / "samples.jsonl");
  EXPECT_THAT(samples, ::testing::HasSubstr("niah_single_1"));
  EXPECT_EQ(content(folder / "two" / "samples.jsonl"), samples);
  EXPECT_EQ(content(folder / "two" / "timings.jsonl"), content(folder / "one" / "timings.jsonl"));
}

// A message per layer, four sequences in each, and lanes that are threads: the simulated device's tokens, of one
// process.
TEST(Mpi, ABatchOnRealThreadsGivesTheTokensOfTheSimulatedDevice) {
  const fs::path folder = fs::path(::testing::TempDir()) / "mpi_batch_test";
  fs::remove_all(folder);
  const std::string batch = kCompare + ",pack=1 --samples 4 --batch 4";
  const Outcome one = run(batch + kShort + "'" + (folder / "sim").string() + "'");
  ASSERT_EQ(one.code, 0) << one.text;
  const Outcome two =
      shell(kTwo + "2 '" TANDEM_PROGRAM "' " + batch + " --device emu" + kHere + "'" + (folder / "emu").string() + "'");
  ASSERT_EQ(two.code, 0) << two.text;
  const std::string samples = content(folder / "sim" / "samples.jsonl");
  EXPECT_EQ(std::count(samples.begin(), samples.end(), '\n'), 4);
  EXPECT_EQ(content(folder / "emu" / "samples.jsonl"), samples);
}

TEST(Mpi, RanksAreShardsThatJoinToTheRunOfOneProcess) {
  const fs::path folder = fs::path(::testing::TempDir()) / "mpi_shard_test";
  fs::remove_all(folder);
  const auto command = [&](const char* out, const char* more) {
    return "compare --methods full,quest:budget=64 --samples 5 --batch 2" + std::string(more) + kShort + "'" +
           (folder / out).string() + "'";
  };
  const Outcome one = run(command("one", ""));
  ASSERT_EQ(one.code, 0) << one.text;
  const Outcome three = shell(kTwo + "3 '" TANDEM_PROGRAM "' " + command("parts", " --shard rank"));
  ASSERT_EQ(three.code, 0) << three.text;
  const Outcome joined =
      run("merge '" + (folder / "parts").string() + "'/* --out '" + (folder / "whole").string() + "'");
  ASSERT_EQ(joined.code, 0) << joined.text;
  for (const char* file : {"samples.jsonl", "timings.jsonl"})
    EXPECT_EQ(content(folder / "whole" / file), content(folder / "one" / file)) << file;
}

/// The process among those that carry `mark` in their arguments which is the cache rank; 0 where there is none yet.
pid_t cache_rank_of(const std::string& mark) {
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (content(entry.path() / "cmdline").find(mark) == std::string::npos) continue;
    if (content(entry.path() / "environ").find("OMPI_COMM_WORLD_RANK=1") != std::string::npos) return std::stoi(name);
  }
  return 0;
}

/// Runs under mpirun, and sends `signal` to the second process when the first sample is finished.
Outcome run_and_stop_the_rank(const std::string& arguments, const fs::path& folder, int signal) {
  std::atomic<bool> over{false};
  std::thread stopper([&] {
    while (!over && content(folder / "samples.jsonl").find('\n') == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (const pid_t rank = over ? 0 : cache_rank_of(folder.string()); rank > 0) kill(rank, signal);
  });
  Outcome outcome = shell(kTwo + "2 '" TANDEM_PROGRAM "' " + arguments + "'" + folder.string() + "'");
  over = true;
  stopper.join();
  return outcome;
}

class MpiLoss : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, MpiLoss, ::testing::Values(SIGKILL, SIGSTOP));

TEST_P(MpiLoss, ARankThatIsGoneEndsTheRunAndFinishedSamplesAreKept) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("mpi_loss_" + std::to_string(GetParam()));
  fs::remove_all(folder);
  const std::string many = "--samples 200 --rank-timeout 1 --lengths 256 ";
  const std::string arguments =
      "compare --methods asyncspade:budget=64,place=peer,window=8 --hw asyncspade-a100 --tasks niah_single_1 --quiet "
      "--no-plot --threads 1 " +
      many + "--out ";
  const Outcome outcome = run_and_stop_the_rank(arguments, folder / "run", GetParam());
  EXPECT_NE(outcome.code, 0) << outcome.text;
  if (GetParam() == SIGSTOP) {
    EXPECT_EQ(outcome.code, 3) << outcome.text;
    EXPECT_THAT(outcome.text, ::testing::HasSubstr("for 1 seconds"));
    EXPECT_THAT(outcome.text, ::testing::HasSubstr("Finished samples are kept"));
  }
  const std::string samples = content(folder / "run" / "samples.jsonl");
  const auto kept = std::count(samples.begin(), samples.end(), '\n');
  EXPECT_GE(kept, 1);
  EXPECT_LT(kept, 200);
  EXPECT_EQ(samples.substr(0, 1), "{");
}

TEST(Mpi, OtherNumbersOfProcessesAreASentence) {
  const Outcome three = shell(kTwo + "3 '" TANDEM_PROGRAM "' methods");
  EXPECT_NE(three.code, 0);
  EXPECT_THAT(three.text, ::testing::HasSubstr("mpirun -n 2"));
}

// A shell that mpirun started hands its variables on to whatever it starts.
TEST(Mpi, AnInheritedEnvironmentChangesNothing) {
  const Outcome alone = shell("OMPI_COMM_WORLD_SIZE=4 '" TANDEM_PROGRAM "' methods asyncspade");
  EXPECT_EQ(alone.code, 0) << alone.text;
  EXPECT_EQ(alone.text, run("methods asyncspade").text);
}

TEST(Mpi, HelpAndVersionWaitForNoOtherRank) {
  for (const char* word : {"--version", "--help", "compare --help"}) {
    const Outcome asked = shell(kTwo + "3 '" TANDEM_PROGRAM "' " + word);
    EXPECT_EQ(asked.code, 0) << asked.text;
  }
}

}  // namespace
}  // namespace tandem::cli
