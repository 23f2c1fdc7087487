// What one decode query of one head says: where its attention goes, how few tokens carry it, and how much of its choice
// the next query makes again. Plain functions of scores, without a model.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::eval {

inline constexpr std::array<std::uint32_t, 4> kBudgetBlocks = {1, 16, 32, 64};  // tokens chosen together
inline constexpr std::array<double, 3> kMassTargets = {0.90, 0.95, 0.99};
inline constexpr std::uint32_t kOverlapShare = 8;   // top 1/8, as AsyncSpade §3.1 (Fig. 4)
inline constexpr std::uint32_t kOverlapBlock = 32;  // tokens, ScoutAttention's block
using Budgets = std::array<std::array<double, kBudgetBlocks.size()>, kMassTargets.size()>;  // [target][block]

/// softmax(scores), in float64.
std::vector<double> softmax(std::span<const float> scores);

/// q.k / sqrt(D) for each key.
std::vector<float> attention_scores(const float* q /*[D]*/, const float* k /*[tokens][D]*/, std::uint32_t tokens,
                                    std::uint32_t dim);

/// sum of w_t v_t over the chosen tokens, renormalised to them. `chosen` empty: all.
std::vector<double> weighted_values(std::span<const double> weights, const float* v /*[tokens][D]*/, std::uint32_t dim,
                                    std::span<const std::uint32_t> chosen = {});

/// Blocks in the order of their attention mass, largest first, ties to the lower index.
struct RankedBlocks {
  std::uint32_t block = 1, tokens = 0;
  std::vector<std::uint32_t> order;
  std::vector<double> mass;  // by block
  std::uint32_t tokens_of(std::uint32_t index) const;
  /// How many of `order` reach this share of the mass.
  std::uint32_t needed(double target) const;
};
RankedBlocks rank_blocks(std::span<const double> weights, std::uint32_t block);

/// |a and b| / |a| of ascending lists.
double overlap(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b);
/// The same of the ceil(n / kOverlapShare) largest scores of each; NaN for n = 0.
double top_overlap(std::span<const float> a, std::span<const float> b);

/// Quest's bound of each whole block of kOverlapBlock keys; the newest, partly filled one is left out.
std::vector<float> block_bounds(const float* q /*[D]*/, const float* k /*[tokens][D]*/, std::uint32_t tokens,
                                std::uint32_t dim);

/// Means over the rows, by column.
std::vector<double> column_means(const std::vector<std::vector<double>>& rows);

/// NaN where one of them has no length.
double cosine(std::span<const float> a, std::span<const float> b);

}  // namespace tandem::eval
