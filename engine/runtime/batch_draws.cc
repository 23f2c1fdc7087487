#include "engine/runtime/batch_draws.h"

#include <map>

namespace tandem {

void BatchDraws::share(std::span<const std::uint64_t> kinds, std::uint32_t drawn) {
  constexpr std::uint32_t kMoreForLayers = 4;
  for (const By by : {By::heads, By::layer}) {
    std::vector<std::uint32_t>& as = drawn_as_[static_cast<std::size_t>(by)];
    as.resize(kinds.size());
    const std::uint32_t most = drawn * (by == By::layer ? kMoreForLayers : 1);
    std::map<std::uint64_t, std::vector<std::uint32_t>> alike;
    for (std::uint32_t request = 0; request < kinds.size(); ++request) {
      std::vector<std::uint32_t>& own = alike[kinds[request]];
      own.push_back(request);
      as[request] = most == 0 ? request : own[(own.size() - 1) % most];
    }
  }
}

ScorePlace BatchDraws::place(std::uint32_t request, std::uint32_t layer, std::uint32_t step, By by) {
  asked_[static_cast<std::size_t>(by)] = true;
  return {drawn_as_[static_cast<std::size_t>(by)].at(request), layer, 0, step};
}

std::uint32_t BatchDraws::drawn_as(std::uint32_t request) const {
  for (const By by : {By::heads, By::layer})
    if (asked_[static_cast<std::size_t>(by)]) return drawn_as_[static_cast<std::size_t>(by)].at(request);
  return request;
}

void BatchDraws::for_each_head(const ScorePlace& layer, const auto& work) {
  pool_.parallel_for(shape_.kv_heads, [&](std::size_t kv_head) {
    ScorePlace at = layer;
    at.kv_head = static_cast<std::uint32_t>(kv_head);
    work(at);
  });
}

const std::vector<std::uint32_t>& BatchDraws::chosen_blocks(const ScorePlace& layer, const Choice& choice) {
  return chosen_.get(layer, choice, [&] {
    std::vector<float> scores(std::size_t{shape_.q_heads} * choice.blocks);
    for_each_head(layer, [&](const ScorePlace& at) {
      process_.block_scores(at, choice.blocks,
                            scores.data() + std::size_t{at.kv_head} * shape_.group() * choice.blocks);
    });
    std::vector<std::uint32_t> lists(choice.lists(shape_) * (1 + std::size_t{choice.keep}));
    choose_blocks(pool_, shape_, choice, scores.data(), lists.data(), choice.keep);
    return lists;
  });
}

const std::vector<float>& BatchDraws::block_scores(const ScorePlace& head, std::uint32_t n) {
  ScorePlace layer = head;
  layer.kv_head = 0;
  return scores_.get(layer, {head.kv_head, n}, [&] {
    std::vector<float> scores(std::size_t{shape_.group()} * n);
    process_.block_scores(head, n, scores.data());
    return scores;
  });
}

const std::vector<std::uint32_t>& BatchDraws::salient_tokens(const ScorePlace& layer, Range tokens, double times) {
  // The whole prompt is asked for once for each sequence, all layers one after another.
  ScorePlace own = layer;
  own.sequence = layer.sequence * shape_.layers + layer.layer;
  return salient_.get(own, {tokens, times}, [&] {
    std::vector<std::uint32_t> found(shape_.kv_heads);
    for_each_head(layer, [&](const ScorePlace& at) {
      found[at.kv_head] = process_.salient_tokens(at, tokens.begin, tokens.end - tokens.begin, times);
    });
    return found;
  });
}

double BatchDraws::tokens_near_best(const ScorePlace& layer, std::uint32_t n, double alpha) {
  return near_.get(layer, {n, alpha}, [&] {
    double near = 0;
    ScorePlace at = layer;
    for (at.kv_head = 0; at.kv_head < shape_.kv_heads; ++at.kv_head) near += process_.tokens_near_best(at, n, alpha);
    return near;
  });
}

}  // namespace tandem
