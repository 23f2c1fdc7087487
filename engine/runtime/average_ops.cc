// The parts of Ops that follow attention weights: averages from the prompt's last queries, and the tokens that they
// make worth keeping at hand.
#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/device/copy_list.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/paged_attention.h"
#include "engine/runtime/engine_ops.h"
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

AverageRef EngineOps::make_average(SequenceState& sequence, std::uint32_t window_tokens, float share) {
  AttentionAverage average = tandem::make_average(device_, sequence.id, kv_.shape().layers, attention_.q_heads(),
                                                  window_tokens, sequence.max_tokens);
  average.share = share;
  return {stores_.averages.add(std::move(average))};
}

void EngineOps::observe_prompt(SequenceState& sequence, const ObserveRequest& request) {
  AttentionAverage& average = stores_.averages.get(request.average.id);
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
    Op op;
    op.name = "offload averages";
    op.kind = Kind::copy;
    op.cause = Cause::offload;
    op.layer = layer;
    op.cost.d2h = std::uint64_t{average.q_heads} * count * sizeof(float);
    op.cost.pieces = average.q_heads;
    op.access = {before.reads(), average.left_access(layer, leaving, true)};
    op.after = {observed};
    op.body = [&average, before, layer, leaving, count](BodyContext& ctx) {
      const float* from = ctx.read<float>(before);
      for (std::uint32_t head = 0; head < average.q_heads; ++head) {
        std::copy_n(from + std::size_t{head} * count, count,
                    ctx.write<float>(average.left) + average.left_offset(layer, head) + leaving.begin);
      }
    };
    op.launch = [&](LaunchContext& ctx) {
      CopyList list;
      CopyList::Between weights = list.between(ctx.write<float>(average.left), ctx.read<float>(before));
      for (std::uint32_t head = 0; head < average.q_heads; ++head)
        weights.add((average.left_offset(layer, head) + leaving.begin) * sizeof(float),
                    std::size_t{head} * count * sizeof(float), count * sizeof(float));
      list.copy(CopyWay::over_link, ctx.stream());
    };
    copied = ask(LaneKind::d2h, std::move(op));
    average.moved[layer] = copied;
  }
}

/// Its tokens and scores are counted from the first token on the device.
Event EngineOps::observe_layer(const SequenceState& sequence, const ObserveRequest& request, std::uint32_t layer,
                               const DeviceBuffer& before, Event before_free) {
  const auto found = queries_.find(sequence.id);
  TANDEM_CHECK(found != queries_.end(), "sequence {} has no prompt queries", sequence.id);
  const PromptQueries& queries = found->second;
  const AttentionAverage& average = stores_.averages.get(request.average.id);
  const KvShape& shape = kv_.shape();
  const std::uint32_t begin = request.device_begin, tokens = sequence.tokens - begin,
                      leaving = request.window_begin - begin,
                      observed = std::min({request.queries, queries.kept, request.prompt.end - request.prompt.begin});
  const Range blocks{begin / kPageTokens, blocks_for(sequence.tokens)}, window{request.window_begin, sequence.tokens};
  Op op;
  op.name = "observe prompt";
  op.cause = Cause::selection;
  op.layer = layer;
  op.cost.work = Work::gemm;
  // Of some queries at a time: pages, scores, their sums, weights before the window and in it.
  const std::size_t floats = std::size_t{average.q_heads} * (blocks.end - blocks.begin) * kPageTokens;
  const std::uint32_t together = rows_together(attention_.score_floats(), floats, observed);
  std::uint32_t rounds = 0;
  for (std::uint32_t left = observed; left > 0; ++rounds)
    left -= queries_together(sequence.tokens - left, left, queries.kept, together);
  op.cost.kernels = rounds * (leaving > 0 ? 5 : 4);
  op.cost.heavy = std::max(op.cost.kernels - rounds, 1u);  // all but the lists of pages go over the scores
  op.cost.hbm = std::uint64_t{tokens} * shape.kv_heads * shape.vector_bytes() +
                std::uint64_t{average.q_heads} * (observed * shape.head_dim + tokens) * sizeof(float);
  op.cost.flops = std::uint64_t{2} * observed * tokens * average.q_heads * shape.head_dim;
  op.access = {queries.values.reads(layer, layer + 1)};
  kv_.append_access(sequence.id, layer, blocks, Tier::device, Range{0, shape.kv_heads}, false, op.access);
  average.append_window_access(layer, window, true, op.access);
  if (leaving > 0) op.access.push_back(before.writes());
  if (leaving > 0) wait_for(op.after, before_free);
  std::vector<std::uint32_t> slots;
  kv_.append_slots(sequence.id, layer, blocks, Tier::device, slots);
  op.body = [this, &average, queries, window, begin, tokens, leaving, layer, before, observed,
             slots](BodyContext& ctx) {
    const KvShape& s = kv_.shape();
    const std::uint32_t group = average.q_heads / s.kv_heads;
    const char* pages = ctx.read<char>(kv_.device_buffer());
    const float* kept =
        ctx.read<float>(queries.values) + std::size_t{layer} * queries.kept * average.q_heads * s.head_dim;
    float* ring = ctx.write<float>(average.window);
    float* outside = leaving > 0 ? ctx.write<float>(before) : nullptr;
    const float in_all = 1.0f / static_cast<float>(observed);
    const float in_window = 1.0f / static_cast<float>(std::min(observed, tokens - leaving));
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
  op.launch = [&](LaunchContext& ctx) {
    launch_observation(ctx, average, queries, {layer, begin, tokens, leaving, observed, window}, before, slots);
  };
  return ask(LaneKind::device_compute, std::move(op));
}

/// Some queries at a time, as many as there is room for scores of.
void EngineOps::launch_observation(LaunchContext& ctx, const AttentionAverage& average, const PromptQueries& queries,
                                   const Observation& o, const DeviceBuffer& before,
                                   const std::vector<std::uint32_t>& slots) const {
  const KvShape& s = kv_.shape();
  const std::uint32_t heads = average.q_heads, group = heads / s.kv_heads;
  const auto pages = static_cast<std::uint32_t>(slots.size());
  const std::size_t columns = std::size_t{pages} * kPageTokens;
  const std::uint32_t together = rows_together(attention_.score_floats(), heads * columns, o.observed);
  const float* const kept = ctx.read<float>(queries.values) + std::size_t{o.layer} * queries.kept * heads * s.head_dim;
  const float in_all = 1.0f / static_cast<float>(o.observed);
  const float in_window = 1.0f / static_cast<float>(std::min(o.observed, o.tokens - o.leaving));
  auto* const scores = ctx.scratch<float>(together * heads * columns);
  auto* const lse = ctx.scratch<float>(std::size_t{2} * heads * together);  // [head][part][query]
  const auto* const placed = ctx.upload(slots);
  for (std::uint32_t first = 0; first < o.observed;) {
    const std::uint32_t seen = o.tokens - o.observed + 1 + first;  // by the first of these queries
    const std::uint32_t place = (o.begin + seen - 1) % queries.kept;
    const std::uint32_t rows = queries_together(o.begin + seen - 1, o.observed - first, queries.kept, together);
    std::vector<WholePages> lists(rows);
    for (std::uint32_t row = 0; row < rows; ++row) lists[row] = {seen + row, nullptr, placed};
    paged_token_scores_cuda(kept + std::size_t{place} * heads * s.head_dim, rows, group,
                            {ctx.read<char>(kv_.device_buffer()), s.type, s.kv_heads, s.head_dim},
                            list_whole_pages(ctx, lists, false, pages), scores, ctx.stream());
    // Tokens before the window by the softmax over all, those in it by the softmax over the window.
    std::vector<ScoreRow> sums;
    std::vector<WeightBlend> outside, inside;
    for (std::uint32_t head = 0; head < heads; ++head) {
      float* const own = lse + std::size_t{2} * head * rows;
      const float* const of_head = scores + head * columns;
      for (std::uint32_t row = 0; row < rows; ++row) {
        const float* const of_query = of_head + row * heads * columns;
        sums.push_back({of_query, o.tokens, own + row});
        sums.push_back({of_query + o.leaving, o.tokens - o.leaving, own + rows + row});
      }
      if (o.leaving > 0)
        outside.push_back({of_head, own, ctx.write<float>(before) + std::size_t{head} * o.leaving, heads * columns,
                           o.leaving, rows, first == 0 ? o.leaving : 0});
      float* const ring = ctx.write<float>(average.window) + average.window_offset(o.layer, head);
      average.for_each_run(o.window, [&](std::uint32_t token, std::uint32_t at, std::uint32_t count) {
        inside.push_back(
            {of_head + (token - o.begin), own + rows, ring + at, heads * columns, count, rows, first == 0 ? count : 0});
      });
    }
    log_sum_exp_cuda(ctx.pass(sums), static_cast<std::uint32_t>(sums.size()), ctx.stream());
    blend_weights_cuda(ctx.pass(outside), static_cast<std::uint32_t>(outside.size()), o.leaving, 1, in_all,
                       ctx.stream());
    blend_weights_cuda(ctx.pass(inside), static_cast<std::uint32_t>(inside.size()), o.tokens - o.leaving, 1, in_window,
                       ctx.stream());
    first += rows;
  }
}

TokenSetRef EngineOps::make_token_set(SequenceState& sequence) {
  TokenSet set = tandem::make_token_set(device_, sequence.id, kv_.shape(), sequence.max_tokens);
  std::ranges::fill(device_.host_write<std::uint32_t>(set.counts), 0u);
  return {stores_.sets.add(std::move(set))};
}

Packed EngineOps::kv_of(TokenSetRef ref, std::uint32_t layer) {
  const TokenSet& set = stores_.sets.get(ref.id);
  const std::size_t list = set.index(layer, 0);
  Packed kv;
  kv.sequence = set.sequence;
  kv.side = Side::host;
  kv.ready = set.packed[layer];
  kv.memory = {TierBuffer(set.kv), set.kv_offset(list), 2 * set.half_bytes(), 0, set.capacity};
  kv.tokens = set.offered[layer];
  kv.count = {TierBuffer(set.counts), list, 1, 1};
  kv.masks = {TierBuffer(set.masks), list * set.capacity, set.capacity};
  set.append_access(layer, false, kv.access);
  return kv;
}

void EngineOps::renew_token_set(SequenceState& sequence, TokenSetRef set) {
  TokenSet& renewed = stores_.sets.get(set.id);
  renewed = tandem::make_token_set(device_, sequence.id, kv_.shape(), sequence.max_tokens);
  std::ranges::fill(device_.host_write<std::uint32_t>(renewed.counts), 0u);
}

void EngineOps::extend_token_set(SequenceState& sequence, TokenSetRef ref) {
  TokenSet& set = stores_.sets.get(ref.id);
  if (sequence.max_tokens <= set.capacity) return;
  const TokenSet old = set;
  set = tandem::make_token_set(device_, sequence.id, kv_.shape(), sequence.max_tokens);
  set.offered = old.offered;
  const std::uint64_t per_token = set.token_bytes();
  Op op;
  op.name = "extend token set";
  op.kind = Kind::copy;
  op.cause = Cause::selection;
  op.cost.upper_bound = true;
  for (std::uint32_t layer = 0; layer < old.shape.layers; ++layer) {
    op.cost.dram += 2 * per_token * old.offered[layer] * old.shape.kv_heads;
    old.append_access(layer, false, op.access);
    set.append_access(layer, true, op.access);
  }
  const auto run = [old, to = set, per_token](BodyContext& ctx, bool move) {
    const std::size_t lists = std::size_t{old.shape.layers} * old.shape.kv_heads, bytes = old.shape.vector_bytes();
    const auto* counts = ctx.read<std::uint32_t>(old.counts);
    std::copy_n(counts, lists, ctx.write<std::uint32_t>(to.counts));
    Cost cost;
    cost.dram = 2 * per_token * std::accumulate(counts, counts + lists, std::uint64_t{0});
    ctx.settle(cost);
    for (std::size_t list = 0; move && list < lists; ++list) {
      const std::size_t from = list * old.capacity, at = list * to.capacity;
      std::copy_n(ctx.read<std::uint32_t>(old.masks) + from, counts[list], ctx.write<std::uint32_t>(to.masks) + at);
      const char* source = ctx.read<char>(old.kv) + old.kv_offset(list);
      char* target = ctx.write<char>(to.kv) + to.kv_offset(list);
      std::copy_n(source, counts[list] * bytes, target);
      std::copy_n(source + old.half_bytes(), counts[list] * bytes, target + to.half_bytes());
    }
  };
  op.body = [run](BodyContext& ctx) { run(ctx, true); };
  op.stand_in = [run](BodyContext& ctx) { run(ctx, false); };
  const Event done = ask(LaneKind::host_workers, std::move(op));
  std::fill(set.packed.begin(), set.packed.end(), done);
}

void EngineOps::extend_average(SequenceState& sequence, AverageRef ref, std::uint32_t window_tokens) {
  AttentionAverage& average = stores_.averages.get(ref.id);
  const AttentionAverage old = average;
  average = tandem::make_average(device_, old.sequence, old.layers, old.q_heads,
                                 std::max(window_tokens, old.ring - kPageTokens), sequence.max_tokens);
  average.share = old.share;
  // Tokens that left the window long ago are copied too: theirs are the values nobody reads.
  const Range kept{sequence.tokens - std::min(sequence.tokens, old.ring), sequence.tokens};
  Op op;
  op.name = "extend averages";
  op.kind = Kind::copy;
  op.cost.hbm = std::uint64_t{2} * old.layers * old.q_heads * (kept.end - kept.begin) * sizeof(float);
  op.access = {old.window.reads(), average.window.writes()};
  op.body = [from = old, to = average, kept](BodyContext& ctx) {
    for (std::uint32_t layer = 0; layer < from.layers; ++layer) {
      for (std::uint32_t head = 0; head < from.q_heads; ++head) {
        const float* values = ctx.read<float>(from.window) + from.window_offset(layer, head);
        float* out = ctx.write<float>(to.window) + to.window_offset(layer, head);
        for (std::uint32_t t = kept.begin; t < kept.end; ++t) out[t % to.ring] = values[t % from.ring];
      }
    }
  };
  op.launch = [&](LaunchContext& ctx) {
    CopyList list;
    CopyList::Between copies = list.between(ctx.write<float>(average.window), ctx.read<float>(old.window));
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
    list.copy(CopyWay::within_device, ctx.stream());
  };
  ask(LaneKind::device_compute, std::move(op));
}

void EngineOps::keep_salient(SequenceState& sequence, std::uint32_t layer, const SalientRequest& request) {
  TokenSet& set = stores_.sets.get(request.set.id);
  const AttentionAverage& average = stores_.averages.get(request.average.id);
  const Range tokens = request.tokens;
  const KvShape& shape = kv_.shape();
  const std::uint32_t group = average.q_heads / shape.kv_heads;
  const Range blocks{tokens.begin / kPageTokens, blocks_for(tokens.end)};
  const std::uint64_t count = tokens.end - tokens.begin, per_token = set.token_bytes();
  TANDEM_CHECK(set.offered[layer] + count <= set.capacity, "{} tokens and {} more in a set with room for {}",
               set.offered[layer], count, set.capacity);
  Op op;
  op.name = "keep salient tokens";
  op.cause = Cause::selection;
  op.layer = layer;
  op.cost.work = Work::select;
  const std::uint64_t looked_at = count * average.q_heads * sizeof(float);
  op.cost.context = looked_at;
  op.cost.dram = looked_at + 2 * count * shape.kv_heads * per_token;  // read from its page, written to the set
  op.cost.tasks = shape.kv_heads;
  op.cost.upper_bound = true;
  op.access = {average.left_access(layer, tokens, false)};
  kv_.append_access(sequence.id, layer, blocks, Tier::host, Range{0, shape.kv_heads}, false, op.access);
  set.append_access(layer, true, op.access);
  kv_.append_filled(sequence.id, layer, blocks, Tier::host, op.after);
  wait_for(op.after, average.moved[layer]);
  std::vector<std::uint32_t> slots;
  kv_.append_slots(sequence.id, layer, blocks, Tier::host, slots);
  const auto settle = [looked_at, per_token](BodyContext& ctx, const std::vector<std::uint64_t>& kept) {
    Cost cost;
    cost.work = Work::select;
    cost.tasks = static_cast<std::uint32_t>(kept.size());
    cost.context = looked_at;
    cost.dram = looked_at + 2 * per_token * std::accumulate(kept.begin(), kept.end(), std::uint64_t{0});
    ctx.settle(cost);
  };
  const float threshold = request.times == 0 ? -1.0f : static_cast<float>(request.times / request.softmax_tokens);
  op.body = [this, &set, &average, layer, tokens, threshold, group, slots, settle](BodyContext& ctx) {
    const KvShape& s = kv_.shape();
    const char* pages = ctx.read<char>(kv_.host_buffer());
    const float* left = ctx.read<float>(average.left);
    auto* counts = ctx.write<std::uint32_t>(set.counts);
    auto* masks = ctx.write<std::uint32_t>(set.masks);
    char* packed = ctx.write<char>(set.kv);
    std::vector<std::uint64_t> kept(s.kv_heads);
    pool_.parallel_for(s.kv_heads, [&](std::size_t head) {
      const auto kv_head = static_cast<std::uint32_t>(head);
      const std::uint32_t n = tokens.end - tokens.begin;
      std::vector<std::uint32_t> mask(n), order(n);
      kept[head] = salient_masks(left + average.left_offset(layer, kv_head * group) + tokens.begin, average.capacity, n,
                                 group, threshold, mask.data());
      // By mask: attention goes fastest over runs of tokens that the same heads chose.
      std::iota(order.begin(), order.end(), 0u);
      std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return mask[a] < mask[b]; });
      const std::size_t list = set.index(layer, kv_head);
      char* to = packed + set.kv_offset(list) + counts[list] * s.vector_bytes();
      std::size_t at = list * set.capacity + counts[list];
      for (std::size_t i = n - kept[head]; i < n; ++i, ++at, to += s.vector_bytes()) {
        const std::uint32_t t = order[i] + tokens.begin % kPageTokens, slot = slots[t / kPageTokens];
        const std::size_t bytes = s.vector_bytes(), offset = t % kPageTokens * bytes;
        std::copy_n(pages + kv_.k_offset(slot, kv_head) + offset, bytes, to);
        std::copy_n(pages + kv_.v_offset(slot, kv_head) + offset, bytes, to + set.half_bytes());
        masks[at] = mask[order[i]];
      }
      counts[list] += static_cast<std::uint32_t>(kept[head]);
    });
    settle(ctx, kept);
  };
  op.stand_in = [this, &set, layer, tokens, times = request.times, number = sequence.request,
                 settle](BodyContext& ctx) {
    const std::uint32_t heads = kv_.shape().kv_heads;
    auto* counts = ctx.write<std::uint32_t>(set.counts);  // all that other stand-ins read of a set
    const std::vector<std::uint32_t>& salient =
        draws_->salient_tokens(draws_->place(number, layer, 0, BatchDraws::By::heads), tokens, times);
    const std::vector<std::uint64_t> kept(salient.begin(), salient.end());
    for (std::uint32_t head = 0; head < heads; ++head) counts[set.index(layer, head)] += salient[head];
    settle(ctx, kept);
  };
  const Event done = ask(LaneKind::host_workers, std::move(op));
  set.offered[layer] += static_cast<std::uint32_t>(count);
  set.packed[layer] = done;
}

}  // namespace tandem
