// The choice of a cache rank that keeps more tokens than there are.
#include <algorithm>
#include <gtest/gtest.h>

#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "tests/engine/mechanisms/token_choice/kernels/nan_page.h"

namespace tandem {
namespace {

TEST(SelectAhead, TakesAllWhereThereAreFewerThanToKeep) {
  constexpr std::uint32_t kDim = 8;
  const NanPage tokens(kDim);
  PredictionRule rule;
  rule.window = 1;
  std::vector<float> window;  // of each head, its query twice
  for (std::uint32_t i = 0; i < 4 * kDim; ++i) window.push_back(tokens.q[i / (2 * kDim) * kDim + i % kDim]);
  const std::size_t bytes = 10 * kDim * sizeof(float);
  std::vector<char> k(2 * bytes, 'x'), v(k);
  select_ahead(rule, RopeTable(kDim, 1e4), {window.data(), 2, 5}, tokens.spans(), tokens.shape, 20, k.data(), v.data());
  std::vector<char> expected_k(2 * bytes, 'x'), expected_v(expected_k);
  std::copy_n(tokens.page.begin(), bytes, expected_k.begin());
  std::copy_n(tokens.page.begin() + 16 * kDim * sizeof(float), bytes, expected_v.begin());
  EXPECT_EQ(k, expected_k);
  EXPECT_EQ(v, expected_v);
}

}  // namespace
}  // namespace tandem
