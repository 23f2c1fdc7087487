// The attention mass that a prompt's tokens get from its queries (H2O), in prefill: scores of every query with all
// tokens before it, their softmax, and its sum over the query heads of a KV head.
#include <algorithm>
#include <vector>

#include "engine/device/launch_context.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/paged_attention.h"
#include "engine/runtime/forward.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/row_scores.h"

namespace tandem {

Event Forward::add_column_sums(SequenceId sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t rows,
                               const PromptSums& sums) {
  const std::uint32_t blocks = blocks_for(first + rows);
  Op op(kColumnSums, Cause::none, layer);
  op.cost.work = Work::gemm;
  const std::uint64_t pairs = std::uint64_t{rows} * first + std::uint64_t{rows} * (rows + 1) / 2;
  op.cost.flops = 2 * pairs * shape_.q_heads * shape_.head_dim;
  constexpr std::uint64_t kPasses = 3;  // over the scores: written, summed up, and taken to their columns
  op.cost.hbm = std::uint64_t{first + rows} * shape_.kv_heads * (kv_.shape().vector_bytes() + 2 * sizeof(float)) +
                std::uint64_t{rows} * shape_.q_heads * shape_.head_dim * sizeof(float) +
                kPasses * pairs * shape_.q_heads * sizeof(float);
  // Of some queries at a time: pages, scores, their sums, and the heads of a group one after another.
  const std::uint32_t together = rows_together(score_floats_, std::size_t{shape_.q_heads} * blocks * kPageTokens, rows);
  const std::uint32_t rounds = rounds_of(rows, together);
  op.cost.kernels = rounds * (3 + shape_.group());
  op.cost.heavy = op.cost.kernels - rounds;  // all but the lists of pages go over the scores
  op.access = {q_.reads(0, rows), sums.values.writes(layer, layer + 1)};
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence, layer, {0, blocks}, Tier::device);
  op.launch = [&](LaunchContext& ctx) {
    const std::size_t columns = std::size_t{blocks} * kPageTokens;
    const std::uint32_t heads = shape_.q_heads, group = shape_.group();
    auto* const scores = ctx.scratch<float>(together * heads * columns);
    auto* const lse = ctx.scratch<float>(std::size_t{heads} * together);  // [head][query]
    const auto* const placed = ctx.upload(slots);
    const auto* const query = ctx.read<float>(q_);
    auto* const mass = ctx.write<float>(sums.values) + std::size_t{layer} * shape_.kv_heads * sums.room;
    for (std::uint32_t begin = 0; begin < rows; begin += together) {
      const std::uint32_t count = std::min(together, rows - begin),
                          seen = first + begin + count;  // by the last of them
      std::vector<WholePages> lists(count);
      for (std::uint32_t row = 0; row < count; ++row) lists[row] = {first + begin + row + 1, nullptr, placed};
      paged_token_scores_cuda(query + std::size_t{begin} * heads * shape_.head_dim, count, group,
                              device_pages(ctx, kv_), list_whole_pages(ctx, lists, false, blocks), scores,
                              ctx.stream());
      std::vector<ScoreRow> logs;
      logs.reserve(std::size_t{heads} * count);
      for (std::uint32_t head = 0; head < heads; ++head)
        for (std::uint32_t row = 0; row < count; ++row)
          logs.push_back({scores + (std::size_t{row} * heads + head) * columns, first + begin + row + 1,
                          lse + std::size_t{head} * count + row});
      log_sum_exp_cuda(ctx.pass(logs), static_cast<std::uint32_t>(logs.size()), ctx.stream());
      // The query heads of a group one after another: they add to the same sums. The queries' own tokens have none yet.
      for (std::uint32_t g = 0; g < group; ++g) {
        std::vector<WeightBlend> blends(shape_.kv_heads);
        for (std::uint32_t kv_head = 0; kv_head < shape_.kv_heads; ++kv_head) {
          const std::size_t head = std::size_t{kv_head} * group + g;
          blends[kv_head] = {scores + head * columns,
                             lse + head * count,
                             mass + std::size_t{kv_head} * sums.room,
                             heads * columns,
                             seen,
                             count,
                             g == 0 ? count : 0};
        }
        blend_weights_cuda(ctx.pass(blends), shape_.kv_heads, seen, 1, 1, ctx.stream());
      }
    }
  };
  op.body = [this, layer, first, rows, sums, slots](BodyContext& ctx) {
    const char* pages = ctx.read<char>(kv_.device_buffer());
    const float* query = ctx.read<float>(q_);
    const std::uint32_t group = shape_.group(), dim = shape_.head_dim;
    pool_.parallel_for(shape_.kv_heads, [&](std::size_t task) {
      const auto head = static_cast<std::uint32_t>(task);
      float* mass = ctx.write<float>(sums.values) + (std::size_t{layer} * shape_.kv_heads + head) * sums.room;
      std::fill_n(mass + first, rows, 0.0f);
      RowScores scores({group, dim, kv_.shape().type}, first + rows);
      scores.each(
          first, rows,
          [&](std::uint32_t row) { return query + (std::size_t{row} * shape_.q_heads + head * group) * dim; },
          [&](std::uint32_t page) { return pages + kv_.k_offset(slots[page], head); },
          [&](std::uint32_t row, std::uint32_t, const float* own) {
            const std::uint32_t seen = first + row + 1;
            blend_weights(own, log_sum_exp(own, seen), seen, 1, 1, mass);
          });
    });
  };
  return device_.submit(compute_, std::move(op));
}

}  // namespace tandem
