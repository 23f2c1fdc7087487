// Predicted queries of windows that are zero or all the same: the CUDA twin against the CPU.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

class QueryPredictionCudaTest : public CudaTest {};

TEST_F(QueryPredictionCudaTest, DegenerateWindowsEqualTheCpus) {
  Random random(1);
  const std::uint32_t heads = 3, dim = 8, count = 6;
  for (const LagWeights weights : {LagWeights::ridge_softmax, LagWeights::eq2, LagWeights::alg1, LagWeights::raw}) {
    for (const bool all_windows : {true, false}) {
      PredictionRule rule;
      rule.weights = weights;
      rule.window = 5;
      rule.all_windows = all_windows;
      std::vector<float> window(heads * rule.room() *
                                dim);  // zeros; the same query; one that is orthogonal to the rest
      for (std::uint32_t i = 0; i < rule.room(); ++i) {
        window[(rule.room() + i) * dim + 1] = 3;
        window[(2 * rule.room() + i) * dim + i] = 2;
      }
      std::vector<float> expected(heads * dim);
      predict_next(rule, RopeTable(dim, 1e4), window.data(), heads, dim, count, 11, expected.data());
      const OnDevice<float> queries(window), out(heads * dim);
      const OnDevice<double> scratch(std::max<std::size_t>(prediction_scratch(rule, 1, heads), 1));
      const OnDevice<QueryWindow> list(std::vector<QueryWindow>{{queries.data(), count, 11, out.data()}});
      predict_next_cuda(rule, {}, list.data(), 1, heads, dim, scratch.data(), {});
      expect_near(out.values(), expected, 1e-6);
    }
  }
  PredictionRule wide;
  wide.window = kMaxWindow + 1;
  EXPECT_THROW(predict_next_cuda(wide, {}, nullptr, 1, 1, dim, nullptr, {}), LogicError);
  PredictionRule eq2;
  eq2.weights = LagWeights::eq2;
  EXPECT_THROW(predict_next_cuda(eq2, {}, nullptr, 1, 1, dim, nullptr, {}), LogicError);
}

}  // namespace
}  // namespace tandem
