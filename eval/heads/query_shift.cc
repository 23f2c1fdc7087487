#include "eval/heads/query_shift.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/topk.h"
#include "engine/model/rope_scaling.h"
#include "eval/heads/capture.h"

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

double overlap(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  std::vector<std::uint32_t> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return static_cast<double>(both.size()) / static_cast<double>(a.size());
}

/// One layer's sums over queries and heads.
struct ShiftSums {
  std::vector<double> by_distance, with_shift, without;
};

/// ShiftSums of one query and head. `past`: room + 1 queries of the head, oldest first, the last one the true one;
/// `plain`: the same without their rotation.
void add_head(ShiftSums& sums, const std::vector<ShiftVariant>& variants, const std::vector<float>& past,
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
    const auto use = [&](bool shift) {
      if (rule.pre_rope) tandem::rope(predicted.data(), &position, rope, 1, 1);
      (shift ? sums.with_shift : sums.without)[v] += overlap(truth, chosen_by(predicted.data()));
    };
    // As the cache rank does it: everything before the true query.
    apply_lag_weights(rule, lag_weights(rule, from.data(), count - 1, dim), from.data(), count - 1, dim, true,
                      predicted.data());
    use(true);
    // For comparison: the true query on its own predecessors.
    const std::size_t first = std::size_t{1} * dim;
    apply_lag_weights(rule, lag_weights(rule, from.data() + first, count - 1, dim), from.data() + first, count - 1, dim,
                      false, predicted.data());
    use(false);
  }
}

/// Adds one prompt's sums to those of all, and their means over `count` to the prompt.
void add_prompt(ShiftProfile::Prompt& prompt, const std::vector<ShiftSums>& own, std::vector<ShiftSums>& all,
                double count) {
  const auto add = [&](std::vector<double> ShiftSums::*sums, std::vector<double>& mean) {
    mean.resize((own.front().*sums).size());
    for (std::size_t l = 0; l < own.size(); ++l) {
      for (std::size_t i = 0; i < mean.size(); ++i) {
        (all[l].*sums)[i] += (own[l].*sums)[i];
        mean[i] += (own[l].*sums)[i] / count;
      }
    }
  };
  add(&ShiftSums::by_distance, prompt.by_distance);
  add(&ShiftSums::with_shift, prompt.with_shift);
  add(&ShiftSums::without, prompt.without);
}

}  // namespace

std::string ShiftVariant::name() const {
  const char* weights = rule.weights == LagWeights::eq2    ? "eq2"
                        : rule.weights == LagWeights::alg1 ? "alg1"
                        : rule.weights == LagWeights::raw  ? "raw"
                                                           : "ridge_softmax";
  return fmt::format("weights={},windows={},rope={}", weights, rule.all_windows ? "all" : "W",
                     rule.pre_rope ? "pre" : "post");
}

std::vector<ShiftVariant> shift_variants(const ShiftOptions& options) {
  std::vector<ShiftVariant> variants;
  for (const LagWeights weights : {LagWeights::ridge_softmax, LagWeights::eq2, LagWeights::alg1, LagWeights::raw}) {
    for (const bool all : {true, false}) {
      for (const bool pre : {true, false}) variants.push_back({{weights, all, options.epsilon, options.window, pre}});
    }
  }
  return variants;
}

double ShiftProfile::mean(const std::vector<double>& by_layer) {
  return std::accumulate(by_layer.begin(), by_layer.end(), 0.0) / static_cast<double>(by_layer.size());
}

std::vector<double> ShiftProfile::mean_by_distance() const {
  std::vector<double> means(options.window);
  for (const std::vector<double>& layer : by_distance) {
    for (std::size_t i = 0; i < means.size(); ++i) means[i] += layer[i] / static_cast<double>(by_distance.size());
  }
  return means;
}

const ShiftProfile::Variant& ShiftProfile::best() const {
  return *std::max_element(variants.begin(), variants.end(),
                           [](const Variant& a, const Variant& b) { return mean(a.with_shift) < mean(b.with_shift); });
}

double ShiftProfile::spread(const std::function<double(const Prompt&)>& of) const {
  if (each_prompt.size() < 2) return 0;
  double sum = 0, squares = 0;
  for (const Prompt& prompt : each_prompt) sum += of(prompt);
  const auto n = static_cast<double>(each_prompt.size());
  for (const Prompt& prompt : each_prompt) squares += (of(prompt) - sum / n) * (of(prompt) - sum / n);
  return std::sqrt(squares / (n - 1));
}

std::size_t ShiftProfile::wins(std::size_t variant) const {
  constexpr double kRounding = 1e-9;  // two readings may choose alike in another order of heads and layers
  return static_cast<std::size_t>(std::count_if(each_prompt.begin(), each_prompt.end(), [variant](const Prompt& p) {
    return p.with_shift[variant] >= *std::max_element(p.with_shift.begin(), p.with_shift.end()) - kRounding;
  }));
}

ShiftProfile profile_query_shift(const Model& model, Engine& engine, ThreadPool& pool,
                                 const std::vector<HeadPrompt>& prompts, const ShiftOptions& options,
                                 const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  const ModelShape shape = engine.shape();
  const std::vector<ShiftVariant> variants = shift_variants(options);
  const RopeTable rope = make_rope_table(shape.head_dim, model.config.rope);
  RopeTable back = rope;  // rotates to position 0
  back.scale = 1 / rope.scale;
  for (double& frequency : back.inverse_frequency) frequency = -frequency;
  ShiftProfile profile;
  profile.options = options;
  profile.prompts = prompts.size();
  const ShiftSums zero{std::vector<double>(options.window), std::vector<double>(variants.size()),
                       std::vector<double>(variants.size())};
  std::vector<ShiftSums> layers(shape.layers, zero);
  const std::uint32_t before = options.window + 1, dim = shape.head_dim;
  for (std::size_t p = 0; p < prompts.size(); ++p) {
    const HeadPrompt& prompt = prompts[p];
    const auto tokens = static_cast<std::uint32_t>(prompt.tokens.size()) - 1;
    TANDEM_CHECK(prompt.first_query >= before, "a prompt of {} tokens has no window of {}", prompt.first_query, before);
    const std::uint32_t first = prompt.first_query - before;
    HeadCapture capture(shape, tokens, first);
    engine.observe(&capture);
    std::unique_ptr<Prefix> prefix;
    try {
      prefix = engine.prefill(prompt.tokens);
    } catch (...) {
      engine.observe(nullptr);
      throw;
    }
    engine.observe(nullptr);
    engine.release(*prefix);
    const std::uint32_t queries = tokens - prompt.first_query;
    profile.queries += queries;
    profile.tokens += tokens;
    std::vector<ShiftSums> own(shape.layers, zero);
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
          add_head(own[l], variants, past, plain, rope, capture.position(q + before),
                   capture.keys(layer, h / shape.group()), dim, options.share);
        }
      }
    });
    profile.each_prompt.push_back({prompt.name, tokens, queries, {}, {}, {}});
    add_prompt(profile.each_prompt.back(), own, layers, double(queries) * shape.q_heads * shape.layers);
    if (progress) progress(p + 1, prompts.size());
  }
  const double n = static_cast<double>(profile.queries) * shape.q_heads;
  for (const ShiftVariant& variant : variants) profile.variants.push_back({variant, {}, {}});
  for (ShiftSums& sums : layers) {
    for (double& x : sums.by_distance) x /= n;
    profile.by_distance.push_back(sums.by_distance);
    for (std::size_t v = 0; v < variants.size(); ++v) {
      profile.variants[v].with_shift.push_back(sums.with_shift[v] / n);
      profile.variants[v].without.push_back(sums.without[v] / n);
    }
  }
  return profile;
}

}  // namespace tandem::eval
