#include "eval/report/summary.h"

#include <gtest/gtest.h>

namespace tandem::eval {
namespace {
TEST(Summary, Placeholder) {
  EXPECT_EQ(kSchemaVersion, 1);
}
}  // namespace
}  // namespace tandem::eval
