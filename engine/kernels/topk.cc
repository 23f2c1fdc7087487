#include "engine/kernels/topk.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/attention_weights.h"

namespace tandem {
namespace {

// Scores as numbers that compare like them: a broken model's NaN is the worst score, zeros are equal whatever their
// sign.
std::uint32_t ordered(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(std::isnan(score) ? -INFINITY : score + 0.0f);
  return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u);
}

// The `wanted`-th largest of `keys` (1 <= wanted <= their number), which it scrambles; `wanted` becomes how many of
// those that equal it are among them. Keys are counted in equal intervals between the least and the largest of them,
// and the interval that the wanted one falls into is cut again: no branch is up to the data.
std::uint32_t threshold(std::vector<std::uint32_t>& keys, std::uint32_t& wanted) {
  constexpr int kBinBits = 8;
  std::uint32_t* const data = keys.data();
  auto n = static_cast<std::uint32_t>(keys.size());
  while (true) {
    std::uint32_t least = data[0], most = data[0];
    for (std::uint32_t i = 1; i < n; ++i) {
      least = std::min(least, data[i]);
      most = std::max(most, data[i]);
    }
    if (least == most) return least;
    const int shift = std::max(static_cast<int>(std::bit_width(most - least)) - kBinBits, 0);
    // Two tables: adjacent keys often fall into the same interval, and an increment waits for the one before it.
    std::array<std::uint32_t, std::size_t{2} << kBinBits> bins{};
    for (std::uint32_t i = 0; i < n; ++i) ++bins[2 * ((data[i] - least) >> shift) + i % 2];
    std::uint32_t bin = (most - least) >> shift;
    for (; wanted > bins[2 * bin] + bins[2 * bin + 1]; --bin) wanted -= bins[2 * bin] + bins[2 * bin + 1];
    std::uint32_t kept = 0;
    for (std::uint32_t i = 0; i < n; ++i) {
      const std::uint32_t key = data[i];
      data[kept] = key;
      kept += (key - least) >> shift == bin ? 1 : 0;
    }
    n = kept;
  }
}

// A score, of a sample, that the `wanted` best almost surely reach and few others do; -infinity: looking for one would
// not pay.
float likely_floor(const float* scores, std::uint32_t n, std::uint32_t wanted) {
  constexpr std::uint32_t kSample = 64, kWorthwhile = 4 * kSample;
  if (n < kWorthwhile) return -INFINITY;
  const double expected = double{kSample} * wanted / n;
  const double rank = expected + 3 * std::sqrt(expected) + 2;
  if (2 * rank > kSample) return -INFINITY;
  std::array<float, kSample> sample;
  for (std::uint32_t i = 0; i < kSample; ++i) {
    const float score = scores[std::uint64_t{i} * n / kSample];
    sample[i] = std::isnan(score) ? -INFINITY : score;
  }
  const auto at = sample.begin() + static_cast<int>(rank);
  std::nth_element(sample.begin(), at, sample.end(), std::greater<>());
  return *at;
}

/// Adds one KV head's softmax_mean scores to `out`.
void add_softmax_mean(const float* scores /*[group][n]*/, std::uint32_t group, std::uint32_t n, float* out /*[n]*/) {
  std::vector<float> sums(group);
  for (std::uint32_t g = 0; g < group; ++g) sums[g] = log_sum_exp(scores + std::size_t{g} * n, n);
  for (std::uint32_t i = 0; i < n; ++i) {
    float most = -std::numeric_limits<float>::infinity(), sum = 0;
    for (std::uint32_t g = 0; g < group; ++g) most = std::max(most, scores[std::size_t{g} * n + i] - sums[g]);
    for (std::uint32_t g = 0; g < group; ++g) sum += std::exp(scores[std::size_t{g} * n + i] - sums[g] - most);
    out[i] += most + std::log(sum / static_cast<float>(group));
  }
}

}  // namespace

// Old and new in one run, ns a score, medians of 41 rounds (one thread, 2-core VM, AMD EPYC Zen 5, normal scores): the
// best 2 and 10 % of 256: 1.8 and 6.2 by std::nth_element over all, 1.4 and 3.3 so; of 1,004: 7.8 and 10.3, 1.4
// and 2.0; of 32,448: 8.1 and 10.3, 0.8 and 1.3.
void top_k(const float* scores, std::uint32_t n, std::uint32_t k, std::uint32_t* out, std::uint32_t first) {
  if (k >= n || k <= first) {
    std::iota(out, out + std::min(k, n), 0u);
    return;
  }
  std::iota(out, out + first, 0u);
  const std::uint32_t wanted = k - first;
  static thread_local std::vector<std::uint32_t> candidates, keys;
  candidates.resize(n - first);
  const float enough = likely_floor(scores + first, n - first, wanted);
  std::uint32_t count = 0;
  if (enough > -INFINITY) {
    std::uint32_t* const at = candidates.data();
    for (std::uint32_t i = first; i < n; ++i) {
      at[count] = i;
      count += scores[i] >= enough ? 1 : 0;
    }
  }
  if (count < wanted) {  // no sample, or one that says little of the rest
    count = n - first;
    std::iota(candidates.begin(), candidates.end(), first);
  }
  keys.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) keys[i] = ordered(scores[candidates[i]]);
  std::uint32_t ties = wanted;
  const std::uint32_t least = threshold(keys, ties);
  for (std::uint32_t i = 0, chosen = first; chosen < k; ++i) {
    const std::uint32_t key = ordered(scores[candidates[i]]);
    const std::uint32_t tie = key == least && ties > 0 ? 1 : 0;
    out[chosen] = candidates[i];
    ties -= tie;
    chosen += tie | (key > least ? 1 : 0);
  }
}

void reduce_scores(const float* scores, std::uint32_t heads, std::uint32_t group, std::uint32_t n, Reduce reduce,
                   float* out) {
  TANDEM_CHECK(group >= 1, "The scores of a group of no heads.");
  std::fill_n(out, n, 0.0f);
  std::vector<float> of_head(n);
  for (std::uint32_t head = 0; head < heads; ++head) {
    const float* own = scores + std::size_t{head} * group * n;
    if (reduce == Reduce::softmax_mean) {
      add_softmax_mean(own, group, n, out);
      continue;
    }
    std::copy_n(own, n, of_head.begin());
    for (std::uint32_t g = 1; g < group; ++g) {
      own += n;
      for (std::uint32_t i = 0; i < n; ++i)
        of_head[i] = reduce == Reduce::max ? std::max(of_head[i], own[i]) : of_head[i] + own[i];
    }
    for (std::uint32_t i = 0; i < n; ++i)
      out[i] += reduce == Reduce::max ? of_head[i] : of_head[i] / static_cast<float>(group);
  }
}

}  // namespace tandem
