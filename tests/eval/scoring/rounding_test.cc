#include "eval/scoring/rounding.h"

#include <gtest/gtest.h>
#include <vector>

namespace tandem::eval {
namespace {

TEST(Rounding, PythonAndNumpyDiffer) {
  EXPECT_EQ(python_round(2.675, 2), 2.67);
  EXPECT_EQ(numpy_percentage(std::vector{0.02675}), 2.68);
  EXPECT_EQ(python_round(0.025, 2), 0.03);
  EXPECT_EQ(numpy_percentage(std::vector{0.00025}), 0.02);  // a half to even
  EXPECT_EQ(python_round(100, 2), 100);
  EXPECT_EQ(python_round(12.34565, 4), 12.3456);  // 12.34564999...
}

// Of equal values, where a plain sum gives the other hundredth (0.15, 0.04, 2.57 and 0.16), and where there are more
// than 128, one of exact halves, too.
TEST(Rounding, NumpySumsPairwise) {
  EXPECT_EQ(numpy_percentage(std::vector<double>(8, 0.00155)), 0.16);
  EXPECT_EQ(numpy_percentage(std::vector<double>(128, 0.00035)), 0.03);
  EXPECT_EQ(numpy_percentage(std::vector<double>(150, 0.02575)), 2.58);
  EXPECT_EQ(numpy_percentage(std::vector<double>(300, 0.00165)), 0.17);
}

}  // namespace
}  // namespace tandem::eval
