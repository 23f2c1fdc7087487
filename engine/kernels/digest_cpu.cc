// Block digests and the scores that bound their keys.
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {

void min_max(const float* low, const float* high, uint32_t rows, uint32_t dim, float* min_out, float* max_out) {
  uint32_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    vf least = load(low + d), most = load(high + d);
    for (uint32_t r = 1; r < rows; ++r) {
      least = minimum(load(low + size_t{dim} * r + d), least);
      most = maximum(load(high + size_t{dim} * r + d), most);
    }
    store(min_out + d, least);
    store(max_out + d, most);
  }
  for (; d < dim; ++d) {
    float least = low[d], most = high[d];
    for (uint32_t r = 1; r < rows; ++r) {
      const float a = low[size_t{dim} * r + d], b = high[size_t{dim} * r + d];
      least = a < least ? a : least;
      most = b > most ? b : most;
    }
    min_out[d] = least;
    max_out[d] = most;
  }
}

namespace {

// max(q min, q max) = q+ max + q- min, with q+ = max(q, 0) and q- = min(q, 0): two multiply-adds and no comparison.
template <int kHeads>
void score_block(const float* positive, const float* negative, const float* low, const float* high, uint32_t dim,
                 float* scores, size_t stride) {
  vf total[kHeads] = {};
  uint32_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    const vf least = load(low + d), most = load(high + d);
    for (int h = 0; h < kHeads; ++h) {
      const size_t at = size_t{dim} * h + d;
      total[h] = fma(load(negative + at), least, fma(load(positive + at), most, total[h]));
    }
  }
  if (const int rest = static_cast<int>(dim - d); rest > 0) {
    const vf least = load_first(low + d, rest), most = load_first(high + d, rest);
    for (int h = 0; h < kHeads; ++h) {
      const size_t at = size_t{dim} * h + d;
      total[h] = fma(load_first(negative + at, rest), least, fma(load_first(positive + at, rest), most, total[h]));
    }
  }
  for (int h = 0; h < kHeads; ++h) scores[stride * h] = sum(total[h]);
}

}  // namespace

void score_blocks(const float* q, const float* digest_min, const float* digest_max, uint32_t blocks, uint32_t group,
                  uint32_t dim, float* scores, float* scratch) {
  float* positive = scratch;
  float* negative = scratch + size_t{group} * dim;
  for (size_t i = 0; i < size_t{group} * dim; ++i) {
    positive[i] = q[i] > 0 ? q[i] : 0.0f;
    negative[i] = q[i] < 0 ? q[i] : 0.0f;
  }
  for (uint32_t b = 0; b < blocks; ++b) {
    const float* low = digest_min + size_t{dim} * b;
    const float* high = digest_max + size_t{dim} * b;
    uint32_t h = 0;
    for (; h + 4 <= group; h += 4)
      score_block<4>(positive + size_t{dim} * h, negative + size_t{dim} * h, low, high, dim,
                     scores + size_t{blocks} * h + b, blocks);
    for (; h < group; ++h)
      score_block<1>(positive + size_t{dim} * h, negative + size_t{dim} * h, low, high, dim,
                     scores + size_t{blocks} * h + b, blocks);
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
