#include <algorithm>

#include "engine/common/error.h"
#include "engine/kernels/cuda/launch.cuh"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed_kernels.cuh"

namespace tandem {

void skew_grams_cuda(const SkewGrams* grams, std::uint32_t count, std::uint32_t group, const KvPages& kv,
                     CudaStream stream) {
  TANDEM_CHECK(group >= 1, "The queries of a group of no heads.");
  const unsigned tiles = gpu::blocks_for(kv.dim, gpu::kGramTile);
  gpu::Launcher launch(stream);
  for (std::uint32_t first = 0; first < count; first += gpu::kMaxGridRows)
    launch(gpu::skew_grams_kernel, dim3(tiles, tiles, std::min(count - first, gpu::kMaxGridRows)),
           dim3(gpu::kGramTile, gpu::kGramTile), 0, grams, first, group, kv);
}

void skew_directions_cuda(double* keys, double* queries, std::uint32_t heads, std::uint32_t dim, std::uint32_t columns,
                          float* skew, CudaStream stream) {
  TANDEM_CHECK(dim <= 2 * gpu::kEigenPairs && columns <= dim, "{} directions of {} dimensions.", columns, dim);
  gpu::Launcher launch(stream);
  launch(gpu::skew_directions_kernel, heads, gpu::kEigenThreads, 0, keys, queries, dim, columns, skew);
}

void skew_keys_cuda(const LaunchArray<SkewedKeys>& keys, std::uint32_t count, std::uint32_t most, std::uint32_t columns,
                    const KvPages& kv, CudaStream stream) {
  gpu::Launcher launch(stream);
  for (std::uint32_t first = 0; first < count; first += gpu::kMaxGridRows)
    launch(gpu::skew_keys_kernel,
           dim3(gpu::blocks_for(most, gpu::kSkewTokens), std::min(count - first, gpu::kMaxGridRows)), gpu::kSkewThreads,
           gpu::kSkewTokens * kv.dim * sizeof(float), keys, first, columns, kv);
}

void skewed_scores_cuda(const LaunchArray<SkewedScores>& requests, std::uint32_t count, std::uint32_t most,
                        const SkewedShape& shape, CudaStream stream) {
  TANDEM_CHECK(std::size_t{shape.group} * shape.columns <= 8192, "{} query heads of {} components.", shape.group,
               shape.columns);
  gpu::Launcher launch(stream);
  for (std::uint32_t first = 0; first < count; first += gpu::kMaxGridRows)
    launch(gpu::skewed_scores_kernel,
           dim3(gpu::blocks_for(most, gpu::kScoreTokens), std::min(count - first, gpu::kMaxGridRows)),
           gpu::kSkewThreads, shape.group * shape.columns * sizeof(float), requests, first, shape);
}

namespace {

/// `best`: a block for each KV head, behind the counts of what is near the best.
void choose_by(void (*best)(const SkewedChoice*, std::uint32_t), const SkewedChoice* choices, std::uint32_t count,
               std::uint32_t kv_heads, std::uint32_t group, CudaStream stream) {
  TANDEM_CHECK(group >= 1 && count <= gpu::kMaxGridRows, "{} choices of groups of {}.", count, group);
  gpu::Launcher launch(stream);
  launch(gpu::near_the_best_kernel, dim3(kv_heads * group, count), gpu::kSelectThreads, 0, choices);
  launch(best, dim3(kv_heads, count), gpu::kSelectThreads, 0, choices, group);
}

}  // namespace

void choose_skewed_cuda(const SkewedChoice* choices, std::uint32_t count, std::uint32_t kv_heads, std::uint32_t group,
                        CudaStream stream) {
  choose_by(gpu::best_units_kernel, choices, count, kv_heads, group, stream);
}

void choose_skewed_of_each_cuda(const SkewedChoice* choices, std::uint32_t count, std::uint32_t kv_heads,
                                std::uint32_t group, CudaStream stream) {
  choose_by(gpu::best_units_of_each_kernel, choices, count, kv_heads, group, stream);
}

void choose_skewed_of_all_cuda(const SkewedChoice* choices, std::uint32_t count, std::uint32_t most_units,
                               std::uint32_t kv_heads, std::uint32_t group, CudaStream stream) {
  TANDEM_CHECK(group >= 1 && kv_heads >= 1 && count <= gpu::kMaxGridRows, "{} choices of {} groups of {}.", count,
               kv_heads, group);
  gpu::Launcher launch(stream);
  launch(gpu::near_the_best_kernel, dim3(kv_heads * group, count), gpu::kSelectThreads, 0, choices);
  launch(gpu::sum_units_kernel, dim3(gpu::blocks_for(most_units, gpu::kSkewThreads), count), gpu::kSkewThreads, 0,
         choices, kv_heads, group);
  launch(gpu::best_units_of_all_kernel, count, gpu::kSelectThreads, 0, choices, kv_heads, group);
}

}  // namespace tandem
