#include "engine/kernels/digest.h"

#include <algorithm>
#include <cstddef>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/scratch.h"

namespace tandem {

void build_digest(const void* k, DType type, std::uint32_t tokens, std::uint32_t dim, void* min_out, void* max_out) {
  merge_digest(k, k, type, tokens, dim, min_out, max_out);  // a token is a block whose minimum and maximum are its key
}

void merge_digest(const void* child_min, const void* child_max, DType type, std::uint32_t children, std::uint32_t dim,
                  void* min_out, void* max_out) {
  TANDEM_CHECK(children >= 1, "An empty block has no digest.");
  kernels().min_max(child_min, child_max, type, children, dim, min_out, max_out);
}

void add_keys(const void* k, DType type, std::uint32_t tokens, std::uint32_t dim, float* sums) {
  kernels().add_rows(k, type, tokens, dim, sums);
}

void mean_digest(const float* sums, std::uint32_t tokens, DType type, std::uint32_t dim, void* out) {
  TANDEM_CHECK(tokens >= 1, "An empty block has no digest.");
  struct MeanScratch;
  float* const mean = aligned_scratch<MeanScratch>(dim);
  const float share = 1.0f / static_cast<float>(tokens);
  for (std::uint32_t d = 0; d < dim; ++d) mean[d] = sums[d] * share;
  from_f32(mean, type, dim, out);
}

void score_blocks(const float* q, const void* digest_min, const void* digest_max, std::uint32_t blocks,
                  AttentionShape shape, float* scores) {
  struct DigestScratch;
  kernels().score_blocks(q, digest_min, digest_max, blocks, shape, scores,
                         aligned_scratch<DigestScratch>(std::size_t{2} * shape.group * shape.dim));
}

void score_blocks_reference(const float* q, const void* digest_min, const void* digest_max, std::uint32_t blocks,
                            AttentionShape shape, float* scores) {
  const std::size_t dim = shape.dim;
  for (std::size_t h = 0; h < shape.group; ++h) {
    for (std::size_t b = 0; b < blocks; ++b) {
      double total = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        const double value = q[h * dim + d];
        total += std::max(value * double{load_element(digest_min, shape.kv, b * dim + d)},
                          value * double{load_element(digest_max, shape.kv, b * dim + d)});
      }
      scores[h * blocks + b] = static_cast<float>(total);
    }
  }
}

}  // namespace tandem
