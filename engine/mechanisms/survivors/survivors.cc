#include "engine/mechanisms/survivors/survivors.h"

#include <algorithm>
#include <optional>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/attention_weights.h"
#include "engine/kernels/paged_attention.h"
#include "engine/mechanisms/survivors/kernels/heavy.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {

/// A layer's competition for the places of a set.
struct Survivors::Competition {
  SurvivorSet old, to;  // by value: others may take their places before the operation runs
  std::uint32_t layer = 0, held = 0;
  Range arriving;            // tokens of a new prompt
  std::uint32_t stride = 0;  // of their mass, SurvivorSet::arriving
  std::uint32_t window_begin = 0;
  std::vector<std::uint32_t> slots;  // of their pages
  PromptQueries queries;             // where the latest one's weights count
  std::uint32_t last = 0;            // token of that

  std::uint32_t added() const { return arriving.end - arriving.begin; }
  bool by_latest() const { return to.latest && added() > 0; }
  /// Where the prompt's latest query lies, in floats.
  std::size_t query_offset(const ModelShape& shape) const {
    return (std::size_t{layer} * queries.kept + last % queries.kept) * shape.q_heads * shape.head_dim;
  }
};

/// A set's part of a step's update.
struct Survivors::Row {
  SurvivorSet set;
  std::uint32_t row = 0, held = 0, position = 0, slot = 0;
  std::size_t offset = 0;  // of its scores, for the body

  /// Kernel arguments for one KV head, without scores. `lse`: [rows][Hq].
  HeavyStep step(const BodyContext& ctx, std::uint32_t layer, std::uint32_t kv_head, std::uint32_t group,
                 const float* lse) const {
    const std::size_t list = set.list(layer, kv_head);
    HeavyStep one;
    one.lse = lse + (std::size_t{row} * set.shape.kv_heads + kv_head) * group;
    one.mass = ctx.write<float>(set.mass) + list;
    one.positions = ctx.write<std::uint32_t>(set.positions) + list;
    one.keys = ctx.write<char>(set.kv) + set.kv_offset(layer, kv_head);
    one.values = static_cast<char*>(one.keys) + set.half_bytes();
    one.held = held;
    one.room = set.room;
    one.window_begin = position + 1 - std::min(set.window, position + 1);
    one.position = position;
    one.slot = slot;
    one.kv_head = kv_head;
    return one;
  }
};

namespace {

/// [n]: the weights of one query over tokens that all KV heads hold alike, summed over all heads. `key_of`: a token's
/// key in a KV head.
template <class KeyOf>
std::vector<float> weigh_by_latest(ThreadPool& pool, const float* query, const ModelShape& shape, DType kv,
                                   std::size_t n, const KeyOf& key_of) {
  std::vector<float> mass(std::size_t{shape.kv_heads} * n);
  pool.parallel_for(shape.kv_heads, [&](std::size_t g) {
    std::vector<KvSpan> spans;
    spans.reserve(n);
    for (std::size_t i = 0; i < n; ++i) spans.push_back({key_of(static_cast<std::uint32_t>(g), i), nullptr, 1, ~0u});
    std::vector<float> scores(shape.group() * n);
    token_scores(query + g * shape.group() * shape.head_dim, spans, {shape.group(), shape.head_dim, kv}, scores.data());
    for (std::size_t h = 0; h < shape.group(); ++h)
      blend_weights(scores.data() + h * n, log_sum_exp(scores.data() + h * n, n), n, 1, 1, mass.data() + g * n);
  });
  for (std::size_t g = 1; g < shape.kv_heads; ++g) {
    for (std::size_t i = 0; i < n; ++i) mass[i] += mass[g * n + i];
  }
  mass.resize(n);
  return mass;
}

}  // namespace

SurvivorsRef Survivors::keep(SequenceState& sequence, std::optional<SurvivorsRef> ref,
                             const SurvivorsRequest& request) {
  const KvShape& shape = kv_.shape();
  const std::uint32_t tokens = sequence.tokens, room = request.heavy + request.window;
  TANDEM_CHECK(request.window > 0, "the step's own token is in the window");
  if (!ref) {
    ref = SurvivorsRef{kept_.add(tandem::make_survivor_set(device_, sequence.id, shape, 0, 0))};
    const auto found = parts_.sums.find(sequence.id);
    TANDEM_CHECK(request.latest || tokens == 0 || (found != parts_.sums.end() && found->second.room > 0),
                 "sequence {} has no column sums", sequence.id);
    SurvivorSet& empty = kept_.get(ref->id);
    empty.arriving_tokens = {0, tokens};
    if (tokens > 0 && !request.latest) empty.arriving = found->second.values;
  }
  const SurvivorSet old = kept_.get(ref->id);
  SurvivorSet& set = kept_.get(ref->id);
  set = make_survivor_set(device_, sequence.id, shape, room, request.window);
  set.latest = request.latest;
  const Range arriving = old.arriving_tokens;
  const std::uint32_t stride = arriving_stride(old), added = arriving.end - arriving.begin;
  // Where nothing arrives there is only more room: masses stay, and no prompt's query is asked.
  const PromptQueries queries = request.latest && added > 0 ? parts_.queries_of(sequence.id) : PromptQueries{};
  const std::uint32_t window_begin = tokens - std::min(request.window, tokens);
  const Range blocks{arriving.begin / kPageTokens, blocks_for(arriving.end)};
  for (std::uint32_t layer = 0; layer < shape.layers && added + old.held[layer] > 0; ++layer) {
    const std::uint32_t held = old.held[layer], kept = std::min(room, held + added);
    set.held[layer] = kept;
    Op op("keep heavy hitters", Cause::selection, layer);
    op.cost.work = Work::select;
    op.cost.hbm = shape.kv_heads * (std::uint64_t{held + added} * sizeof(float) + 2 * kept * set.token_bytes());
    op.cost.kernels = 2;  // top-k, gather
    set.append_access(layer, true, op.access);
    if (held > 0) old.append_access(layer, false, op.access);
    if (request.latest && added > 0) {
      op.access.push_back(queries.values.reads(layer, layer + 1));
      op.cost.kernels += 4;  // pages, scores, their sums, weights
      op.cost.hbm += std::uint64_t{held + added} * shape.kv_heads * shape.vector_bytes();  // keys, for their scores
    } else if (added > 0) {
      op.access.push_back(old.arriving.reads(layer, layer + 1));
    }
    const Competition work{
        old,      set,       layer,        held,
        arriving, stride,    window_begin, kv_.declare_reads(op, sequence.id, layer, blocks, Tier::device),
        queries,  tokens - 1};
    op.launch = [&](LaunchContext& ctx) {
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
    };
    op.body = [this, work](BodyContext& ctx) { compete(ctx, work); };
    ask(LaneKind::device_compute, std::move(op));
  }
  return *ref;
}

void Survivors::plan(const LayerContext& context, const SequenceState& sequence, SurvivorsRef ref, AttendPlan& plan) {
  const SurvivorSet& set = kept_.get(ref.id);
  Packed kv;
  kv.sequence = set.sequence;
  kv.memory = {TierBuffer(set.kv), set.kv_offset(context.layer, 0), 2 * set.half_bytes(), 0, set.room};
  kv.tokens = set.held[context.layer];
  set.append_access(context.layer, false, kv.access);
  plan.items.push_back({.row = sequence.row, .kv = Ranges{{sequence.tokens - 1, sequence.tokens}}});
  plan.items.push_back({.row = sequence.row, .kv = std::move(kv), .weights = WeightsTo{this, ref.id}});
}

void Survivors::compete(BodyContext& ctx, const Competition& work) const {
  const KvShape& s = kv_.shape();
  const SurvivorSet& old = work.old;
  const std::uint32_t layer = work.layer, held = work.held;
  const Range arriving = work.arriving;
  const std::size_t bytes = s.vector_bytes();
  const bool any = work.added() > 0;
  const KvPages pages{any ? ctx.read<char>(kv_.device_buffer()) : nullptr, s.type, s.kv_heads, s.head_dim};
  std::vector<float> latest;  // [held + arriving]
  if (work.by_latest()) {
    const ModelShape& model = forward_.shape();
    latest = weigh_by_latest(pool_, ctx.read<float>(work.queries.values) + work.query_offset(model), model, s.type,
                             held + work.added(), [&](std::uint32_t g, std::size_t i) {
                               if (i < held) return ctx.read<char>(old.kv) + old.kv_offset(layer, g) + i * bytes;
                               const auto t = arriving.begin + static_cast<std::uint32_t>(i - held);
                               return static_cast<const char*>(pages.pages) + t % kPageTokens * bytes +
                                      kv_.k_offset(work.slots[t / kPageTokens - arriving.begin / kPageTokens], g);
                             });
  }
  pool_.parallel_for(s.kv_heads, [&](std::size_t head) {
    HeavyCompetition one = competition(ctx, work, static_cast<std::uint32_t>(head));
    one.slots = work.slots.data();
    if (work.by_latest()) {
      one.mass = latest.data();
      one.arriving = latest.data() + held;
    }
    tandem::keep_heavy(one, pages);
  });
}

/// Kernel arguments for one KV head, without slots, by the stored masses.
HeavyCompetition Survivors::competition(const BodyContext& ctx, const Competition& work, std::uint32_t kv_head) const {
  const SurvivorSet &old = work.old, &to = work.to;
  HeavyCompetition one;
  if (work.held > 0) {
    const std::size_t from = old.list(work.layer, kv_head);
    one.mass = ctx.read<float>(old.mass) + from;
    one.positions = ctx.read<std::uint32_t>(old.positions) + from;
    one.keys = ctx.read<char>(old.kv) + old.kv_offset(work.layer, kv_head);
    one.values = static_cast<const char*>(one.keys) + old.half_bytes();
    one.held = work.held;
  }
  if (work.added() > 0 && !to.latest) {
    one.arriving =
        ctx.read<float>(old.arriving) + (std::size_t{work.layer} * kv_.shape().kv_heads + kv_head) * work.stride;
  }
  one.arriving_begin = work.arriving.begin;
  one.arriving_end = work.arriving.end;
  one.kv_head = kv_head;
  one.room = to.room;
  one.window_begin = work.window_begin;
  const std::size_t at = to.list(work.layer, kv_head);
  one.kept_mass = ctx.write<float>(to.mass) + at;
  one.kept_positions = ctx.write<std::uint32_t>(to.positions) + at;
  one.kept_keys = ctx.write<char>(to.kv) + to.kv_offset(work.layer, kv_head);
  one.kept_values = static_cast<char*>(one.kept_keys) + to.half_bytes();
  return one;
}

/// Tokens that the buffer of a new prompt's mass has room for.
std::uint32_t Survivors::arriving_stride(const SurvivorSet& set) const {
  const std::size_t lists = std::size_t{kv_.shape().layers} * kv_.shape().kv_heads;
  return static_cast<std::uint32_t>(set.arriving.bytes() / sizeof(float) / lists);
}

void Survivors::take_weights(const LayerContext& context, std::span<const EmittedWeights> emitted,
                             const DeviceBuffer& scores, const DeviceBuffer& lse) {
  const ModelShape& shape = context.shape;
  const std::uint32_t layer = context.layer;
  Op op("update heavy hitters", Cause::none, layer);
  const bool latest = kept_.get(emitted.front().id).latest;
  op.cost.kernels = latest ? 2 : 1;  // of all heads together what is lightest, then the places
  op.access = {scores.reads()};
  std::vector<Row> rows;
  rows.reserve(emitted.size());
  for (const EmittedWeights& e : emitted) {
    SurvivorSet& set = kept_.of(context.batch[e.row]->id, e.id);
    TANDEM_CHECK(set.latest == latest, "the rows of a batch compete alike");
    const SequenceState& sequence = *context.batch[e.row];
    const std::uint32_t position = sequence.tokens - 1, held = set.held[layer];
    rows.push_back(
        {set, e.row, held, position, kv_.slot(sequence.id, layer, position / kPageTokens, Tier::device), e.offset});
    set.append_access(layer, true, op.access);
    op.access.push_back(lse.reads(e.row, e.row + 1));
    kv_.append_access(sequence.id, layer, {position / kPageTokens, position / kPageTokens + 1}, Tier::device,
                      Range{0, shape.kv_heads}, false, op.access);
    // Scores in; mass in and out, positions in; the own token from its page to its place.
    op.cost.hbm += std::uint64_t{shape.q_heads} * (held + 1) * sizeof(float) +
                   shape.kv_heads * (3 * held * sizeof(float) + 2 * set.token_bytes());
    op.cost.context += std::uint64_t{shape.kv_heads} * 3 * held * sizeof(float);
    op.cost.flops += std::uint64_t{10} * shape.q_heads * (held + 1);
    set.held[layer] = std::min(held + 1, set.room);
  }
  // Scores: [rows][Hq][16] of the own tokens' pages, then [rows][Hq] of all places, whole pages of the fullest set.
  op.launch = [&](LaunchContext& ctx) {
    const std::uint32_t group = shape.group();
    std::uint32_t most = 0;
    for (const Row& row : rows) most = std::max(most, row.held);
    const std::size_t stride = std::size_t{blocks_for(most)} * kPageTokens,
                      own_scores = rows.size() * shape.q_heads * kPageTokens;
    const auto* const all = ctx.read<float>(scores);
    std::vector<HeavyStep> steps;
    for (const Row& row : rows) {
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
        const std::size_t head = std::size_t{row.row} * shape.q_heads + g * group;
        HeavyStep one = row.step(ctx, layer, g, group, ctx.read<float>(lse));
        one.own = all + head * kPageTokens + row.position % kPageTokens;
        one.own_stride = kPageTokens;
        one.scores = all + own_scores + head * stride;
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
  };
  op.body = [this, shape, layer, rows, scores, lse](BodyContext& ctx) {
    const std::uint32_t group = shape.group();
    const KvPages pages = device_pages(ctx, kv_);
    const auto step = [&](const Row& row, std::uint32_t g) {
      HeavyStep one = row.step(ctx, layer, g, group, ctx.read<float>(lse));
      one.set_scores(ctx.read<float>(scores) + row.offset + std::size_t{g} * group * (row.held + 1));
      return one;
    };
    if (!rows.front().set.latest) {
      pool_.parallel_for(rows.size() * shape.kv_heads, [&](std::size_t task) {
        const auto g = static_cast<std::uint32_t>(task % shape.kv_heads);
        update_heavy(step(rows[task / shape.kv_heads], g), group, pages);
      });
      return;
    }
    std::vector<HeavyStep> sets(shape.kv_heads);
    for (const Row& row : rows) {
      for (std::uint32_t g = 0; g < shape.kv_heads; ++g) sets[g] = step(row, g);
      update_heavy_alike(sets, group, pages);
    }
  };
  device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
}

/// [arriving] the weights of the prompt's latest query, summed over all heads.
const float* Survivors::launch_latest_weights(LaunchContext& ctx, const Competition& work,
                                              const std::uint32_t* slots) const {
  const ModelShape& shape = forward_.shape();
  const std::uint32_t tokens = work.added(), pages = blocks_for(tokens);
  if (work.held > 0 || work.arriving.begin > 0)
    throw_not_on_gpu("A further prompt whose tokens compete with those that survived has");
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

}  // namespace tandem
