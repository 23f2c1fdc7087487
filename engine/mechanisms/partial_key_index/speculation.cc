// The choice of what a predicted query will look at, from the scores of a partial index, and its way from host memory
// to where it is attended (InfiniGen).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/common/error.h"
#include "engine/device/launch_context.h"
#include "engine/kernels/fetch_list.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "engine/mechanisms/partial_key_index/partial_key_indexes.h"
#include "engine/runtime/launched_attention.h"
#include "engine/runtime/listed_fetch.h"

namespace tandem {

struct PartialKeyIndexes::SpeculatingRow {
  std::uint32_t row = 0;
  PartialKeyIndex index;  // as it is now
  std::uint32_t most = 0;
  double alpha = 0;
  std::uint32_t request = 0;
};

struct PartialKeyIndexes::SpeculatedRow {
  PartialKeyIndex index;  // as it is now
  HostPages::List pages;

  std::uint32_t piece() const { return std::min(index.unit, kPageTokens); }  // tokens that are adjacent on the host
  std::size_t piece_bytes() const { return piece() * index.shape.vector_bytes(); }
  std::uint32_t most_pieces() const { return 2 * index.shape.kv_heads * index.most * (index.unit / piece()); }
  /// `slots`: of the pages.
  UnitFetch fetch(const BodyContext& ctx, std::uint32_t layer, const std::uint32_t* slots) const {
    return {ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(layer, 0), index.most, slots,
            static_cast<std::uint32_t>(index.staged_offset(layer, 0) / piece_bytes())};
  }
};

namespace {

/// The best units: of each KV head, of any of its query heads, or the same for all of them.
void choose_units(ThreadPool& pool, BodyContext& ctx, const PartialKeyIndex& index, const ModelShape& shape,
                  std::uint32_t layer, const std::vector<float>& scores, std::uint32_t n, std::uint32_t keep) {
  auto* chosen = ctx.write<std::uint32_t>(index.chosen);
  if (index.scope == Scope::layer) {
    best_units_of_all(scores.data(), shape.kv_heads, shape.group(), n, index.unit, keep,
                      chosen + index.chosen_offset(layer, 0),
                      index.chosen_offset(layer, 1) - index.chosen_offset(layer, 0));
    return;
  }
  const auto best = index.scope == Scope::query_head ? best_units_of_each : best_units;
  pool.parallel_for(shape.kv_heads, [&](std::size_t head) {
    best(scores.data() + head * shape.group() * n, shape.group(), n, index.unit, keep,
         chosen + index.chosen_offset(layer, static_cast<std::uint32_t>(head)));
  });
}

Packed fetched_units(const PartialKeyIndex& index, std::uint32_t layer) {
  const std::uint32_t half = index.half(layer);
  Packed kv;
  kv.sequence = index.sequence;
  kv.memory = {TierBuffer(index.staged), index.staged_offset(layer, 0), index.half_bytes(), 0, index.most * index.unit};
  kv.tokens = index.most * index.unit;
  kv.count = {TierBuffer(index.chosen), index.chosen_offset(layer, 0), 1 + std::size_t{index.most}, index.unit};
  kv.access = {index.chosen.reads(half, half + 1), index.staged.reads(half, half + 1)};
  return kv;
}

}  // namespace

/// Chooses for rows whose scores have room together. `room`: a float per token and query head of each row; where query
/// heads choose apart, also a mark per unit and KV head.
void PartialKeyIndexes::launch_choices(LaunchContext& ctx, const ModelShape& shape, std::uint32_t layer,
                                       const float* queries, std::span<const SpeculatingRow> rows, float* room,
                                       std::uint32_t* marks) const {
  std::vector<SkewedScores> requests;
  std::vector<SkewedChoice> choices;
  requests.reserve(rows.size() * shape.kv_heads);
  choices.reserve(rows.size());
  std::uint32_t most = 0, most_units = 0;
  for (const SpeculatingRow& r : rows) {
    const PartialKeyIndex& index = r.index;
    const std::uint32_t n = index.tokens[layer], units = n / index.unit;
    float* const scores = room;
    room += std::size_t{shape.q_heads} * n;
    for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
      const std::size_t head = std::size_t{g} * shape.group();
      requests.push_back({queries + (std::size_t{r.row} * shape.q_heads + head) * shape.head_dim,
                          ctx.read<float>(index.skew) + index.skew_offset(layer, g),
                          ctx.read<char>(index.keys) + index.keys_offset(layer, g), n, scores + head * n});
    }
    SkewedChoice choice{scores,     n,
                        index.unit, r.most,
                        r.alpha,    ctx.write<std::uint32_t>(index.chosen) + index.chosen_offset(layer, 0),
                        index.most, ctx.scratch<std::uint32_t>(shape.q_heads)};
    if (index.scope == Scope::layer) choice.sums = ctx.scratch<float>(units);
    if (index.scope == Scope::query_head) {
      choice.marks = marks;
      marks += std::size_t{shape.kv_heads} * units;
    }
    choices.push_back(choice);
    most = std::max(most, n);
    most_units = std::max(most_units, units);
  }
  const PartialKeyIndex& first = rows.front().index;
  const SkewedShape skewed{shape.group(), shape.head_dim, first.columns, first.shape.type};
  if (most > 0) {
    skewed_scores_cuda(ctx.pass(requests), static_cast<std::uint32_t>(requests.size()), most, skewed, ctx.stream());
  }
  const auto count = static_cast<std::uint32_t>(choices.size());
  const SkewedChoice* const uploaded = ctx.upload(choices);
  choose_skewed_cuda(uploaded, count, most_units, shape.kv_heads, shape.group(), first.scope, ctx.stream());
}

Event PartialKeyIndexes::speculate(const LayerContext& context, const QueryRef& query,
                                   std::span<const SpeculateRequest> requests) {
  const ModelShape shape = context.shape;
  const std::uint32_t layer = query.layer;
  Op op("speculate tokens", Cause::selection, layer);
  op.cost.work = Work::select;
  const DeviceBuffer values = attention_.query_values(query);
  std::vector<SpeculatingRow> rows;
  rows.reserve(requests.size());
  for (const SpeculateRequest& request : requests) {
    const PartialKeyIndex& index = kept_.get(request.index.id);
    const PartialKeyIndex& first = kept_.get(requests.front().index.id);
    const std::uint32_t row = request.sequence->row;
    TANDEM_CHECK(index.unit == first.unit && index.columns == first.columns && index.scope == first.scope,
                 "the rows of a batch choose alike");
    TANDEM_CHECK(index.scope != Scope::query_head ||
                     index.most >= std::min(request.most * shape.group(), index.tokens[layer] / index.unit),
                 "{} units of each of {} query heads, room for {}", request.most, shape.group(), index.most);
    TANDEM_CHECK(layer >= index.first_layer, "scores of layer {}, of an index from {} on", layer, index.first_layer);
    const std::uint64_t n = index.tokens[layer];
    const std::uint64_t read = n * shape.kv_heads * index.row_bytes() +
                               std::uint64_t{shape.kv_heads} * index.columns * shape.head_dim * sizeof(float);
    op.cost.context += read;
    op.cost.hbm += read + 2 * n * shape.q_heads * sizeof(float);
    op.cost.flops += std::uint64_t{2} * shape.q_heads * index.columns * (shape.head_dim + n);  // skewing, scores
    op.access.insert(op.access.end(), {values.reads(row, row + 1), index.skew.reads(layer, layer + 1),
                                       index.keys.reads(layer, layer + 1),
                                       index.chosen.writes(index.half(layer), index.half(layer) + 1)});
    rows.push_back({row, index, std::min(request.most, index.most), request.alpha, request.sequence->request});
  }
  std::size_t most = 0;
  for (const SpeculatingRow& r : rows) most = std::max<std::size_t>(most, r.index.tokens[layer]);
  // Some rows at a time: kernels for scores of skewed queries, what is near the best, the best units, what heads share.
  const std::uint32_t together = rows_together(forward_.score_floats(), shape.q_heads * most, rows.size());
  op.cost.heavy = rounds_of(rows.size(), together);
  op.cost.kernels = op.cost.heavy * ((most > 0 ? 1 : 0) + (rows.front().index.scope == Scope::layer ? 3 : 2));
  // Units that a share of the tokens comes to, at least one.
  const auto units = [](const SpeculatingRow& r, std::uint32_t tokens) {
    return std::min(r.most, (tokens + r.index.unit - 1) / r.index.unit);
  };
  op.launch = [&](LaunchContext& ctx) {
    const std::size_t floats = std::max<std::size_t>(shape.q_heads * most, 1);
    auto* const scores = ctx.scratch<float>(together * floats);
    auto* const marks = rows.front().index.scope == Scope::query_head
                            ? ctx.scratch<std::uint32_t>(together * floats / shape.group() + 1)
                            : nullptr;
    const std::span<const SpeculatingRow> all = rows;
    for (std::size_t first = 0; first < all.size(); first += together)
      launch_choices(ctx, shape, layer, ctx.read<float>(values),
                     all.subspan(first, std::min<std::size_t>(together, all.size() - first)), scores, marks);
  };
  op.has_cost_only_part = true;
  op.body = [this, shape, layer, step = context.step, values, rows, units](BodyContext& ctx) {
    for (const SpeculatingRow& r : rows) {
      const PartialKeyIndex& index = r.index;
      const std::uint32_t n = index.tokens[layer], dim = shape.head_dim;
      if (!ctx.computes()) {
        const ScorePlace place = draws_->place(r.request, layer, step, BatchDraws::By::layer);
        const double near = n > 0 ? draws_->tokens_near_best(place, n, r.alpha) : 0;
        std::uint32_t keep = units(r, static_cast<std::uint32_t>(std::ceil(near / shape.q_heads)));
        if (index.scope == Scope::query_head) keep *= shape.group();  // what two of them choose is counted twice
        auto* chosen = ctx.write<std::uint32_t>(index.chosen);
        for (std::uint32_t g = 0; g < shape.kv_heads; ++g) {
          std::uint32_t* list = chosen + index.chosen_offset(layer, g);
          list[0] = std::min({keep, n / index.unit, index.most});
          std::iota(list + 1, list + 1 + list[0], 0u);  // how many there are costs, not which they are
        }
        continue;
      }
      const float* query_of_row = ctx.read<float>(values) + std::size_t{r.row} * shape.q_heads * dim;
      const float* skew = ctx.read<float>(index.skew);
      const char* keys = ctx.read<char>(index.keys);
      std::vector<float> scores(std::size_t{shape.q_heads} * n);
      std::vector<std::uint64_t> near(shape.q_heads);
      constexpr std::uint32_t kTogether = 4096;  // tokens of a task: a KV head may be all there are
      const std::size_t parts = (n + kTogether - 1) / kTogether;
      pool_.parallel_for(shape.kv_heads * parts, [&](std::size_t task) {
        const std::size_t head = task / parts;
        const auto g = static_cast<std::uint32_t>(head), first = static_cast<std::uint32_t>(task % parts) * kTogether;
        skewed_scores({query_of_row + head * shape.group() * dim, skew + index.skew_offset(layer, g),
                       keys + index.keys_offset(layer, g), n, scores.data() + head * shape.group() * n},
                      {shape.group(), dim, index.columns, index.shape.type}, first, std::min(kTogether, n - first));
      });
      pool_.parallel_for(shape.q_heads,
                         [&](std::size_t h) { near[h] = near_the_best(scores.data() + h * n, n, r.alpha); });
      const std::uint64_t all = std::accumulate(near.begin(), near.end(), std::uint64_t{0});
      const auto tokens = static_cast<std::uint32_t>((all + shape.q_heads - 1) / shape.q_heads);
      choose_units(pool_, ctx, index, shape, layer, scores, n, units(r, tokens));
    }
  };
  return device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
}

/// Copies what the KV heads chose from host memory to where it is attended.
void PartialKeyIndexes::move_units(BodyContext& ctx, const SpeculatedRow& row, std::uint32_t layer) const {
  const KvShape& shape = kv_.shape();
  const std::size_t bytes = row.piece_bytes();
  std::vector<std::uint32_t> from(row.most_pieces()), to(from.size());
  std::uint32_t count = 0;
  const UnitFetch fetch = row.fetch(ctx, layer, row.pages->data());
  const auto slots = static_cast<std::uint32_t>(kv_.host_buffer().bytes() / shape.slot_bytes());
  list_units(&fetch, 1, shape.kv_heads, row.index.unit, slots, {from.data(), to.data(), &count, row.most_pieces()});
  const char* host = ctx.read<char>(kv_.host_buffer());
  char* staged = ctx.write<char>(row.index.staged);
  for (std::uint32_t i = 0; i < count; ++i) std::memcpy(staged + to[i] * bytes, host + from[i] * bytes, bytes);
}

SpeculatedKv PartialKeyIndexes::fetch(const LayerContext& context, const QueryRef& query,
                                      std::span<const SpeculateRequest> requests) {
  const std::uint32_t layer = query.layer;
  SpeculatedKv speculated{layer, {}, {}};
  Op op("fetch speculated kv", Cause::recall, layer);
  op.kind = Kind::copy;
  op.cost.gathered = op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.after = {speculate(context, query, requests)};
  const KvShape& shape = kv_.shape();
  std::vector<SpeculatedRow> rows;
  rows.reserve(requests.size());
  std::size_t most = 0;  // bytes of a row
  for (const SpeculateRequest& request : requests) {
    const PartialKeyIndex& index = kept_.get(request.index.id);
    SpeculatedRow row{index, {}};
    const Range pages{0, index.tokens[layer] / kPageTokens};
    row.pages = index.host_pages->of(kv_, request.sequence->id, layer, pages);
    kv_.append_access(request.sequence->id, layer, pages, Tier::host, Range{0, shape.kv_heads}, false, op.access);
    op.access.insert(op.access.end(), {index.chosen.reads(index.half(layer), index.half(layer) + 1),
                                       index.staged.writes(index.half(layer), index.half(layer) + 1)});
    op.cost.h2d += std::uint64_t{index.most} * index.unit * 2 * shape.vector_bytes() * shape.kv_heads;
    op.cost.pieces += index.most * shape.kv_heads * 2;
    most = std::max(most, shape.kv_heads * index.half_bytes());
    speculated.rows.push_back(request.sequence->row);
    speculated.fetched.push_back(fetched_units(index, layer));
    rows.push_back(std::move(row));
  }
  op.cost.kernels = 1 + gathers_of(rows.size(), most);  // list, gathers
  op.launch = [&](LaunchContext& ctx) {
    std::vector<UnitFetch> fetches;
    std::vector<void*> to;
    std::vector<std::span<const std::uint32_t>> all_pages;
    std::uint32_t most_pieces = 0;
    fetches.reserve(rows.size());
    to.reserve(rows.size());
    all_pages.reserve(rows.size());
    for (const SpeculatedRow& row : rows) all_pages.emplace_back(*row.pages);
    const std::vector<const std::uint32_t*> uploaded = ctx.upload_each(all_pages);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      fetches.push_back(rows[i].fetch(ctx, layer, uploaded[i]));
      to.push_back(ctx.write<char>(rows[i].index.staged));
      most_pieces = std::max(most_pieces, rows[i].most_pieces());
    }
    const auto count = static_cast<std::uint32_t>(rows.size());
    const FetchList list = make_fetch_list(ctx, count, most_pieces);
    list_units_cuda(ctx.pass(fetches), count, shape.kv_heads, rows.front().index.unit,
                    static_cast<std::uint32_t>(kv_.host_buffer().bytes() / shape.slot_bytes()), list, ctx.stream());
    Cost without;
    without.pieces = 0;
    fetch_listed(ctx, list, rows.front().piece_bytes(), ctx.read<char>(kv_.host_buffer()), to, without);
  };
  op.has_cost_only_part = true;
  op.body = [this, layer, rows](BodyContext& ctx) {
    Cost cost;
    cost.pieces = 0;
    const KvShape& s = kv_.shape();
    const std::size_t vector_bytes = s.vector_bytes();
    for (const SpeculatedRow& r : rows) {
      const PartialKeyIndex& index = r.index;
      for (std::uint32_t g = 0; g < s.kv_heads; ++g) {
        const std::uint32_t* list = ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(layer, g);
        cost.h2d += std::uint64_t{list[0]} * index.unit * 2 * vector_bytes;
        if (index.scope != Scope::layer ||
            index.unit == 1) {  // K and V of a page and head lie in one run; of a token in two
          cost.pieces += list[0] * (index.unit == 1 ? 2 : index.unit / kPageTokens);
        } else if (g == 0) {  // a page has all heads; runs that are adjacent on the host
          const std::uint32_t per_unit = index.unit / kPageTokens;
          for (std::uint32_t i = 1; i <= list[0]; ++i) {
            const std::uint32_t* pages = r.pages->data() + std::size_t{list[i]} * per_unit;
            for (std::uint32_t page = 0; page < per_unit; ++page)
              cost.pieces += page == 0 || pages[page] != pages[page - 1] + 1 ? 1 : 0;
          }
        }
      }
      if (ctx.computes()) move_units(ctx, r, layer);
    }
    cost.pieces = std::max<std::uint32_t>(cost.pieces, 1);
    ctx.settle(cost);
  };
  const Event ready = ask(LaneKind::recall, std::move(op));
  for (Packed& kv : speculated.fetched) kv.ready = ready;
  return speculated;
}

}  // namespace tandem
