#include "eval/kernels/cpu_limits.h"

#include <chrono>
#include <csignal>
#include <ctime>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(CpuContention, ReadsTheLinesOfProcStat) {
  unsigned cpus = 0;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto read = [&](const char* text) { return busy_seconds(std::istringstream(text), cpus); };
  EXPECT_DOUBLE_EQ(read("cpu  100 20 30 4000 500 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\ncpu1 1 2\nintr 5\ncpu2 1\n"),
                   (100 + 20 + 30 + 6 + 7 + 80) / ticks);
  EXPECT_EQ(cpus, 2u);
  EXPECT_LT(read(""), 0);
  EXPECT_LT(read("cpu  1 2 3\ncpu0 1 2\n"), 0);
}

TEST(CpuContention, AnotherProcessIsSeen) {
  const CpuContention neighbours;
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // ends by itself where the test was killed
    for (volatile unsigned x = 0;;) x = x + 1;
  }
  const auto cpus = std::thread::hardware_concurrency();
  std::string says;
  for (int tries = 0; tries < 50 && says.empty(); ++tries) {  // a tenth of a large machine is more than one process
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    says = neighbours.cpus() > 0.1 ? "seen" : "";
  }
  if (cpus <= 4) {
    EXPECT_THAT(neighbours.disturbance(), HasSubstr("other processes used"));
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(says, "seen");
}

TEST(CpuContention, OwnThreadsAreNone) {
  const CpuContention neighbours;
  timespec before{}, after{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const unsigned cpus = std::thread::hardware_concurrency();
  std::vector<std::thread> threads;
  threads.reserve(cpus);
  for (unsigned i = 0; i < cpus; ++i)
    threads.emplace_back([&] {
      while (passed() < 0.5) {
      }
    });
  for (std::thread& thread : threads) thread.join();
  const double others = neighbours.cpus();
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double own =
      (static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec)) /
      passed();
  // All CPUs were busy: what is not ours is others', and nothing is counted twice.
  EXPECT_LE(others + own, cpus + 0.3);
}

}  // namespace
}  // namespace tandem
