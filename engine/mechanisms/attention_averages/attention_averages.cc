#include "engine/mechanisms/attention_averages/attention_averages.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/paged_attention.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/row_scores.h"

namespace tandem {
namespace {

/// Of `left` queries from `position` on those that are looked at by one launch: side by side in their ring, and no more
/// than have room for their scores.
std::uint32_t queries_together(std::uint32_t position, std::uint32_t left, std::uint32_t kept, std::uint32_t most) {
  return std::min({left, most, kept - position % kept});
}

}  // namespace

AverageRef AttentionAverages::make(SequenceState& sequence, std::uint32_t window_tokens, float share) {
  AttentionAverage average = tandem::make_average(device_, sequence.id, kv_.shape().layers, forward_.shape().q_heads,
                                                  window_tokens, sequence.max_tokens);
  average.share = share;
  return {kept_.add(std::move(average))};
}

void AttentionAverages::observe_prompt(SequenceState& sequence, const ObserveRequest& request) {
  AttentionAverage& average = kept_.get(request.average.id);
  const Range leaving{request.device_begin, request.window_begin};
  TANDEM_CHECK(request.prompt.end == sequence.tokens && leaving.begin % kPageTokens == 0 &&
                   leaving.end % kPageTokens == 0 && leaving.begin <= leaving.end && leaving.end <= sequence.tokens &&
                   leaving.begin <= request.prompt.begin,
               "a prompt of tokens [{}, {}) of {}, on the device from {} on, a window from {} on", request.prompt.begin,
               request.prompt.end, sequence.tokens, leaving.begin, leaving.end);
  TANDEM_CHECK(sequence.tokens - leaving.end <= average.ring, "a window of {} tokens in a ring of {}",
               sequence.tokens - leaving.end, average.ring);
  if (request.prompt.begin == request.prompt.end) return;
  // Weights of the tokens before the window, one layer at a time, on their way to the host.
  const std::uint32_t count = leaving.end - leaving.begin;
  DeviceBuffer before;
  if (count > 0)
    before = device_.allocate_device(std::size_t{average.q_heads} * count * sizeof(float), "prompt weights");
  Event copied;
  for (std::uint32_t layer = 0; layer < average.layers; ++layer) {
    const Event observed = observe_layer(sequence, request, layer, before, copied);
    average.updated[layer] = observed;
    if (count == 0) continue;
    Op op("offload averages", Cause::offload, layer);
    op.access = {before.reads(), average.left.access(layer, leaving, true)};
    op.after = {observed};
    set_copies(op, [&average, before, layer, leaving, count](Copier& copier) {
      Copier::Between weights = copier.between(average.left.values, before);
      for (std::uint32_t head = 0; head < average.q_heads; ++head)
        weights.add((average.left.offset(layer, head) + leaving.begin) * sizeof(float),
                    std::size_t{head} * count * sizeof(float), count * sizeof(float));
    });
    copied = ask(LaneKind::d2h, std::move(op));
    average.moved[layer] = copied;
  }
}

/// Its tokens and scores are counted from the first token on the device.
Event AttentionAverages::observe_layer(const SequenceState& sequence, const ObserveRequest& request,
                                       std::uint32_t layer, const DeviceBuffer& before, Event before_free) {
  const PromptQueries& queries = parts_.queries_of(sequence.id);
  const AttentionAverage& average = kept_.get(request.average.id);
  const KvShape& shape = kv_.shape();
  const std::uint32_t begin = request.device_begin, tokens = sequence.tokens - begin,
                      leaving = request.window_begin - begin,
                      observed = std::min({request.queries, queries.kept, request.prompt.end - request.prompt.begin});
  const Range blocks{begin / kPageTokens, blocks_for(sequence.tokens)}, window{request.window_begin, sequence.tokens};
  Op op("observe prompt", Cause::selection, layer);
  op.cost.work = Work::gemm;
  // Of some queries at a time: pages, scores, their sums, weights before the window and in it.
  const std::size_t floats = std::size_t{average.q_heads} * (blocks.end - blocks.begin) * kPageTokens;
  const std::uint32_t together = rows_together(forward_.score_floats(), floats, observed);
  std::uint32_t rounds = 0;
  for (std::uint32_t left = observed; left > 0; ++rounds)
    left -= queries_together(sequence.tokens - left, left, queries.kept, together);
  op.cost.kernels = rounds * (leaving > 0 ? 5 : 4);
  op.cost.heavy = std::max(op.cost.kernels - rounds, 1u);  // all but the lists of pages go over the scores
  op.cost.hbm = std::uint64_t{tokens} * shape.kv_heads * shape.vector_bytes() +
                std::uint64_t{average.q_heads} * (observed * shape.head_dim + tokens) * sizeof(float);
  op.cost.flops = std::uint64_t{2} * observed * tokens * average.q_heads * shape.head_dim;
  op.access = {queries.values.reads(layer, layer + 1)};
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence.id, layer, blocks, Tier::device);
  average.append_window_access(layer, window, true, op.access);
  if (leaving > 0) op.access.push_back(before.writes());
  if (leaving > 0) wait_for(op.after, before_free);
  const float in_all = 1.0f / static_cast<float>(observed);  // share of a query
  const float in_window = 1.0f / static_cast<float>(std::min(observed, tokens - leaving));
  op.body = [this, &average, queries, window, begin, tokens, leaving, layer, before, observed, in_all, in_window,
             slots](BodyContext& ctx) {
    const KvShape& s = kv_.shape();
    const std::uint32_t group = average.q_heads / s.kv_heads;
    const char* pages = ctx.read<char>(kv_.device_buffer());
    const float* kept =
        ctx.read<float>(queries.values) + std::size_t{layer} * queries.kept * average.q_heads * s.head_dim;
    float* ring = ctx.write<float>(average.window);
    float* outside = leaving > 0 ? ctx.write<float>(before) : nullptr;
    pool_.parallel_for(s.kv_heads, [&](std::size_t kv_head) {
      std::vector<float> sums(std::size_t{group} * tokens);
      RowScores scores({group, s.head_dim, s.type}, tokens);
      scores.each(
          tokens - observed, observed,
          [&](std::uint32_t row) {
            const std::uint32_t position = begin + tokens - observed + row;
            return kept + (std::size_t{position % queries.kept} * average.q_heads + kv_head * group) * s.head_dim;
          },
          [&](std::uint32_t page) { return pages + kv_.k_offset(slots[page], static_cast<std::uint32_t>(kv_head)); },
          [&](std::uint32_t row, std::uint32_t g, const float* own) {
            const std::uint32_t seen = tokens - observed + row + 1, left = std::min(leaving, seen);
            float* sum = sums.data() + std::size_t{g} * tokens;
            if (left > 0) blend_weights(own, log_sum_exp(own, seen), left, 1, in_all, sum);
            if (seen > left)
              blend_weights(own + left, log_sum_exp(own + left, seen - left), seen - left, 1, in_window, sum + left);
          });
      for (std::uint32_t g = 0; g < group; ++g) {
        const auto head = static_cast<std::uint32_t>(kv_head * group + g);
        const float* sum = sums.data() + std::size_t{g} * tokens;
        if (outside != nullptr) std::copy_n(sum, leaving, outside + std::size_t{head} * leaving);
        float* own = ring + average.window_offset(layer, head);
        average.for_each_run(window, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
          std::copy_n(sum + (token - begin), count, own + at);
        });
      }
    });
  };
  // Some queries at a time, as many as there is room for scores of.
  op.launch = [&](LaunchContext& ctx) {
    const std::uint32_t heads = average.q_heads, group = heads / shape.kv_heads;
    const auto pages = static_cast<std::uint32_t>(slots.size());
    const std::size_t columns = std::size_t{pages} * kPageTokens;
    const float* const kept =
        ctx.read<float>(queries.values) + std::size_t{layer} * queries.kept * heads * shape.head_dim;
    auto* const scores = ctx.scratch<float>(together * heads * columns);
    auto* const lse = ctx.scratch<float>(std::size_t{2} * heads * together);  // [head][part][query]
    const auto* const placed = ctx.upload(slots);
    for (std::uint32_t first = 0; first < observed;) {
      const std::uint32_t seen = tokens - observed + 1 + first;  // by the first of these queries
      const std::uint32_t place = (begin + seen - 1) % queries.kept;
      const std::uint32_t rows = queries_together(begin + seen - 1, observed - first, queries.kept, together);
      std::vector<WholePages> lists(rows);
      for (std::uint32_t row = 0; row < rows; ++row) lists[row] = {seen + row, nullptr, placed};
      paged_token_scores_cuda(kept + std::size_t{place} * heads * shape.head_dim, rows, group, device_pages(ctx, kv_),
                              list_whole_pages(ctx, lists, false, pages), scores, ctx.stream());
      // Tokens before the window by the softmax over all, those in it by the softmax over the window.
      std::vector<ScoreRow> sums;
      std::vector<WeightBlend> outside, inside;
      for (std::uint32_t head = 0; head < heads; ++head) {
        float* const own = lse + std::size_t{2} * head * rows;
        const float* const of_head = scores + head * columns;
        for (std::uint32_t row = 0; row < rows; ++row) {
          const float* const of_query = of_head + row * heads * columns;
          sums.push_back({of_query, tokens, own + row});
          sums.push_back({of_query + leaving, tokens - leaving, own + rows + row});
        }
        if (leaving > 0)
          outside.push_back({of_head, own, ctx.write<float>(before) + std::size_t{head} * leaving, heads * columns,
                             leaving, rows, first == 0 ? leaving : 0});
        float* const ring = ctx.write<float>(average.window) + average.window_offset(layer, head);
        average.for_each_run(window, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
          inside.push_back(
              {of_head + (token - begin), own + rows, ring + at, heads * columns, count, rows, first == 0 ? count : 0});
        });
      }
      log_sum_exp_cuda(ctx.pass(sums), static_cast<std::uint32_t>(sums.size()), ctx.stream());
      blend_weights_cuda(ctx.pass(outside), static_cast<std::uint32_t>(outside.size()), leaving, 1, in_all,
                         ctx.stream());
      blend_weights_cuda(ctx.pass(inside), static_cast<std::uint32_t>(inside.size()), tokens - leaving, 1, in_window,
                         ctx.stream());
      first += rows;
    }
  };
  return ask(LaneKind::device_compute, std::move(op));
}

void AttentionAverages::extend(SequenceState& sequence, AverageRef ref, std::uint32_t window_tokens) {
  AttentionAverage& average = kept_.get(ref.id);
  const AttentionAverage old = average;
  average = tandem::make_average(device_, old.sequence, old.layers, old.q_heads,
                                 std::max(window_tokens, old.ring - kPageTokens), sequence.max_tokens);
  average.share = old.share;
  // Tokens that left the window long ago are copied too: theirs are the values nobody reads.
  const Range kept{sequence.tokens - std::min(sequence.tokens, old.ring), sequence.tokens};
  Op op("extend averages");
  op.access = {old.window.reads(), average.window.writes()};
  set_copies(op, [old, average, kept](Copier& copier) {
    Copier::Between copies = copier.between(average.window, old.window);
    for (std::uint32_t layer = 0; layer < old.layers; ++layer) {
      for (std::uint32_t head = 0; head < old.q_heads; ++head) {
        const std::size_t from = old.window_offset(layer, head), to = average.window_offset(layer, head);
        old.for_each_run(kept, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
          average.for_each_run({token, token + count}, [&](std::uint32_t part, std::uint32_t there, std::uint32_t n) {
            copies.add((to + there) * sizeof(float), (from + at + part - token) * sizeof(float), n * sizeof(float));
          });
        });
      }
    }
  });
  ask(LaneKind::device_compute, std::move(op));
}

void AttentionAverages::take_weights(const LayerContext& context, std::span<const EmittedWeights> rows,
                                     const DeviceBuffer& scores, const DeviceBuffer& lse) {
  struct Row : EmittedWeights {
    AttentionAverage* average = nullptr;
  };
  std::vector<Row> emitted;
  emitted.reserve(rows.size());
  for (const EmittedWeights& row : rows) emitted.push_back({row, &kept_.of(context.batch[row.row]->id, row.id)});
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  Op op("update averages", Cause::none, layer);
  op.access = {scores.reads()};
  for (const Row& e : emitted) {
    AttentionAverage& average = *e.average;
    const std::uint64_t values = std::uint64_t{shape.q_heads} * (e.tokens.end - e.tokens.begin);
    op.cost.hbm += 3 * values * sizeof(float);  // scores in, averages in and out
    op.cost.context += 2 * values * sizeof(float);
    op.cost.flops += 10 * values;
    op.access.push_back(lse.reads(e.row, e.row + 1));
    average.append_window_access(layer, e.tokens, true, op.access);
    if ((e.tokens.end - 1) % kPageTokens == 0)  // a page of the ring is used again
      wait_for(op.after, average.copied_page(layer, e.tokens.end - 1));
  }
  const auto blends_of = [heads = shape.q_heads, layer, scores, lse](const BodyContext& ctx, const Row& e,
                                                                     std::uint32_t head) {
    std::vector<WeightBlend> blends;
    const float* row = ctx.read<float>(scores) + e.offset + head * e.stride;
    const float* log_sum = ctx.read<float>(lse) + std::size_t{e.row} * heads + head;
    float* window = ctx.write<float>(e.average->window) + e.average->window_offset(layer, head);
    e.average->for_each_run(e.tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
      blends.push_back({row + (token - e.tokens.begin), log_sum, window + at, e.stride, count, 1,
                        token + count == e.tokens.end ? 1u : 0u});  // the step's own token is new
    });
    return blends;
  };
  op.body = [this, heads = shape.q_heads, emitted, blends_of](BodyContext& ctx) {
    pool_.parallel_for(emitted.size() * heads, [&](std::size_t i) {
      const Row& e = emitted[i / heads];
      for (const WeightBlend& blend : blends_of(ctx, e, static_cast<std::uint32_t>(i % heads))) {
        std::fill_n(blend.average + blend.n - blend.fresh, blend.fresh, 0.0f);
        blend_weights(blend.scores, *blend.lse, blend.n, 1 - e.average->share, e.average->share, blend.average);
      }
    });
  };
  op.launch = [&](LaunchContext& ctx) {
    const float share = emitted.front().average->share;
    std::vector<WeightBlend> blends;
    std::uint32_t most = 0;
    for (const Row& e : emitted) {
      TANDEM_CHECK(e.average->share == share, "the rows of a batch average alike");
      for (std::uint32_t head = 0; head < shape.q_heads; ++head) {
        for (const WeightBlend& blend : blends_of(ctx, e, head)) {
          blends.push_back(blend);
          most = std::max(most, blend.n);
        }
      }
    }
    blend_weights_cuda(ctx.pass(blends), static_cast<std::uint32_t>(blends.size()), most, 1 - share, share,
                       ctx.stream());
  };
  const Event done = device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
  for (const Row& e : emitted) e.average->updated[layer] = done;
}

void AttentionAverage::declare_move(std::uint32_t layer, Range tokens, Op& op) {
  append_window_access(layer, tokens, false, op.access);
  op.access.push_back(left.access(layer, tokens, true));
  wait_for(op.after, updated[layer]);
}

void AttentionAverage::move(Copier& copier, std::uint32_t layer, Range tokens) const {
  for (std::uint32_t head = 0; head < q_heads; ++head) {
    const std::size_t from = window_offset(layer, head), to = left.offset(layer, head);
    Copier::Between weights = copier.short_runs(left.values, window);
    for_each_run(tokens, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
      weights.add((to + token) * sizeof(float), (from + at) * sizeof(float), count * sizeof(float));
    });
  }
}

void AttentionAverage::moved_by(std::uint32_t layer, Range tokens, Event done) {
  for (std::uint32_t token = tokens.begin; token < tokens.end; token += kPageTokens) copied_page(layer, token) = done;
}

}  // namespace tandem
