#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/cache_rank/kernels/query_prediction.h"
#include "engine/mechanisms/cache_rank/kernels/query_prediction_kernels.cuh"

namespace tandem {

void push_queries_cuda(const PredictionRule& rule, const DeviceRope& rope, const LaunchArray<QueryPush>& pushes,
                       std::uint32_t n, std::uint32_t heads, std::uint32_t dim, CudaStream stream) {
  TANDEM_CHECK(!rule.pre_rope || (dim % 2 == 0 && rope.inverse_frequency != nullptr),
               "Queries of {} dimensions cannot be turned back.", dim);
  TANDEM_CHECK(n <= gpu::kMaxGridRows, "{} queries.", n);
  gpu::Launcher launch(stream);
  launch(gpu::push_queries_kernel, dim3(heads, n), gpu::kPushThreads, 0, rule, rope, pushes, dim);
}

void predict_next_cuda(const PredictionRule& rule, const DeviceRope& rope, const QueryWindow* windows, std::uint32_t n,
                       std::uint32_t heads, std::uint32_t dim, double* weights, CudaStream stream) {
  TANDEM_CHECK(rule.window >= 1 && rule.window <= kMaxWindow, "A window of {} queries.", rule.window);
  TANDEM_CHECK(!rule.pre_rope || (dim % 2 == 0 && rope.inverse_frequency != nullptr),
               "Queries of {} dimensions cannot be turned.", dim);
  TANDEM_CHECK(n <= gpu::kMaxGridRows && heads <= gpu::kMaxGridRows, "{} windows of {} heads.", n, heads);
  gpu::Launcher launch(stream);
  if (rule.weights != LagWeights::eq2) {
    launch(gpu::predict_kernel, dim3(heads, n), gpu::kPredictThreads, 0, rule, rope, windows, dim);
    return;
  }
  TANDEM_CHECK(weights != nullptr, "Equation 2 has no room for its weights.");
  launch(gpu::eq2_weights_kernel, dim3(rule.window, heads, n), gpu::kPredictThreads, 0, rule, windows, dim, weights);
  launch(gpu::apply_eq2_weights_kernel, dim3(heads, n), gpu::kPredictThreads, 0, rule, rope, windows, dim, weights);
}

}  // namespace tandem
