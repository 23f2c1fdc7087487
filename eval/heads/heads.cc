#include "eval/heads/heads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/pointwise.h"
#include "engine/runtime/forward.h"
#include "eval/heads/capture.h"

namespace tandem::eval {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

template <class Use>
void for_each_budget(Use use) {
  for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
    for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b) use(t, b);
  }
}

/// Sums over the queries of all prompts so far, by query head and by KV head, and of the layer's input.
struct HeadSums {
  std::vector<HeadStats> q_heads;
  std::vector<KvHeadStats> kv_heads;
  InputChange input;
};

/// What one layer's queries of one prompt leave for the streaming test: Eq. 2 needs the largest output of all heads.
struct Outputs {
  std::vector<double> length, error;  // [query][Hq]: |o| and |o - o of sinks and window|
};

double length_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

class PromptProfiler {
 public:
  PromptProfiler(const Model& model, ThreadPool& pool, const HeadOptions& options, const HeadCapture& capture,
                 const RopeTable& rope)
      : model_(model), pool_(pool), options_(options), capture_(capture), rope_(rope) {}

  void add_layer(std::uint32_t layer, HeadSums& sums) {
    const ModelConfig& c = model_.config;
    Outputs outputs;
    outputs.length.resize(std::size_t{capture_.queries()} * c.q_heads);
    outputs.error.resize(outputs.length.size());
    // One task per KV head; each owns its heads' sums, so the order of additions does not depend on the threads.
    pool_.parallel_for(c.kv_heads, [&](std::size_t g) {
      for (std::uint32_t n = 0; n < capture_.queries(); ++n)
        add_group(layer, static_cast<std::uint32_t>(g), n, outputs, sums);
    });
    add_streaming(outputs, sums);
    if (layer == 0) return;
    add_prediction(layer, sums);
    add_change(layer, sums.input);
  }

 private:
  const float* query_of(std::uint32_t layer, std::uint32_t n, std::uint32_t head) const {
    return capture_.query(layer, n) + std::size_t{head} * model_.config.head_dim;
  }

  void add_group(std::uint32_t layer, std::uint32_t g, std::uint32_t n, Outputs& outputs, HeadSums& sums) const {
    const ModelConfig& c = model_.config;
    const std::uint32_t group = c.q_heads / c.kv_heads, tokens = capture_.position(n) + 1;
    KvHeadStats& kv = sums.kv_heads[g];
    std::array<std::array<std::vector<bool>, kBudgetBlocks.size()>, kMassTargets.size()> chosen;  // by the group
    for (std::uint32_t h = g * group; h < (g + 1) * group; ++h) {
      HeadStats& head = sums.q_heads[h];
      const float* keys = capture_.keys(layer, g);
      const std::vector<float> scores = attention_scores(query_of(layer, n, h), keys, tokens, c.head_dim);
      const std::vector<double> weights = softmax(scores);
      const std::uint32_t sinks = std::min(options_.sinks, tokens);
      double on_sinks = 0, on_window = 0;
      for (std::uint32_t t = 0; t < sinks; ++t) on_sinks += weights[t];
      for (std::uint32_t t = std::max(sinks, tokens - std::min(options_.window, tokens)); t < tokens; ++t)
        on_window += weights[t];
      head.sink_mass += on_sinks;
      head.window_mass += on_window;
      kv.sink_mass += on_sinks / group;
      kv.window_mass += on_window / group;
      for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b) {
        const RankedBlocks ranked = rank_blocks(weights, kBudgetBlocks[b]);
        for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
          chosen[t][b].resize(ranked.mass.size());
          std::uint64_t taken = 0;
          const std::uint32_t needed = ranked.needed(kMassTargets[t]);
          for (std::uint32_t i = 0; i < needed; ++i) {
            taken += ranked.tokens_of(ranked.order[i]);
            chosen[t][b][ranked.order[i]] = true;
          }
          head.budget[t][b] += double(taken) / tokens;
        }
      }
      add_outputs(layer, g, h, n, weights, outputs);
      if (n > 0) add_overlap(layer, g, h, n, scores, head);
    }
    for_each_budget([&](std::size_t t, std::size_t b) {
      std::uint64_t taken = 0;
      for (std::uint32_t i = 0; i < chosen[t][b].size(); ++i) {
        if (chosen[t][b][i]) taken += std::min(kBudgetBlocks[b], tokens - i * kBudgetBlocks[b]);
      }
      kv.budget[t][b] += double(taken) / tokens;
    });
  }

  void add_outputs(std::uint32_t layer, std::uint32_t g, std::uint32_t h, std::uint32_t n,
                   const std::vector<double>& weights, Outputs& outputs) const {
    const auto tokens = static_cast<std::uint32_t>(weights.size());
    const std::uint32_t dim = model_.config.head_dim, sinks = std::min(options_.streaming_sinks, tokens);
    std::vector<std::uint32_t> kept(sinks);
    std::iota(kept.begin(), kept.end(), 0u);
    for (std::uint32_t t = std::max(sinks, tokens - std::min(options_.window, tokens)); t < tokens; ++t)
      kept.push_back(t);
    const float* values = capture_.values(layer, g);
    const std::vector<double> full = weighted_values(weights, values, dim);
    std::vector<double> difference = weighted_values(weights, values, dim, kept);
    for (std::uint32_t d = 0; d < dim; ++d) difference[d] -= full[d];
    const std::size_t at = std::size_t{n} * model_.config.q_heads + h;
    outputs.length[at] = length_of(full);
    outputs.error[at] = length_of(difference);
  }

  /// Both queries choose among the tokens that the earlier one saw.
  void add_overlap(std::uint32_t layer, std::uint32_t g, std::uint32_t h, std::uint32_t n,
                   const std::vector<float>& scores, HeadStats& head) const {
    const std::uint32_t dim = model_.config.head_dim, shared = capture_.position(n - 1) + 1;
    const float* keys = capture_.keys(layer, g);
    const std::vector<float> before = attention_scores(query_of(layer, n - 1, h), keys, shared, dim);
    head.token_overlap += top_overlap(before, std::span(scores).first(shared));
    head.block_overlap += top_overlap(block_bounds(query_of(layer, n - 1, h), keys, shared, dim),
                                      block_bounds(query_of(layer, n, h), keys, shared, dim));
  }

  void add_streaming(const Outputs& outputs, HeadSums& sums) const {
    const std::uint32_t heads = model_.config.q_heads, group = heads / model_.config.kv_heads;
    for (std::uint32_t n = 0; n < capture_.queries(); ++n) {
      const std::size_t at = std::size_t{n} * heads;
      const auto first = outputs.length.begin() + static_cast<std::ptrdiff_t>(at);
      const double largest = *std::max_element(first, first + heads);
      for (std::uint32_t g = 0; g < model_.config.kv_heads; ++g) {
        bool all = true;
        for (std::uint32_t h = g * group; h < (g + 1) * group; ++h) {
          const bool streaming = outputs.error[at + h] <= options_.tolerance * largest;
          sums.q_heads[h].streaming += streaming ? 1 : 0;
          all = all && streaming;
        }
        sums.kv_heads[g].streaming += all ? 1 : 0;
      }
    }
  }

  /// ScoutAttention §3.3: the layer's W_Q applied to the previous layer's input.
  void add_prediction(std::uint32_t layer, HeadSums& sums) const {
    const ModelConfig& c = model_.config;
    const std::uint32_t rows = capture_.queries();
    std::vector<std::uint32_t> positions(rows);
    for (std::uint32_t n = 0; n < rows; ++n) positions[n] = capture_.position(n);
    std::vector<float> normed(std::size_t{rows} * c.hidden), predicted(std::size_t{rows} * c.q_heads * c.head_dim);
    for (const bool next : {true, false}) {
      const MatrixView& norm = model_.weights.layers[next ? layer : layer - 1].input_norm;
      rms_norm(capture_.inputs(layer - 1), norm, c.rms_eps, normed.data(), rows, c.hidden);
      make_query(Forward::Phase::prefill, DType::f32, model_, rope_, pool_, layer, normed.data(), positions,
                 predicted.data());
      for (std::uint32_t n = 0; n < rows; ++n) {
        for (std::uint32_t h = 0; h < c.q_heads; ++h) {
          const std::size_t at = (std::size_t{n} * c.q_heads + h) * c.head_dim;
          const double same = cosine({predicted.data() + at, c.head_dim}, {query_of(layer, n, h), c.head_dim});
          (next ? sums.q_heads[h].cosine_next : sums.q_heads[h].cosine_own) += same;
        }
      }
    }
  }

  void add_change(std::uint32_t layer, InputChange& sum) const {
    const std::size_t width = model_.config.hidden;
    for (std::uint32_t n = 0; n < capture_.queries(); ++n) {
      const float* before = capture_.inputs(layer - 1) + n * width;
      const float* now = capture_.inputs(layer) + n * width;
      sum.cosine += cosine({before, width}, {now, width});
      double added = 0, length = 0;
      for (std::size_t i = 0; i < width; ++i) {
        const double more = double{now[i]} - before[i];
        added += more * more;
        length += double{before[i]} * before[i];
      }
      sum.added += length > 0 ? std::sqrt(added / length) : kNone;
    }
  }

  const Model& model_;
  ThreadPool& pool_;
  const HeadOptions& options_;
  const HeadCapture& capture_;
  const RopeTable& rope_;
};

void divide(HeadSums& sums, std::uint64_t queries, std::uint64_t pairs, bool first_layer) {
  const double n = double(queries), p = pairs > 0 ? double(pairs) : kNone, predicted = first_layer ? kNone : n;
  for (HeadStats& head : sums.q_heads) {
    for (double* x : {&head.sink_mass, &head.window_mass, &head.streaming}) *x /= n;
    for (double* x : {&head.token_overlap, &head.block_overlap}) *x /= p;
    for (double* x : {&head.cosine_next, &head.cosine_own}) *x /= predicted;
    for_each_budget([&](std::size_t t, std::size_t b) { head.budget[t][b] /= n; });
  }
  for (double* x : {&sums.input.cosine, &sums.input.added}) *x /= predicted;
  for (KvHeadStats& head : sums.kv_heads) {
    for (double* x : {&head.sink_mass, &head.window_mass, &head.streaming}) *x /= n;
    for_each_budget([&](std::size_t t, std::size_t b) { head.budget[t][b] /= n; });
  }
}

HeadStats mean_of(const std::vector<const HeadStats*>& all) {
  HeadStats mean;
  double predicted = 0;
  for (const HeadStats* head : all) {
    mean.sink_mass += head->sink_mass;
    mean.window_mass += head->window_mass;
    mean.streaming += head->streaming;
    mean.token_overlap += head->token_overlap;
    mean.block_overlap += head->block_overlap;
    for_each_budget([&](std::size_t t, std::size_t b) { mean.budget[t][b] += head->budget[t][b]; });
    if (std::isnan(head->cosine_next)) continue;
    mean.cosine_next += head->cosine_next;
    mean.cosine_own += head->cosine_own;
    ++predicted;
  }
  const double n = double(all.size());
  for (double* x : {&mean.sink_mass, &mean.window_mass, &mean.streaming, &mean.token_overlap, &mean.block_overlap}) {
    *x /= n;
  }
  for_each_budget([&](std::size_t t, std::size_t b) { mean.budget[t][b] /= n; });
  mean.cosine_next /= predicted > 0 ? predicted : kNone;
  mean.cosine_own /= predicted > 0 ? predicted : kNone;
  return mean;
}

}  // namespace

HeadStats LayerHeads::mean() const {
  std::vector<const HeadStats*> all;
  all.reserve(q_heads.size());
  for (const HeadStats& head : q_heads) all.push_back(&head);
  return mean_of(all);
}

HeadStats HeadProfile::mean() const {
  std::vector<const HeadStats*> all;
  for (const LayerHeads& layer : layers) {
    for (const HeadStats& head : layer.q_heads) all.push_back(&head);
  }
  return mean_of(all);
}

HeadProfile profile_heads(const Model& model, Engine& engine, ThreadPool& pool, const std::vector<HeadPrompt>& prompts,
                          const HeadOptions& options,
                          const std::function<void(std::uint64_t done, std::uint64_t total)>& progress) {
  const ModelConfig& c = model.config;
  const RopeTable rope = make_rope_table(c.head_dim, c.rope);
  HeadProfile profile;
  profile.options = options;
  std::vector<HeadSums> sums(c.layers, {std::vector<HeadStats>(c.q_heads), std::vector<KvHeadStats>(c.kv_heads), {}});
  std::uint64_t pairs = 0;
  for (const HeadPrompt& prompt : prompts) {
    TANDEM_CHECK(std::size_t{prompt.first_query} + 1 < prompt.tokens.size(), "prompt '{}' has no decode query",
                 prompt.name);
    // The engine leaves a prompt's last token to decoding, so that one is never computed.
    HeadCapture capture(engine.shape(), static_cast<std::uint32_t>(prompt.tokens.size() - 1), prompt.first_query);
    {
      const Observation observation(engine, capture);
      const auto prefix = engine.prefill(prompt.tokens);
      engine.release(*prefix);
    }
    PromptProfiler profiler(model, pool, options, capture, rope);
    for (std::uint32_t layer = 0; layer < c.layers; ++layer) profiler.add_layer(layer, sums[layer]);
    profile.queries += capture.queries();
    pairs += capture.queries() - 1;
    profile.tokens += prompt.tokens.size();
    ++profile.prompts;
    if (progress) progress(profile.prompts, prompts.size());
  }
  for (std::uint32_t layer = 0; layer < c.layers; ++layer) {
    divide(sums[layer], profile.queries, pairs, layer == 0);
    profile.layers.push_back({std::move(sums[layer].q_heads), std::move(sums[layer].kv_heads), sums[layer].input});
  }
  return profile;
}

}  // namespace tandem::eval
