#include "engine/common/drawing.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Drawing, WordsAreThoseOfTheAuthorsCode) {
  EXPECT_EQ(mix64(1234567), 6457827717110365317ull);
  EXPECT_EQ(mix64(1234567 + 0x9e3779b97f4a7c15ull), 3203168211198807973ull);
  EXPECT_EQ(finalise64(1234567 + 0x9e3779b97f4a7c15ull), 6457827717110365317ull);
}

TEST(Drawing, TheNormalDistribution) {
  EXPECT_EQ(normal_below(0), 0.5);
  EXPECT_NEAR(normal_below(1.959963984540054), 0.975, 1e-15);
  EXPECT_NEAR(normal_quantile_within(12, 0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(normal_quantile_within(40, 0.01), -2.3263478740408408, 1e-13);
  EXPECT_NEAR(normal_quantile_within(12, 0), -12, 1e-9) << "no further than the edge";
}

TEST(Drawing, BisectionFindsWhereAFunctionReachesAValue) {
  EXPECT_NEAR(bisect(
                  0, 2, [](double x) { return x * x; }, 2),
              1.4142135623730951, 1e-15);
}

}  // namespace
}  // namespace tandem
