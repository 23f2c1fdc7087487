#include "engine/mechanisms/salient_tokens/salient_tokens.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/common/error.h"
#include "engine/kernels/attention_weights.h"
#include "engine/runtime/copy_op.h"

namespace tandem {

TokenSet SalientTokens::empty_set(const SequenceState& sequence) const {
  TokenSet set = make_token_set(device_, sequence.id, kv_.shape(), sequence.max_tokens);
  std::ranges::fill(device_.host_write<std::uint32_t>(set.counts), 0u);
  return set;
}

TokenSetRef SalientTokens::make(SequenceState& sequence) {
  return {kept_.add(empty_set(sequence))};
}

Packed SalientTokens::kv(TokenSetRef ref, std::uint32_t layer) const {
  const TokenSet& set = kept_.get(ref.id);
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

void SalientTokens::renew(SequenceState& sequence, TokenSetRef set) {
  kept_.get(set.id) = empty_set(sequence);
}

void SalientTokens::extend(SequenceState& sequence, TokenSetRef ref) {
  TokenSet& set = kept_.get(ref.id);
  if (sequence.max_tokens <= set.capacity) return;
  const TokenSet old = set;
  set = make_token_set(device_, sequence.id, kv_.shape(), sequence.max_tokens);
  set.offered = old.offered;
  const std::uint64_t per_token = set.token_bytes();
  Op op("extend token set", Cause::selection);
  op.kind = Kind::copy;
  op.cost.upper_bound = true;
  for (std::uint32_t layer = 0; layer < old.shape.layers; ++layer) {
    op.cost.dram += 2 * per_token * old.offered[layer] * old.shape.kv_heads;
    old.append_access(layer, false, op.access);
    set.append_access(layer, true, op.access);
  }
  op.has_cost_only_part = true;
  op.body = [old, to = set, per_token](BodyContext& ctx) {
    const std::size_t lists = std::size_t{old.shape.layers} * old.shape.kv_heads, bytes = old.shape.vector_bytes();
    const auto* counts = ctx.read<std::uint32_t>(old.counts);
    std::copy_n(counts, lists, ctx.write<std::uint32_t>(to.counts));
    Cost cost;
    cost.dram = 2 * per_token * std::accumulate(counts, counts + lists, std::uint64_t{0});
    ctx.settle(cost);
    if (!ctx.computes()) return;
    Copier copier(ctx);
    Copier::Between masks = copier.between(to.masks, old.masks), kv = copier.between(to.kv, old.kv);
    for (std::size_t list = 0; list < lists; ++list) {
      masks.add(list * to.capacity * sizeof(std::uint32_t), list * old.capacity * sizeof(std::uint32_t),
                counts[list] * sizeof(std::uint32_t));
      kv.add(to.kv_offset(list), old.kv_offset(list), counts[list] * bytes);
      kv.add(to.kv_offset(list) + to.half_bytes(), old.kv_offset(list) + old.half_bytes(), counts[list] * bytes);
    }
  };
  const Event done = ask(LaneKind::host_workers, std::move(op));
  std::fill(set.packed.begin(), set.packed.end(), done);
}

void SalientTokens::keep(SequenceState& sequence, std::uint32_t layer, const SalientRequest& request) {
  TokenSet& set = kept_.get(request.set.id);
  const AttentionAverage& average = parts_.ops.use<AttentionAverages>().get(request.average);
  const Range tokens = request.tokens;
  const KvShape& shape = kv_.shape();
  const std::uint32_t group = average.q_heads / shape.kv_heads;
  const Range blocks{tokens.begin / kPageTokens, blocks_for(tokens.end)};
  const std::uint64_t count = tokens.end - tokens.begin, per_token = set.token_bytes();
  TANDEM_CHECK(set.offered[layer] + count <= set.capacity, "{} tokens and {} more in a set with room for {}",
               set.offered[layer], count, set.capacity);
  Op op("keep salient tokens", Cause::selection, layer);
  op.cost.work = Work::select;
  const std::uint64_t looked_at = count * average.q_heads * sizeof(float);
  op.cost.context = looked_at;
  op.cost.dram = looked_at + 2 * count * shape.kv_heads * per_token;  // read from its page, written to the set
  op.cost.tasks = shape.kv_heads;
  op.cost.upper_bound = true;
  op.access = {average.left.access(layer, tokens, false)};
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence.id, layer, blocks, Tier::host);
  set.append_access(layer, true, op.access);
  kv_.append_filled(sequence.id, layer, blocks, Tier::host, op.after);
  wait_for(op.after, average.moved[layer]);
  const float threshold = request.times == 0 ? -1.0f : static_cast<float>(request.times / request.softmax_tokens);
  op.has_cost_only_part = true;
  op.body = [this, &set, &average, layer, tokens, threshold, group, slots, looked_at, per_token, times = request.times,
             number = sequence.request](BodyContext& ctx) {
    const KvShape& s = kv_.shape();
    const char* pages = ctx.read<char>(kv_.host_buffer());
    const float* left = ctx.read<float>(average.left.values);
    auto* counts = ctx.write<std::uint32_t>(set.counts);  // all that other cost-only bodies read of a set
    auto* masks = ctx.write<std::uint32_t>(set.masks);
    char* packed = ctx.write<char>(set.kv);
    std::vector<std::uint64_t> kept(s.kv_heads);
    const auto keep_of = [&](std::size_t head) {
      const auto kv_head = static_cast<std::uint32_t>(head);
      const std::uint32_t n = tokens.end - tokens.begin;
      std::vector<std::uint32_t> mask(n), order(n);
      kept[head] = salient_masks(left + average.left.offset(layer, kv_head * group) + tokens.begin,
                                 average.left.capacity, n, group, threshold, mask.data());
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
    };
    if (ctx.computes()) {
      pool_.parallel_for(s.kv_heads, keep_of);
    } else {
      const std::vector<std::uint32_t>& salient =
          draws_->salient_tokens(draws_->place(number, layer, 0, BatchDraws::By::heads), tokens, times);
      kept.assign(salient.begin(), salient.end());
      for (std::uint32_t head = 0; head < s.kv_heads; ++head) counts[set.index(layer, head)] += salient[head];
    }
    Cost cost;
    cost.work = Work::select;
    cost.tasks = static_cast<std::uint32_t>(kept.size());
    cost.context = looked_at;
    cost.dram = looked_at + 2 * per_token * std::accumulate(kept.begin(), kept.end(), std::uint64_t{0});
    ctx.settle(cost);
  };
  const Event done = ask(LaneKind::host_workers, std::move(op));
  set.offered[layer] += static_cast<std::uint32_t>(count);
  set.packed[layer] = done;
}

}  // namespace tandem
