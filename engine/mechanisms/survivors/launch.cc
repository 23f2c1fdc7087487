// Heavy hitters on a GPU: the twins of the bodies in survivors.cc.
#include <algorithm>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/paged_attention.h"
#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "engine/mechanisms/survivors/work.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {

/// [arriving] the weights of the prompt's latest query, summed over all heads.
const float* Survivors::launch_latest_weights(LaunchContext& ctx, const Competition& work,
                                              const std::uint32_t* slots) const {
  const ModelShape& shape = attention_.shape();
  const std::uint32_t tokens = work.added(), pages = blocks_for(tokens);
  if (work.held > 0 || work.arriving.begin > 0)
    no_cuda_code("A further prompt whose tokens compete with those that survived has");
  const std::size_t columns = std::size_t{pages} * kPageTokens;
  auto* const scores = ctx.scratch<float>(shape.q_heads * columns);
  auto* const lse = ctx.scratch<float>(shape.q_heads);
  auto* const weights = ctx.scratch<float>(tokens);
  const PageLists lists = list_whole_pages(ctx, {{tokens, nullptr, slots}}, false, pages);
  paged_token_scores_cuda(ctx.read<float>(work.queries.values) + work.query_offset(shape), 1, shape.group(),
                          device_pages(ctx, kv_), lists, scores, ctx.stream());
  std::vector<ScoreRow> rows(shape.q_heads);
  for (std::uint32_t head = 0; head < shape.q_heads; ++head) rows[head] = {scores + head * columns, tokens, lse + head};
  log_sum_exp_cuda(ctx.pass(rows), shape.q_heads, ctx.stream());
  const std::vector<WeightBlend> sum = {{scores, lse, weights, columns, tokens, shape.q_heads, tokens}};
  blend_weights_cuda(ctx.pass(sum), 1, tokens, 1, 1, ctx.stream());
  return weights;
}

void Survivors::launch_competition(LaunchContext& ctx, const Competition& work) const {
  const KvShape& shape = kv_.shape();
  const auto* const slots = ctx.upload(work.slots);
  const float* const latest = work.by_latest() ? launch_latest_weights(ctx, work, slots) : nullptr;
  std::vector<HeavyCompetition> sets(shape.kv_heads);
  for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
    sets[g] = competition(ctx, work, g);
    sets[g].slots = slots;
    if (latest != nullptr) sets[g].arriving = latest;
    // By position: a set without new tokens has some of all that were before.
    const std::uint32_t end = work.last + 1;
    if (work.added() == 0) sets[g].arriving_begin = sets[g].arriving_end = end;
    sets[g].scratch = ctx.scratch<std::uint32_t>(std::size_t{end} + work.to.room);
  }
  const KvPages pages{work.added() > 0 ? ctx.read<char>(kv_.device_buffer()) : nullptr, shape.type, shape.kv_heads,
                      shape.head_dim};
  keep_heavy_cuda(ctx.upload(sets), shape.kv_heads, sets.front().kept(), pages, ctx.stream());
}

/// Scores: [rows][Hq][16] of the own tokens' pages, then [rows][Hq] of all places, whole pages of the fullest set.
void Survivors::launch_update(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                              const std::vector<Row>& rows, const DeviceBuffer& scores_of_rows,
                              const DeviceBuffer& lse) const {
  const std::uint32_t group = shape.group();
  std::uint32_t most = 0;
  for (const Row& row : rows) most = std::max(most, row.held);
  const std::size_t stride = std::size_t{blocks_for(most)} * kPageTokens,
                    own_scores = rows.size() * shape.q_heads * kPageTokens;
  const auto* const scores = ctx.read<float>(scores_of_rows);
  std::vector<HeavyStep> steps;
  for (const Row& row : rows) {
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::size_t head = std::size_t{row.row} * shape.q_heads + g * group;
      HeavyStep one = row.step(ctx, layer, g, group, ctx.read<float>(lse));
      one.own = scores + head * kPageTokens + row.position % kPageTokens;
      one.own_stride = kPageTokens;
      one.scores = scores + own_scores + head * stride;
      one.stride = stride;
      steps.push_back(one);
    }
  }
  const KvPages pages = device_pages(ctx, kv_);
  if (rows.front().set.latest) {
    update_heavy_alike_cuda(ctx.pass(steps), static_cast<std::uint32_t>(rows.size()), shape.kv_heads, most, group,
                            pages, ctx.stream());
  } else {
    update_heavy_cuda(ctx.pass(steps), static_cast<std::uint32_t>(steps.size()), group, pages, ctx.stream());
  }
}

}  // namespace tandem
