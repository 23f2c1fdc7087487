#include "engine/kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "engine/common/error.h"
#include "engine/kernels/kernel_table.h"
#include "engine/kernels/sampling_math.h"
#include "engine/kernels/topk.h"

namespace tandem {

TopTwo top_two(const float* logits, std::uint32_t vocab) {
  TANDEM_CHECK(vocab >= 1, "An empty vocabulary has no best token.");
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  constexpr std::uint32_t kBlock = 256;
  const KernelTable& table = kernels();
  TopTwo top{-1, kNone, -1, kNone};
  for (std::uint32_t from = 0; from < vocab; from += kBlock) {
    const std::uint32_t to = std::min(from + kBlock, vocab);
    if (top.second >= 0 && table.largest(logits + from, to - from) <= top.second_logit) continue;
    for (std::uint32_t i = from; i < to; ++i) {
      const float logit = logits[i] >= kNone ? logits[i] : kNone;  // NaN
      if (top.best < 0 || logit > top.best_logit) {
        top = {static_cast<std::int32_t>(i), logit, top.best, top.best_logit};
      } else if (top.second < 0 || logit > top.second_logit) {
        top.second = static_cast<std::int32_t>(i);
        top.second_logit = logit;
      }
    }
  }
  return top;
}

double log_probability(const float* logits, std::uint32_t vocab, std::uint32_t token) {
  TANDEM_CHECK(token < vocab, "Token {} is outside a vocabulary of {}.", token, vocab);
  const double most = *std::max_element(logits, logits + vocab);
  double sum = 0;  // at least 1: the largest logit's own term
  for (std::uint32_t i = 0; i < vocab; ++i) sum += std::exp(logits[i] - most);
  return logits[token] - most - std::log(sum);
}

namespace {

struct Candidate {
  std::uint32_t token;
  float logit;
  std::uint64_t weight;
};

std::uint64_t sum(const std::vector<Candidate>& candidates) {
  return std::accumulate(candidates.begin(), candidates.end(), std::uint64_t{0},
                         [](std::uint64_t all, const Candidate& c) { return all + c.weight; });
}

/// The best ones whose weights first reach the share, by token.
void keep_share(std::vector<Candidate>& candidates, float share) {
  const std::uint64_t least = sampling::least_sum(share, sum(candidates));
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  std::uint64_t reached = 0;
  std::size_t kept = 0;
  while (reached < least) reached += candidates[kept++].weight;
  candidates.resize(kept);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

}  // namespace

void check_sampling(const Sampling& how) {
  if (!(how.temperature >= 0 && how.temperature <= std::numeric_limits<float>::max()))
    throw_input_error("--temperature is {}: give a number from 0 (the best token, always) on; 1 is the model's own.",
                      how.temperature);
  if (!(how.top_p > 0 && how.top_p <= 1))
    throw_input_error("--top-p is {}: give a share above 0 and up to 1 (all tokens).", how.top_p);
  if (!(how.min_p >= 0 && how.min_p <= 1))
    throw_input_error("--min-p is {}: give a share from 0 (all tokens) to 1 of the best token's probability.",
                      how.min_p);
}

std::int32_t sample_token(const float* logits, std::uint32_t vocab, const Sampling& how, std::uint64_t position) {
  const TopTwo top = top_two(logits, vocab);
  if (how.temperature == 0 || !std::isfinite(top.best_logit)) return top.best;
  const double scale = sampling::kLog2E / double{how.temperature};
  std::vector<Candidate> candidates;
  const auto offer = [&](std::uint32_t token) {
    const std::uint64_t weight = sampling::weight(logits[token], top.best_logit, scale);
    if (weight > 0) candidates.push_back({token, logits[token], weight});
  };
  if (how.top_k > 0 && how.top_k < vocab) {
    std::vector<std::uint32_t> best(how.top_k);
    top_k(logits, vocab, how.top_k, best.data());
    for (const std::uint32_t token : best) offer(token);
  } else {
    for (std::uint32_t token = 0; token < vocab; ++token) offer(token);
  }
  if (how.top_p < 1) keep_share(candidates, how.top_p);
  if (how.min_p > 0) {
    const std::uint64_t best = sampling::weight(top.best_logit, top.best_logit, scale);
    std::erase_if(candidates, [&](const Candidate& c) { return !sampling::heavy_enough(c.weight, how.min_p, best); });
  }
  std::uint64_t left = sampling::scaled(sampling::random_bits(how.seed, position), sum(candidates));
  for (const Candidate& c : candidates) {
    if (left < c.weight) return static_cast<std::int32_t>(c.token);
    left -= c.weight;
  }
  TANDEM_CHECK(false, "a draw beyond {} candidates", candidates.size());
}

}  // namespace tandem
