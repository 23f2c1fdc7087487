#include "eval/heads/head_stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/kernels/digest.h"
#include "engine/kernels/topk.h"

namespace tandem::eval {

std::vector<double> softmax(std::span<const float> scores) {
  const double top = scores.empty() ? 0 : double{std::ranges::max(scores)};
  double sum = 0;
  std::vector<double> weights(scores.size());
  for (std::size_t t = 0; t < scores.size(); ++t) sum += weights[t] = std::exp(double{scores[t]} - top);
  for (double& w : weights) w /= sum;
  return weights;
}

std::vector<float> attention_scores(const float* q, const float* k, std::uint32_t tokens, std::uint32_t dim) {
  const double scale = 1 / std::sqrt(double(dim));
  std::vector<float> scores(tokens);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    const float* key = k + std::size_t{t} * dim;
    double lanes[4] = {};  // four sums that do not wait for each other
    for (std::uint32_t d = 0; d < dim; ++d) lanes[d % 4] += double{q[d]} * double{key[d]};
    scores[t] = static_cast<float>((lanes[0] + lanes[1] + lanes[2] + lanes[3]) * scale);
  }
  return scores;
}

std::vector<double> weighted_values(std::span<const double> weights, const float* v, std::uint32_t dim,
                                    std::span<const std::uint32_t> chosen) {
  std::vector<double> out(dim);
  double sum = 0;
  const std::size_t count = chosen.empty() ? weights.size() : chosen.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t t = chosen.empty() ? i : chosen[i];
    sum += weights[t];
    for (std::uint32_t d = 0; d < dim; ++d) out[d] += weights[t] * double{v[t * dim + d]};
  }
  for (double& x : out) x = sum > 0 ? x / sum : 0;  // nothing chosen carries any weight: no output
  return out;
}

std::uint32_t RankedBlocks::tokens_of(std::uint32_t index) const {
  return std::min(block, tokens - index * block);
}

std::uint32_t RankedBlocks::needed(double target) const {
  double reached = 0;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    reached += mass[order[i]];
    if (reached >= target) return i + 1;
  }
  return static_cast<std::uint32_t>(order.size());
}

RankedBlocks rank_blocks(std::span<const double> weights, std::uint32_t block) {
  RankedBlocks ranked;
  ranked.block = block;
  ranked.tokens = static_cast<std::uint32_t>(weights.size());
  ranked.mass.resize((weights.size() + block - 1) / block);
  for (std::size_t t = 0; t < weights.size(); ++t) ranked.mass[t / block] += weights[t];
  ranked.order.resize(ranked.mass.size());
  std::iota(ranked.order.begin(), ranked.order.end(), 0u);
  std::ranges::stable_sort(ranked.order, std::greater(), [&](std::uint32_t i) { return ranked.mass[i]; });
  return ranked;
}

double overlap(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::vector<std::uint32_t> both;
  std::ranges::set_intersection(a, b, std::back_inserter(both));
  return double(both.size()) / double(a.size());
}

double top_overlap(std::span<const float> a, std::span<const float> b) {
  const auto n = static_cast<std::uint32_t>(std::min(a.size(), b.size()));
  if (n == 0) return std::numeric_limits<double>::quiet_NaN();
  const std::uint32_t k = (n + kOverlapShare - 1) / kOverlapShare;
  std::vector<std::uint32_t> first(k), second(k);
  top_k(a.data(), n, k, first.data());
  top_k(b.data(), n, k, second.data());
  return overlap(first, second);
}

std::vector<float> block_bounds(const float* q, const float* k, std::uint32_t tokens, std::uint32_t dim) {
  const std::uint32_t blocks = tokens / kOverlapBlock;
  std::vector<float> low(std::size_t{blocks} * dim), high(low.size()), bounds(blocks);
  for (std::uint32_t b = 0; b < blocks; ++b) {
    const std::size_t at = std::size_t{b} * dim;
    build_digest(k + at * kOverlapBlock, DType::f32, kOverlapBlock, dim, low.data() + at, high.data() + at);
  }
  if (blocks > 0) score_blocks(q, low.data(), high.data(), blocks, {1, dim}, bounds.data());
  return bounds;
}

std::vector<double> column_means(const std::vector<std::vector<double>>& rows) {
  std::vector<double> means(rows.front().size());
  for (const std::vector<double>& row : rows)
    for (std::size_t i = 0; i < means.size(); ++i) means[i] += row[i] / static_cast<double>(rows.size());
  return means;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double ab = 0, aa = 0, bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += double{a[i]} * double{b[i]};
    aa += double{a[i]} * double{a[i]};
    bb += double{b[i]} * double{b[i]};
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tandem::eval
