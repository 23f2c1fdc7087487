#include "eval/predict/record.h"

#include <algorithm>

#include "engine/common/error.h"
#include "eval/heads/capture.h"
#include "eval/heads/head_stats.h"

namespace tandem::eval {
namespace {

constexpr std::uint32_t kObserved = 64;  // queries behind a mean weight
static_assert(kRecordedTokens > 2 * kObserved + 1);
constexpr std::uint32_t kCompared = 8;  // last queries whose choices are compared

struct Sums {
  double above = 0;  // share of tokens above the mean weight
  double group = 0;  // overlap with the other heads of the group
  double step = 0;   // overlap with the query before
};

/// Shares above the mean weight of the tokens before the observed queries.
double share_above(const HeadCapture& capture, const ModelShape& shape, std::uint32_t layer, std::uint32_t head) {
  const std::uint32_t kv_head = head / shape.group(), before = capture.position(0);
  std::vector<double> mean(before);
  for (std::uint32_t n = 0; n < capture.queries(); ++n) {
    const float* q = capture.query(layer, n) + std::size_t{head} * shape.head_dim;
    const std::vector<double> weights =
        softmax(attention_scores(q, capture.keys(layer, kv_head), capture.position(n) + 1, shape.head_dim));
    for (std::uint32_t t = 0; t < before; ++t) mean[t] += weights[t] / capture.queries();
  }
  const double even = 1.0 / (capture.position(0) + capture.queries());
  const auto above = std::ranges::count_if(mean, [even](double w) { return w > even; });
  return double(above) / before;
}

void add_overlaps(const HeadCapture& capture, const ModelShape& shape, std::uint32_t layer, std::uint32_t kv_head,
                  std::vector<Sums>& sums) {
  const std::uint32_t group = shape.group(), last = capture.queries(), first = last - std::min(last - 1, kCompared);
  const auto bounds = [&](std::uint32_t g, std::uint32_t n, std::uint32_t seen) {
    const float* q = capture.query(layer, n) + (std::size_t{kv_head} * group + g) * shape.head_dim;
    return block_bounds(q, capture.keys(layer, kv_head), seen, shape.head_dim);
  };
  for (std::uint32_t n = first; n < last; ++n) {
    const std::uint32_t seen = capture.position(n - 1) + 1;  // both queries choose among what the earlier one saw
    std::vector<std::vector<float>> now;
    now.reserve(group);
    for (std::uint32_t g = 0; g < group; ++g) now.push_back(bounds(g, n, seen));
    for (std::uint32_t g = 0; g < group; ++g) {
      Sums& sum = sums[kv_head * group + g];
      sum.step += top_overlap(bounds(g, n - 1, seen), now[g]) / (last - first);
      for (std::uint32_t other = 0; other < group; ++other)
        if (other != g) sum.group += top_overlap(now[g], now[other]) / ((group - 1) * (last - first));
    }
  }
}

}  // namespace

Workload record_workload(const Model& model, Engine& engine, ThreadPool& pool, const std::vector<HeadPrompt>& prompts) {
  const ModelShape shape = engine.shape();
  std::vector<std::vector<Sums>> sums(shape.layers, std::vector<Sums>(shape.q_heads));
  for (const HeadPrompt& prompt : prompts) {
    const auto tokens = static_cast<std::uint32_t>(prompt.tokens.size() - 1);  // the last one is never computed
    TANDEM_CHECK(prompt.tokens.size() >= kRecordedTokens, "a prompt of {} tokens says nothing about a workload",
                 tokens);
    HeadCapture capture(shape, tokens, tokens - kObserved);
    {
      const Observation observation(engine, capture);
      engine.release(*engine.prefill(prompt.tokens));
    }
    pool.parallel_for(std::size_t{shape.layers} * shape.kv_heads, [&](std::size_t task) {
      const auto layer = static_cast<std::uint32_t>(task / shape.kv_heads);
      const auto kv_head = static_cast<std::uint32_t>(task % shape.kv_heads);
      for (std::uint32_t g = 0; g < shape.group(); ++g) {
        const std::uint32_t head = kv_head * shape.group() + g;
        sums[layer][head].above += share_above(capture, shape, layer, head);
      }
      add_overlaps(capture, shape, layer, kv_head, sums[layer]);
    });
  }
  Workload workload;
  workload.name = "recorded on " + model.name;
  workload.source = std::to_string(prompts.size()) + " prompts of this run, full attention";
  const double n = double(prompts.size()), fraction = 1.0 / kOverlapShare;
  for (const std::vector<Sums>& layer : sums) {
    std::vector<HeadWorkload> heads;
    heads.reserve(layer.size());
    for (const Sums& sum : layer)
      heads.push_back({concentration_of(sum.above / n), shape.group() > 1 ? correlation_of(sum.group / n, fraction) : 0,
                       correlation_of(sum.step / n, fraction)});
    workload.layers.push_back(std::move(heads));
  }
  return workload;
}

}  // namespace tandem::eval
