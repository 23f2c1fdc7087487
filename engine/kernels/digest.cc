#include "engine/kernels/digest.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"

namespace tandem {

void build_digest(const float* k, std::uint32_t tokens, std::uint32_t dim, float* min_out, float* max_out) {
  merge_digest(k, k, tokens, dim, min_out, max_out);  // a token is a block whose minimum and maximum are its key
}

void merge_digest(const float* child_min, const float* child_max, std::uint32_t children, std::uint32_t dim,
                  float* min_out, float* max_out) {
  TANDEM_CHECK(children >= 1, "An empty block has no digest.");
  kernels().min_max(child_min, child_max, children, dim, min_out, max_out);
}

void score_blocks(const float* q, const float* digest_min, const float* digest_max, std::uint32_t blocks,
                  std::uint32_t group, std::uint32_t dim, float* scores) {
  static thread_local std::vector<float> scratch;
  scratch.resize(std::max(scratch.size(), std::size_t{2} * group * dim));
  kernels().score_blocks(q, digest_min, digest_max, blocks, group, dim, scores, scratch.data());
}

void score_blocks_reference(const float* q, const float* digest_min, const float* digest_max, std::uint32_t blocks,
                            std::uint32_t group, std::uint32_t dim, float* scores) {
  for (std::size_t h = 0; h < group; ++h) {
    for (std::size_t b = 0; b < blocks; ++b) {
      double total = 0;
      for (std::size_t d = 0; d < dim; ++d) {
        const double value = q[h * dim + d];
        total += std::max(value * double{digest_min[b * dim + d]}, value * double{digest_max[b * dim + d]});
      }
      scores[h * blocks + b] = static_cast<float>(total);
    }
  }
}

}  // namespace tandem
