#include "engine/kernels/isa.h"

#include <cstdlib>
#include <gmock/gmock.h>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {
namespace {

// active_isa() reads TANDEM_ISA once, so each answer comes from a process of its own.
void exit_with_active_isa(const char* value) {
  setenv("TANDEM_ISA", value, 1);
  try {
    std::fprintf(stderr, "active: %s\n", to_string(active_isa()));
  } catch (const InputError& error) {
    std::fprintf(stderr, "refused: %s\n", error.what());
  }
  std::exit(0);
}

class IsaDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(IsaDeathTest, TheEnvironmentChooses) {
  for (const Isa isa : kIsas) {
    const std::string expected =
        isa_supported(isa) ? std::string("active: ") + to_string(isa) : "refused: .*does not support";
    EXPECT_EXIT(exit_with_active_isa(to_string(isa)), ::testing::ExitedWithCode(0), expected);
  }
}

TEST_F(IsaDeathTest, AnUnknownNameIsRefusedWithASuggestion) {
  EXPECT_EXIT(exit_with_active_isa("avx52"), ::testing::ExitedWithCode(0),
              "refused: .*TANDEM_ISA is 'avx52'.*Did you mean");
}

TEST(Isa, AScopeChoosesTheTable) {
  ASSERT_TRUE(isa_supported(Isa::baseline));
  const Isa outside = active_isa();
  {
    const ScopedIsa scope(Isa::baseline);
    EXPECT_EQ(active_isa(), Isa::baseline);
    EXPECT_EQ(&kernels(), &isa_baseline::table);
  }
  EXPECT_EQ(active_isa(), outside);
}

TEST(Isa, EachBuildHasItsOwnKernels) {
  EXPECT_NE(isa_baseline::table.linear_rows, isa_avx2::table.linear_rows);
  EXPECT_NE(isa_avx2::table.linear_rows, isa_avx512::table.linear_rows);
  EXPECT_NE(isa_avx512::table.linear_rows, isa_avx512_bf16::table.linear_rows);
  EXPECT_NE(isa_avx512_bf16::table.linear_rows, isa_amx::table.linear_rows);
}

}  // namespace
}  // namespace tandem
