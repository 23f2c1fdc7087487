#include <gtest/gtest.h>
#include <vector>

#include "engine/common/cgroup.h"
#include "tests/files.h"

namespace tandem {
namespace {

TEST(ProcessMemory, ReadsWhatTheSystemSays) {
  const testing::TemporaryFolder folder;
  const auto status = folder.path() / "status";
  testing::write_bytes(status, "Name:\ttandem\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n");
  const ProcessMemory memory = process_memory(status.string());
  EXPECT_EQ(memory.resident, 2000u * 1024);
  EXPECT_EQ(memory.peak, 3000u * 1024);
}

TEST(ProcessMemory, IsZeroWhereTheSystemSaysNothing) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(process_memory((folder.path() / "none").string()).peak, 0u);
  testing::write_bytes(folder.path() / "status", "VmHWM:\nVmRSS\n");
  EXPECT_EQ(process_memory((folder.path() / "status").string()).peak, 0u);
}

TEST(ProcessMemory, GrowsWithWhatIsWritten) {
  const ProcessMemory before = process_memory();
  if (before.resident == 0) GTEST_SKIP() << "no /proc here";
  const std::vector<char> more(std::size_t{64} << 20, 1);
  const ProcessMemory after = process_memory();
  EXPECT_GE(after.peak, after.resident);
  EXPECT_GE(after.peak, more.size());
}

}  // namespace
}  // namespace tandem
