// Two processes: the second is the cache rank. The same tokens as one process.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

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

const std::string kRun =
    "compare --methods asyncspade:budget=128,place=peer,window=8 --hw asyncspade-a100 --tasks niah_single_1 --lengths "
    "512 "
    "--samples 2 --quiet --no-plot --force --threads 1 --out ";
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

TEST(Mpi, OtherNumbersOfProcessesAreASentence) {
  const Outcome three = shell(kTwo + "3 '" TANDEM_PROGRAM "' methods");
  EXPECT_NE(three.code, 0);
  EXPECT_THAT(three.text, ::testing::HasSubstr("mpirun -n 2"));
}

}  // namespace
}  // namespace tandem::cli
