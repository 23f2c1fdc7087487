#include "engine/common/cgroup.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>

namespace tandem {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  Cgroup()
      : folder_(std::filesystem::path(::testing::TempDir()) /
                (std::string("tandem_cgroup_") + ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "root");
  }
  ~Cgroup() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  double cpus(const std::string& membership) const {
    put("membership", membership);
    return cgroup_cpus((folder_ / "root").string(), (folder_ / "membership").string());
  }
  CgroupMemory memory(const std::string& membership) const {
    put("membership", membership);
    return cgroup_memory((folder_ / "root").string(), (folder_ / "membership").string());
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(Cgroup, NoFilesAndMaxAreNoQuota) {
  EXPECT_EQ(cpus("0::/\n"), INFINITY);
  EXPECT_EQ(cpus("0::/service/of/nobody\n"), INFINITY);
  put("root/a/cpu.max", "max 100000\n");
  EXPECT_EQ(cpus("0::/a\n"), INFINITY);
  EXPECT_EQ(cgroup_cpus("/nowhere", "/nowhere"), INFINITY);
}

TEST_F(Cgroup, AQuotaCanBeAFraction) {
  put("root/a/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(cpus("0::/a\n"), 1.5);
  put("root/a/cpu.max", "50000 200000\n");
  EXPECT_DOUBLE_EQ(cpus("0::/a\n"), 0.25);
}

TEST_F(Cgroup, TheTightestOfAllParentsCounts) {
  put("root/a/cpu.max", "300000 100000\n");
  put("root/a/b/cpu.max", "max 100000\n");
  put("root/a/b/c/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(cpus("0::/a/b/c\n"), 3);
  put("root/cpu.max", "200000 100000\n");  // as a container sees its own
  EXPECT_DOUBLE_EQ(cpus("0::/a/b/c\n"), 2);
  EXPECT_DOUBLE_EQ(cpus(""), 2);
}

TEST_F(Cgroup, VersionOneHasAFolderOfItsOwn) {
  put("root/cpu/docker/1/cpu.cfs_quota_us", "250000\n");
  put("root/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_DOUBLE_EQ(cpus("5:memory:/docker/1\n4:cpu,cpuacct:/docker/1\n"), 2.5);
  EXPECT_EQ(cpus("5:memory:/docker/1\n6:cpuset:/docker/1\n"), INFINITY);
  put("root/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpus("4:cpu,cpuacct:/docker/1\n"), INFINITY);
}

TEST_F(Cgroup, WhatIsNotUnderstoodIsNoQuota) {
  put("root/a/cpu.max", "150000\n");
  EXPECT_EQ(cpus("0::/a\n"), INFINITY);
  put("root/a/cpu.max", "150000 0\n");
  EXPECT_EQ(cpus("0::/a\nnonsense\n::\n"), INFINITY);
}

TEST_F(Cgroup, MemoryOfTheTightestParentCounts) {
  EXPECT_EQ(memory("0::/a/b\n").limit, CgroupMemory::kNoLimit);
  EXPECT_EQ(memory("0::/a/b\n").room, CgroupMemory::kNoLimit);
  put("root/a/b/memory.max", "max\n");
  put("root/a/b/memory.current", "900\n");
  EXPECT_EQ(memory("0::/a/b\n").room, CgroupMemory::kNoLimit);
  put("root/a/memory.max", "1000\n");
  put("root/a/memory.current", "950\n");
  put("root/a/memory.stat", "anon 500\nfile 450\ninactive_file 300\nactive_file 100\n");
  EXPECT_EQ(memory("0::/a/b\n").limit, 1000u);
  EXPECT_EQ(memory("0::/a/b\n").room, 450u) << "files in the cache are room";
  put("root/memory.max", "5000\n");
  put("root/memory.current", "4800\n");
  EXPECT_EQ(memory("0::/a/b\n").limit, 1000u);
  EXPECT_EQ(memory("0::/a/b\n").room, 200u) << "the one with the least room need not be the one with the least limit";
  put("root/a/memory.current", "2000\n");
  EXPECT_EQ(memory("0::/a/b\n").room, 0u);
}

TEST_F(Cgroup, MemoryOfVersionOne) {
  put("root/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory("5:memory:/docker/1\n").limit, CgroupMemory::kNoLimit);
  put("root/memory/docker/1/memory.limit_in_bytes", "1000\n");
  put("root/memory/docker/1/memory.usage_in_bytes", "600\n");
  put("root/memory/docker/1/memory.stat", "inactive_file 1\ntotal_inactive_file 100\ntotal_active_file 50\n");
  EXPECT_EQ(memory("4:cpu,cpuacct:/docker/1\n5:memory:/docker/1\n").limit, 1000u);
  EXPECT_EQ(memory("5:memory:/docker/1\n").room, 550u);
  EXPECT_EQ(memory("4:cpu,cpuacct:/docker/1\n").room, CgroupMemory::kNoLimit);
}

}  // namespace
}  // namespace tandem
