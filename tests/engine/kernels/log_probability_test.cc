#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/sampling.h"

namespace tandem {
namespace {

TEST(LogProbability, SumsToOneWhateverTheOffset) {
  for (const float offset : {0.0f, 1e4f, -1e4f}) {  // far beyond where exp overflows
    std::vector<float> logits(1500);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = offset + static_cast<float>(i % 97) * 0.125f;
    double sum = 0;
    for (std::uint32_t i = 0; i < 1500; ++i) sum += std::exp(log_probability(logits.data(), 1500, i));
    EXPECT_NEAR(sum, 1, 1e-11) << offset;
  }
}

TEST(LogProbability, KnownValues) {
  const std::vector<float> even(2048, 3.5f);
  EXPECT_NEAR(log_probability(even.data(), 2048, 7), -std::log(2048.0), 1e-12);
  const float one = -2;
  EXPECT_EQ(log_probability(&one, 1, 0), 0);
  const std::vector<float> sure = {0, std::numeric_limits<float>::lowest(), -std::numeric_limits<float>::infinity()};
  EXPECT_EQ(log_probability(sure.data(), 3, 0), 0);
  EXPECT_EQ(log_probability(sure.data(), 3, 2), -std::numeric_limits<double>::infinity());
}

TEST(LogProbability, ATokenOutsideTheVocabularyIsRefused) {
  const std::vector<float> logits(4, 0.0f);
  EXPECT_THROW(log_probability(logits.data(), 4, 4), LogicError);
  EXPECT_THROW(log_probability(logits.data(), 4, static_cast<std::uint32_t>(-1)), LogicError);
}

}  // namespace
}  // namespace tandem
