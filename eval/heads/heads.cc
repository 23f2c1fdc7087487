#include "eval/heads/heads.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/common/error.h"
#include "engine/kernels/pointwise.h"
#include "engine/model/utf8.h"
#include "engine/runtime/forward.h"
#include "eval/heads/capture.h"
#include "eval/ruler_tasks/ruler.h"

namespace tandem::eval {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// What one layer's queries of one prompt leave for the streaming test: Eq. 2 needs the largest output of all heads.
struct Outputs {
  std::vector<double> length, error;  // [query][Hq]: |o| and |o - o of sinks and window|
};

double length_of(const std::vector<double>& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

/// Adds the statistics of one prompt to sums over all.
struct PromptProfiler {
  const Model& model;
  ThreadPool& pool;
  const HeadOptions& options;
  const HeadCapture& capture;
  const RopeTable& rope;

  void add_layer(std::uint32_t layer, LayerHeads& sums) {
    const ModelConfig& c = model.config;
    const std::size_t count = std::size_t{capture.queries()} * c.q_heads;
    Outputs outputs{std::vector<double>(count), std::vector<double>(count)};
    // One task per KV head; each owns its heads' sums, so the order of additions does not depend on the threads.
    pool.parallel_for(c.kv_heads, [&](std::size_t g) {
      for (std::uint32_t n = 0; n < capture.queries(); ++n)
        add_group(layer, static_cast<std::uint32_t>(g), n, outputs, sums);
    });
    add_streaming(outputs, sums);
    if (layer == 0) return;
    add_prediction(layer, sums);
    add_change(layer, sums.input);
  }

  const float* query_of(std::uint32_t layer, std::uint32_t n, std::uint32_t head) const {
    return capture.query(layer, n) + std::size_t{head} * model.config.head_dim;
  }

  void add_group(std::uint32_t layer, std::uint32_t g, std::uint32_t n, Outputs& outputs, LayerHeads& sums) const {
    const ModelConfig& c = model.config;
    const std::uint32_t group = c.q_heads / c.kv_heads, tokens = capture.position(n) + 1;
    KvHeadStats& kv = sums.kv_heads[g];
    std::array<std::array<std::vector<bool>, kBudgetBlocks.size()>, kMassTargets.size()> chosen;  // by the group
    for (std::uint32_t h = g * group; h < (g + 1) * group; ++h) {
      HeadStats& head = sums.q_heads[h];
      const float* keys = capture.keys(layer, g);
      const std::vector<float> scores = attention_scores(query_of(layer, n, h), keys, tokens, c.head_dim);
      const std::vector<double> weights = softmax(scores);
      const std::uint32_t sinks = std::min(options.sinks, tokens);
      double on_sinks = 0, on_window = 0;
      for (std::uint32_t t = 0; t < sinks; ++t) on_sinks += weights[t];
      for (std::uint32_t t = std::max(sinks, tokens - std::min(options.window, tokens)); t < tokens; ++t)
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
    for (std::size_t b = 0; b < kBudgetBlocks.size(); ++b) {
      for (std::size_t t = 0; t < kMassTargets.size(); ++t) {
        std::uint64_t taken = 0;
        for (std::uint32_t i = 0; i < chosen[t][b].size(); ++i)
          if (chosen[t][b][i]) taken += std::min(kBudgetBlocks[b], tokens - i * kBudgetBlocks[b]);
        kv.budget[t][b] += double(taken) / tokens;
      }
    }
  }

  void add_outputs(std::uint32_t layer, std::uint32_t g, std::uint32_t h, std::uint32_t n,
                   const std::vector<double>& weights, Outputs& outputs) const {
    const auto tokens = static_cast<std::uint32_t>(weights.size());
    const std::uint32_t dim = model.config.head_dim, sinks = std::min(options.streaming_sinks, tokens);
    std::vector<std::uint32_t> kept(sinks);
    std::iota(kept.begin(), kept.end(), 0u);
    for (std::uint32_t t = std::max(sinks, tokens - std::min(options.window, tokens)); t < tokens; ++t)
      kept.push_back(t);
    const float* values = capture.values(layer, g);
    const std::vector<double> full = weighted_values(weights, values, dim);
    std::vector<double> difference = weighted_values(weights, values, dim, kept);
    for (std::uint32_t d = 0; d < dim; ++d) difference[d] -= full[d];
    const std::size_t at = std::size_t{n} * model.config.q_heads + h;
    outputs.length[at] = length_of(full);
    outputs.error[at] = length_of(difference);
  }

  /// Both queries choose among the tokens that the earlier one saw.
  void add_overlap(std::uint32_t layer, std::uint32_t g, std::uint32_t h, std::uint32_t n,
                   const std::vector<float>& scores, HeadStats& head) const {
    const std::uint32_t dim = model.config.head_dim, shared = capture.position(n - 1) + 1;
    const float* keys = capture.keys(layer, g);
    const std::vector<float> before = attention_scores(query_of(layer, n - 1, h), keys, shared, dim);
    head.token_overlap += top_overlap(before, std::span(scores).first(shared));
    head.block_overlap += top_overlap(block_bounds(query_of(layer, n - 1, h), keys, shared, dim),
                                      block_bounds(query_of(layer, n, h), keys, shared, dim));
  }

  void add_streaming(const Outputs& outputs, LayerHeads& sums) const {
    const std::uint32_t heads = model.config.q_heads, group = heads / model.config.kv_heads;
    for (std::uint32_t n = 0; n < capture.queries(); ++n) {
      const std::size_t at = std::size_t{n} * heads;
      const double largest = std::ranges::max(std::span(outputs.length).subspan(at, heads));
      for (std::uint32_t g = 0; g < model.config.kv_heads; ++g) {
        bool all = true;
        for (std::uint32_t h = g * group; h < (g + 1) * group; ++h) {
          const bool streaming = outputs.error[at + h] <= options.tolerance * largest;
          sums.q_heads[h].streaming += streaming ? 1 : 0;
          all = all && streaming;
        }
        sums.kv_heads[g].streaming += all ? 1 : 0;
      }
    }
  }

  /// ScoutAttention §3.3: the layer's W_Q applied to the previous layer's input.
  void add_prediction(std::uint32_t layer, LayerHeads& sums) const {
    const ModelConfig& c = model.config;
    const std::uint32_t rows = capture.queries();
    std::vector<std::uint32_t> positions(rows);
    for (std::uint32_t n = 0; n < rows; ++n) positions[n] = capture.position(n);
    std::vector<float> normed(std::size_t{rows} * c.hidden), predicted(std::size_t{rows} * c.q_heads * c.head_dim);
    for (const bool next : {true, false}) {
      const MatrixView& norm = model.weights.layers[next ? layer : layer - 1].input_norm;
      rms_norm(capture.inputs(layer - 1), norm, c.rms_eps, normed.data(), rows, c.hidden);
      make_query(Forward::Phase::prefill, DType::f32, model, rope, pool, layer, normed.data(), positions,
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
    const std::size_t width = model.config.hidden;
    for (std::uint32_t n = 0; n < capture.queries(); ++n) {
      const float* before = capture.inputs(layer - 1) + n * width;
      const float* now = capture.inputs(layer) + n * width;
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
};

/// The numbers that are means over all queries.
std::vector<double*> shares(KvHeadStats& s) {
  std::vector<double*> all = {&s.sink_mass, &s.window_mass, &s.streaming};
  for (auto& budgets : s.budget)
    for (double& share : budgets) all.push_back(&share);
  return all;
}

/// From sums to means: over queries, pairs of them, and queries that have a prediction.
void divide(HeadStats& sums, double queries, double pairs, double predicted) {
  for (double* x : shares(sums)) *x /= queries;
  for (double* x : {&sums.token_overlap, &sums.block_overlap}) *x /= pairs;
  for (double* x : {&sums.cosine_next, &sums.cosine_own}) *x /= predicted;
}

HeadStats mean_of(const std::vector<HeadStats>& all) {
  HeadStats mean;
  double predicted = 0;
  const std::vector<double*> to = shares(mean);
  for (HeadStats head : all) {
    const std::vector<double*> from = shares(head);
    for (std::size_t i = 0; i < to.size(); ++i) *to[i] += *from[i];
    mean.token_overlap += head.token_overlap;
    mean.block_overlap += head.block_overlap;
    if (std::isnan(head.cosine_next)) continue;
    mean.cosine_next += head.cosine_next;
    mean.cosine_own += head.cosine_own;
    ++predicted;
  }
  divide(mean, double(all.size()), double(all.size()), predicted > 0 ? predicted : kNone);
  return mean;
}

}  // namespace

std::vector<HeadPrompt> ruler_head_prompts(const Model& model, const std::vector<std::string>& tasks,
                                           std::uint32_t length, std::uint32_t samples, std::uint64_t seed) {
  const TokenCounter counter = [&](std::string_view text) {
    return static_cast<std::uint32_t>(model.tokenizer->encode(text, /*add_bos=*/true).size());
  };
  std::vector<HeadPrompt> prompts;
  for (const std::string& task : tasks) {
    for (const RulerSample& sample : make_ruler_samples(task, length, samples, seed, counter)) {
      HeadPrompt prompt;
      prompt.name = fmt::format("{} {}", task, sample.index);
      prompt.tokens = model.tokenizer->encode(sample.prompt, /*add_bos=*/true);
      prompt.first_query = static_cast<std::uint32_t>(prompt.tokens.size() - 1);
      const auto answer = model.tokenizer->encode(" " + sample.answers.front(), /*add_bos=*/false);
      prompt.tokens.insert(prompt.tokens.end(), answer.begin(), answer.end());
      prompts.push_back(std::move(prompt));
    }
  }
  return prompts;
}

std::vector<HeadPrompt> text_head_prompts(const Model& model, std::string_view text, const std::string& name,
                                          std::uint32_t length, std::uint32_t samples) {
  if (const std::size_t valid = valid_utf8_bytes(text); valid < text.size())
    throw_input_error("--text-file '{}': byte {} (0x{:02x}) is no UTF-8. Convert the text first.", name, valid,
                      static_cast<unsigned char>(text[valid]));
  const auto bos = model.tokenizer->encode("", /*add_bos=*/true);
  const auto tokens = model.tokenizer->encode(text, /*add_bos=*/false);
  const std::size_t window = length - bos.size();
  if (tokens.size() < window) {
    throw_input_error("--text-file '{}' has {} tokens, but a window of --length needs {}: give a longer text.", name,
                      tokens.size(), window);
  }
  std::vector<HeadPrompt> prompts;
  for (std::uint32_t i = 0; i < samples; ++i) {
    const std::size_t begin = samples == 1 ? 0 : (tokens.size() - window) * i / (samples - 1);
    HeadPrompt prompt;
    prompt.name = fmt::format("text from token {}", begin);
    prompt.tokens = bos;
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(begin);
    prompt.tokens.insert(prompt.tokens.end(), first, first + static_cast<std::ptrdiff_t>(window));
    prompt.first_query = length - 1 - std::min(kTextQueries, length - 1);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

HeadStats LayerHeads::mean() const {
  return mean_of(q_heads);
}

HeadStats HeadProfile::mean() const {
  std::vector<HeadStats> all;
  for (const LayerHeads& layer : layers) all.insert(all.end(), layer.q_heads.begin(), layer.q_heads.end());
  return mean_of(all);
}

HeadProfile profile_heads(const Model& model, Engine& engine, ThreadPool& pool, const std::vector<HeadPrompt>& prompts,
                          const HeadOptions& options, const ProfileProgress& progress) {
  const ModelConfig& c = model.config;
  const RopeTable rope = make_rope_table(c.head_dim, c.rope);
  HeadProfile profile;
  profile.options = options;
  profile.layers.assign(c.layers, {std::vector<HeadStats>(c.q_heads), std::vector<KvHeadStats>(c.kv_heads), {}});
  std::uint64_t pairs = 0;
  for (const HeadPrompt& prompt : prompts) {
    TANDEM_CHECK(std::size_t{prompt.first_query} + 1 < prompt.tokens.size(), "prompt '{}' has no decode query",
                 prompt.name);
    const HeadCapture capture = captured_prompt(engine, prompt.tokens, prompt.first_query);
    PromptProfiler profiler{model, pool, options, capture, rope};
    for (std::uint32_t layer = 0; layer < c.layers; ++layer) profiler.add_layer(layer, profile.layers[layer]);
    profile.queries += capture.queries();
    pairs += capture.queries() - 1;
    profile.tokens += prompt.tokens.size();
    ++profile.prompts;
    if (progress) progress(profile.prompts, prompts.size());
  }
  const double queries = double(profile.queries);
  for (LayerHeads& layer : profile.layers) {
    const double predicted = &layer == profile.layers.data() ? kNone : queries;
    for (HeadStats& head : layer.q_heads) divide(head, queries, pairs > 0 ? double(pairs) : kNone, predicted);
    for (KvHeadStats& head : layer.kv_heads)
      for (double* x : shares(head)) *x /= queries;
    for (double* x : {&layer.input.cosine, &layer.input.added}) *x /= predicted;
  }
  return profile;
}

}  // namespace tandem::eval
