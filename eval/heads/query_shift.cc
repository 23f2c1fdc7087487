#include "eval/heads/query_shift.h"

#include <algorithm>
#include <cmath>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/topk.h"
#include "engine/model/rope_scaling.h"
#include "eval/heads/capture.h"
#include "eval/report/statistics.h"

namespace tandem::eval {
namespace {

/// The tokens that a query scores best of keys [n][D], ascending.
std::vector<std::uint32_t> choice(const float* q, const float* keys, std::uint32_t n, std::uint32_t dim,
                                  std::uint32_t keep) {
  std::vector<float> scores(n);
  const KvSpan all{keys, nullptr, n, ~0u};
  token_scores(q, {&all, 1}, {1, dim, DType::f32}, scores.data());
  std::vector<std::uint32_t> chosen(keep);
  top_k(scores.data(), n, keep, chosen.data());
  return chosen;
}

/// Adds the overlaps of one query and head to a layer's sums. `past`: room + 1 queries of the head, oldest first, the
/// last one the true one; `plain`: the same without their rotation.
void add_head(ShiftOverlaps& sums, const std::vector<ShiftProfile::Variant>& variants, const std::vector<float>& past,
              const std::vector<float>& plain, const RopeTable& rope, std::uint32_t position, const float* keys,
              std::uint32_t dim, double share) {
  const auto count = static_cast<std::uint32_t>(past.size() / dim);
  const std::uint32_t keep = std::max(1u, static_cast<std::uint32_t>(share * position));
  const auto chosen_by = [&](const float* q) { return choice(q, keys, position, dim, keep); };
  const std::vector<std::uint32_t> truth = chosen_by(past.data() + std::size_t{count - 1} * dim);
  for (std::size_t distance = 1; distance <= sums.by_distance.size(); ++distance)
    sums.by_distance[distance - 1] += overlap(truth, chosen_by(past.data() + (count - 1 - distance) * dim));
  std::vector<float> predicted(dim);
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const PredictionRule& rule = variants[v].rule;
    const std::vector<float>& from = rule.pre_rope ? plain : past;
    // With shift, as the cache rank does it: everything before the true query. For comparison: the true query on its
    // own predecessors.
    for (const bool shift : {true, false}) {
      const float* const first = from.data() + (shift ? 0 : dim);
      apply_lag_weights(rule, lag_weights(rule, first, count - 1, dim), first, count - 1, dim, shift, predicted.data());
      if (rule.pre_rope) tandem::rope(predicted.data(), &position, rope, 1, 1);
      (shift ? sums.with_shift : sums.without)[v] += overlap(truth, chosen_by(predicted.data()));
    }
  }
}

/// Adds one prompt's sums to those of all, and their means over `count` to the prompt.
void add_prompt(ShiftProfile::Prompt& prompt, const std::vector<ShiftOverlaps>& own, std::vector<ShiftOverlaps>& all,
                double count) {
  for (const auto sums : {&ShiftOverlaps::by_distance, &ShiftOverlaps::with_shift, &ShiftOverlaps::without}) {
    std::vector<double>& mean = prompt.*sums;
    mean.resize((own.front().*sums).size());
    for (std::size_t l = 0; l < own.size(); ++l) {
      for (std::size_t i = 0; i < mean.size(); ++i) {
        (all[l].*sums)[i] += (own[l].*sums)[i];
        mean[i] += (own[l].*sums)[i] / count;
      }
    }
  }
}

}  // namespace

std::string ShiftProfile::Variant::name() const {
  constexpr const char* kWeights[] = {"ridge_softmax", "eq2", "alg1", "raw"};
  return fmt::format("weights={},windows={},rope={}", kWeights[static_cast<int>(rule.weights)],
                     rule.all_windows ? "all" : "W", rule.pre_rope ? "pre" : "post");
}

const ShiftProfile::Variant& ShiftProfile::best() const {
  return *std::ranges::max_element(variants, {}, [](const Variant& v) { return mean(v.with_shift); });
}

double ShiftProfile::spread(const std::function<double(const Prompt&)>& of) const {
  if (each_prompt.size() < 2) return 0;
  std::vector<double> values;
  std::ranges::transform(each_prompt, std::back_inserter(values), of);
  double squares = 0;
  for (const double value : values) squares += (value - mean(values)) * (value - mean(values));
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::size_t ShiftProfile::wins(std::size_t variant) const {
  constexpr double kRounding = 1e-9;  // two readings may choose alike in another order of heads and layers
  return static_cast<std::size_t>(std::ranges::count_if(each_prompt, [variant](const Prompt& p) {
    return p.with_shift[variant] >= std::ranges::max(p.with_shift) - kRounding;
  }));
}

ShiftProfile profile_query_shift(const Model& model, Engine& engine, ThreadPool& pool,
                                 const std::vector<HeadPrompt>& prompts, const ShiftOptions& options,
                                 const ProfileProgress& progress) {
  const ModelShape shape = engine.shape();
  const RopeTable rope = make_rope_table(shape.head_dim, model.config.rope);
  RopeTable back = rope;  // rotates to position 0
  back.scale = 1 / rope.scale;
  for (double& frequency : back.inverse_frequency) frequency = -frequency;
  ShiftProfile profile;
  profile.options = options;
  profile.prompts = prompts.size();
  for (const LagWeights weights : {LagWeights::ridge_softmax, LagWeights::eq2, LagWeights::alg1, LagWeights::raw}) {
    for (const bool all : {true, false})
      for (const bool pre : {true, false})
        profile.variants.push_back({{weights, all, options.epsilon, options.window, pre}, {}, {}});
  }
  const std::size_t variants = profile.variants.size();
  const ShiftOverlaps zero{std::vector<double>(options.window), std::vector<double>(variants),
                           std::vector<double>(variants)};
  std::vector<ShiftOverlaps> layers(shape.layers, zero);
  const std::uint32_t before = options.window + 1, dim = shape.head_dim;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const HeadPrompt& prompt = prompts[p];
    const auto tokens = static_cast<std::uint32_t>(prompt.tokens.size()) - 1;
    TANDEM_CHECK(prompt.first_query >= before, "a prompt of {} tokens has no window of {}", prompt.first_query, before);
    const HeadCapture capture = captured_prompt(engine, prompt.tokens, prompt.first_query - before);
    const std::uint32_t queries = tokens - prompt.first_query;
    profile.queries += queries;
    profile.tokens += tokens;
    std::vector<ShiftOverlaps> own(shape.layers, zero);
    pool.parallel_for(shape.layers, [&](std::size_t l) {
      const auto layer = static_cast<std::uint32_t>(l);
      for (std::uint32_t q = 0; q < queries; ++q) {
        for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
          std::vector<float> past, plain;
          for (std::uint32_t i = q; i <= q + before; ++i) {
            const float* query = capture.query(layer, i) + std::size_t{h} * dim;
            past.insert(past.end(), query, query + dim);
            plain.insert(plain.end(), query, query + dim);
            const std::uint32_t position = capture.position(i);
            tandem::rope(plain.data() + plain.size() - dim, &position, back, 1, 1);
          }
          add_head(own[l], profile.variants, past, plain, rope, capture.position(q + before),
                   capture.keys(layer, h / shape.group()), dim, options.share);
        }
      }
    });
    profile.each_prompt.push_back({{}, prompt.name, tokens, queries});
    add_prompt(profile.each_prompt.back(), own, layers, double(queries) * shape.q_heads * shape.layers);
    if (progress) progress(p + 1, prompts.size());
  }
  const double n = static_cast<double>(profile.queries) * shape.q_heads;
  for (ShiftOverlaps& sums : layers) {
    for (double& x : sums.by_distance) x /= n;
    profile.by_distance.push_back(sums.by_distance);
    for (std::size_t v = 0; v < variants; ++v) {
      profile.variants[v].with_shift.push_back(sums.with_shift[v] / n);
      profile.variants[v].without.push_back(sums.without[v] / n);
    }
  }
  return profile;
}

}  // namespace tandem::eval
