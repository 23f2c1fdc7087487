#include "engine/common/cpus.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Cpus, MovesAThreadForAScope) {
  const std::vector<int> before = usable_cpus();
  ASSERT_FALSE(before.empty());
  {
    const OnCpus one({before.back()});
    EXPECT_EQ(usable_cpus(), std::vector<int>{before.back()});
    EXPECT_EQ(usable_cores(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(usable_cpus(), before);
}

TEST(Cpus, CoresAreNoMoreThanCpus) {
  const std::vector<int> cpus = usable_cpus(), cores = usable_cores();
  EXPECT_GE(cores.size(), 1u);
  EXPECT_LE(cores.size(), cpus.size());
  EXPECT_FALSE(run_on({}));
}

}  // namespace
}  // namespace tandem
