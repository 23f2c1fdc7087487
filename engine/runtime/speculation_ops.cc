// The parts of Ops that fetch what a speculated query would look at (InfiniGen): the partial index, the choice from its
// scores, and the fetch.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/common/error.h"
#include "engine/kernels/convert.h"
#include "engine/kernels/eigen.h"
#include "engine/kernels/topk.h"
#include "engine/runtime/engine_ops.h"
#include "engine/runtime/selection.h"

namespace tandem {
namespace {

constexpr std::uint32_t kIndexBlock = 2 * kPageTokens;  // tokens that leave the device together
constexpr std::uint64_t kJacobiSweeps = 8;              // for the declared cost
constexpr std::uint32_t kDrawnTokens = 32;              // that the stand-in takes for alike

void add_gram(const float* x, std::uint32_t dim, double* gram) {
  for (std::uint32_t i = 0; i < dim; ++i) {
    for (std::uint32_t j = 0; j < dim; ++j) gram[i * dim + j] += double{x[i]} * double{x[j]};
  }
}

void normalise(std::vector<double>& gram, std::uint32_t dim) {
  double trace = 0;
  for (std::uint32_t i = 0; i < dim; ++i) trace += gram[i * dim + i];
  if (trace <= 0) return;
  for (double& value : gram) value /= trace;
}

/// Tokens to take of each KV head: the mean over query heads of those that score at least max - alpha.
std::uint32_t tokens_near_the_best(const std::vector<float>& scores, std::uint32_t heads, std::uint32_t n,
                                   double alpha) {
  std::uint64_t near = 0;
  for (std::uint32_t h = 0; h < heads; ++h) {
    const float* own = scores.data() + std::size_t{h} * n;
    const double least = double{*std::max_element(own, own + n)} - alpha;
    near += static_cast<std::uint64_t>(std::count_if(own, own + n, [&](float s) { return s >= least; }));
  }
  return static_cast<std::uint32_t>((near + heads - 1) / heads);
}

/// The best units of each KV head, by the best of its query heads and of the unit's tokens.
void choose_units(ThreadPool& pool, BodyContext& ctx, const SkewedIndex& index, const ModelShape& shape,
                  std::uint32_t layer, const std::vector<float>& scores, std::uint32_t n, std::uint32_t keep) {
  auto* chosen = ctx.write<std::uint32_t>(index.chosen);
  pool.parallel_for(shape.kv_heads, [&](std::size_t head) {
    const auto g = static_cast<std::uint32_t>(head);
    std::vector<float> units(n / index.unit, -INFINITY);
    for (std::uint32_t h = g * shape.group(); h < (g + 1) * shape.group(); ++h) {
      for (std::uint32_t t = 0; t < n; ++t)
        units[t / index.unit] = std::max(units[t / index.unit], scores[std::size_t{h} * n + t]);
    }
    std::uint32_t* list = chosen + index.chosen_offset(layer, g);
    list[0] = std::min(keep, n / index.unit);
    top_k(units.data(), n / index.unit, list[0], list + 1);
  });
}

}  // namespace

SkewedRef EngineOps::index_keys(SequenceState& sequence, const SkewRequest& request) {
  const KvShape& shape = kv_.shape();
  const SkewedRef ref{stores_.skewed.add(make_skewed_index(device_, sequence.id, shape, request.columns, request.unit,
                                                           sequence.max_tokens, request.most))};
  const SkewedIndex& index = stores_.skewed.get(ref.id);
  const std::uint32_t filled = sequence.tokens / kIndexBlock * kIndexBlock;
  if (sequence.tokens > 0) {
    for (std::uint32_t layer = 0; layer < shape.layers; ++layer) skew_layer(sequence, index, layer);
  }
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) index_more(sequence, ref, layer, filled);
  return ref;
}

void EngineOps::renew_index(SequenceState& sequence, SkewedRef ref, std::uint32_t most) {
  SkewedIndex& index = stores_.skewed.get(ref.id);
  grow_index(index, sequence.max_tokens);
  make_skewed_staging(device_, index, most);
  index.read.assign(2, Event{});
  const std::uint32_t filled = sequence.tokens / kIndexBlock * kIndexBlock;
  for (std::uint32_t layer = 0; layer < kv_.shape().layers; ++layer) index_more(sequence, ref, layer, filled);
}

/// The skewing of a layer: directions in which the prompt's keys and its last queries have most, both counted alike.
void EngineOps::skew_layer(const SequenceState& sequence, const SkewedIndex& index, std::uint32_t layer) {
  const KvShape& shape = kv_.shape();
  const ModelShape model = attention_.shape();
  const auto found = queries_.find(sequence.id);
  TANDEM_CHECK(found != queries_.end() && found->second.kept > 0, "sequence {} has no prompt queries", sequence.id);
  const PromptQueries& queries = found->second;
  const std::uint32_t tokens = sequence.tokens, observed = std::min(queries.kept, tokens), dim = shape.head_dim;
  Op op;
  op.name = "skew keys";
  op.cause = Cause::selection;
  op.layer = layer;
  op.cost.work = Work::gemm;
  op.cost.hbm = std::uint64_t{tokens} * shape.kv_heads * shape.vector_bytes() +
                std::uint64_t{observed} * model.q_heads * dim * sizeof(float) +
                std::uint64_t{shape.kv_heads} * index.columns * dim * sizeof(float);
  op.cost.flops =
      (std::uint64_t{2} * tokens * shape.kv_heads + std::uint64_t{2} * observed * model.q_heads) * dim * dim +
      kJacobiSweeps * shape.kv_heads * 6 * dim * dim * dim;
  op.access = {queries.values.reads(layer, layer + 1), index.skew.writes(layer, layer + 1)};
  kv_.append_access(sequence.id, layer, {0, blocks_for(tokens)}, Tier::device, Range{0, shape.kv_heads}, false,
                    op.access);
  std::vector<std::uint32_t> slots;
  for (std::uint32_t page = 0; page < blocks_for(tokens); ++page) {
    slots.push_back(kv_.slot(sequence.id, layer, page, Tier::device));
    TANDEM_CHECK(slots.back() != KvStore::kNoSlot, "page {} of the prompt is not on the device", page);
  }
  op.body = [this, index, model, layer, queries, tokens, observed, dim, slots = std::move(slots)](BodyContext& ctx) {
    const char* pages = ctx.read<char>(kv_.device_buffer());
    const float* kept = ctx.read<float>(queries.values);
    float* skew = ctx.write<float>(index.skew);
    pool_.parallel_for(model.kv_heads, [&](std::size_t head) {
      const auto g = static_cast<std::uint32_t>(head);
      std::vector<double> of_keys(std::size_t{dim} * dim), of_queries(of_keys.size()), vectors(of_keys.size()),
          values(dim);
      std::vector<float> key(dim);
      for (std::uint32_t t = 0; t < tokens; ++t) {
        const char* at = pages + kv_.k_offset(slots[t / kPageTokens], g) + t % kPageTokens * kv_.shape().vector_bytes();
        to_f32(at, kv_.shape().type, 0, dim, key.data());
        add_gram(key.data(), dim, of_keys.data());
      }
      for (std::uint32_t t = tokens - observed; t < tokens; ++t) {
        const float* row = kept + (std::size_t{layer} * queries.kept + t % queries.kept) * model.q_heads * dim;
        for (std::uint32_t h = g * model.group(); h < (g + 1) * model.group(); ++h)
          add_gram(row + std::size_t{h} * dim, dim, of_queries.data());
      }
      normalise(of_keys, dim);
      normalise(of_queries, dim);
      for (std::size_t i = 0; i < of_keys.size(); ++i) of_keys[i] += of_queries[i];
      symmetric_eigen(of_keys.data(), dim, vectors.data(), values.data());
      float* out = skew + index.skew_offset(layer, g);
      for (std::size_t i = 0; i < std::size_t{index.columns} * dim; ++i) out[i] = static_cast<float>(vectors[i]);
    });
  };
  ask(LaneKind::device_compute, std::move(op));
}

void EngineOps::index_filled(SequenceState& sequence, SkewedRef ref, std::uint32_t layer) {
  if (sequence.tokens % kIndexBlock != 0) return;
  SkewedIndex& index = stores_.skewed.get(ref.id);
  if (sequence.tokens > index.room) grow_index(index, std::max(sequence.max_tokens, sequence.tokens));
  index_more(sequence, ref, layer, sequence.tokens);
}

/// Indexes the tokens up to `end`, which are on the device, and moves them to host memory.
void EngineOps::index_more(SequenceState& sequence, SkewedRef ref, std::uint32_t layer, std::uint32_t end) {
  SkewedIndex& index = stores_.skewed.get(ref.id);
  const Range added{index.tokens[layer], end};
  if (added.begin >= added.end) return;
  const KvShape& shape = kv_.shape();
  const Range pages{added.begin / kPageTokens, added.end / kPageTokens};
  Op op;
  op.name = "index keys";
  op.cause = Cause::selection;
  op.layer = layer;
  op.cost.work = added.end - added.begin > kIndexBlock ? Work::gemm : Work::stream;
  op.cost.hbm = std::uint64_t{added.end - added.begin} * shape.kv_heads * (shape.vector_bytes() + index.row_bytes()) +
                std::uint64_t{shape.kv_heads} * index.columns * shape.head_dim * sizeof(float);
  op.cost.flops = std::uint64_t{2} * (added.end - added.begin) * shape.kv_heads * index.columns * shape.head_dim;
  op.access = {index.skew.reads(layer, layer + 1), index.keys.writes(layer, layer + 1)};
  kv_.append_access(sequence.id, layer, pages, Tier::device, Range{0, shape.kv_heads}, false, op.access);
  std::vector<std::uint32_t> slots;
  for (std::uint32_t page = pages.begin; page < pages.end; ++page) {
    slots.push_back(kv_.slot(sequence.id, layer, page, Tier::device));
    TANDEM_CHECK(slots.back() != KvStore::kNoSlot, "page {} of layer {} is not on the device", page, layer);
  }
  op.body = [this, index, layer, added, slots = std::move(slots)](BodyContext& ctx) {
    const KvShape& s = kv_.shape();
    const char* from = ctx.read<char>(kv_.device_buffer());
    const float* skew = ctx.read<float>(index.skew);
    char* keys = ctx.write<char>(index.keys);
    pool_.parallel_for(s.kv_heads, [&](std::size_t head) {
      const auto g = static_cast<std::uint32_t>(head);
      std::vector<float> key(s.head_dim), row(index.columns);
      for (std::uint32_t t = added.begin; t < added.end; ++t) {
        const char* at =
            from + kv_.k_offset(slots[(t - added.begin) / kPageTokens], g) + t % kPageTokens * s.vector_bytes();
        to_f32(at, s.type, 0, s.head_dim, key.data());
        const float* direction = skew + index.skew_offset(layer, g);
        for (std::uint32_t c = 0; c < index.columns; ++c, direction += s.head_dim) {
          row[c] = 0;
          for (std::uint32_t d = 0; d < s.head_dim; ++d) row[c] += direction[d] * key[d];
        }
        from_f32(row.data(), s.type, index.columns, keys + index.keys_offset(layer, g) + t * index.row_bytes());
      }
    });
  };
  ask(LaneKind::device_compute, std::move(op));
  index.tokens[layer] = end;
  offload(sequence, added, layer, nullptr);
}

/// A session goes on: room for `tokens`; what is there gets copied.
void EngineOps::grow_index(SkewedIndex& index, std::uint32_t tokens) {
  if (tokens <= index.room) return;
  const SkewedIndex old = index;
  make_skewed_keys(device_, index, tokens);
  Op op;
  op.name = "extend partial index";
  op.kind = Kind::copy;
  op.cause = Cause::selection;
  for (const std::uint32_t have : old.tokens)
    op.cost.hbm += 2 * std::uint64_t{have} * old.shape.kv_heads * old.row_bytes();
  op.access = {old.keys.reads(), index.keys.writes()};
  op.body = [old, to = index](BodyContext& ctx) {
    for (std::uint32_t layer = 0; layer < old.shape.layers; ++layer) {
      for (std::uint32_t g = 0; g < old.shape.kv_heads; ++g) {
        std::copy_n(ctx.read<char>(old.keys) + old.keys_offset(layer, g), old.tokens[layer] * old.row_bytes(),
                    ctx.write<char>(to.keys) + to.keys_offset(layer, g));
      }
    }
  };
  ask(LaneKind::device_compute, std::move(op));
}

Event EngineOps::speculate(const LayerContext& context, const QueryRef& query,
                           std::span<const SpeculateRequest> requests) {
  const ModelShape shape = context.shape;
  const std::uint32_t layer = query.layer;
  struct Row {
    std::uint32_t row = 0;
    SkewedIndex index;  // as it is now
    std::uint32_t most = 0;
    double alpha = 0;
    ScorePlace place;
  };
  Op op;
  op.name = "speculate tokens";
  op.cause = Cause::selection;
  op.layer = layer;
  op.cost.work = Work::select;
  op.cost.kernels = 3;  // skewed queries, scores, top-k
  const DeviceBuffer values = attention_.ahead().values(query);
  std::vector<Row> rows;
  rows.reserve(requests.size());
  for (const SpeculateRequest& request : requests) {
    const SkewedIndex& index = stores_.skewed.get(request.index.id);
    const std::uint32_t row = request.sequence->row;
    const std::uint64_t n = index.tokens[layer];
    op.cost.hbm += n * shape.kv_heads * index.row_bytes() + 2 * n * shape.q_heads * sizeof(float) +
                   std::uint64_t{shape.kv_heads} * index.columns * shape.head_dim * sizeof(float);
    op.cost.flops += std::uint64_t{2} * shape.q_heads * index.columns * (shape.head_dim + n);  // skewing, scores
    op.access.insert(op.access.end(),
                     {values.reads(row, row + 1), index.skew.reads(layer, layer + 1),
                      index.keys.reads(layer, layer + 1), index.chosen.writes(layer % 2, layer % 2 + 1)});
    rows.push_back({row,
                    index,
                    std::min(request.most, index.most),
                    request.alpha,
                    {request.sequence->request, layer, 0, context.step}});
  }
  // Units that a share of the tokens comes to, at least one.
  const auto units = [](const Row& r, std::uint32_t tokens) {
    return std::min(r.most, (tokens + r.index.unit - 1) / r.index.unit);
  };
  op.body = [this, shape, layer, values, rows, units](BodyContext& ctx) {
    for (const Row& r : rows) {
      const SkewedIndex& index = r.index;
      const std::uint32_t n = index.tokens[layer], dim = shape.head_dim;
      const float* query_of_row = ctx.read<float>(values) + std::size_t{r.row} * shape.q_heads * dim;
      const float* skew = ctx.read<float>(index.skew);
      const char* keys = ctx.read<char>(index.keys);
      std::vector<float> scores(std::size_t{shape.q_heads} * n);
      pool_.parallel_for(shape.q_heads, [&](std::size_t h) {
        const auto g = static_cast<std::uint32_t>(h / shape.group());
        std::vector<float> skewed(index.columns), row(index.columns);
        const float* direction = skew + index.skew_offset(layer, g);
        for (std::uint32_t c = 0; c < index.columns; ++c, direction += dim) {
          for (std::uint32_t d = 0; d < dim; ++d) skewed[c] += direction[d] * query_of_row[h * dim + d];
        }
        for (std::uint32_t t = 0; t < n; ++t) {
          to_f32(keys + index.keys_offset(layer, g) + t * index.row_bytes(), index.shape.type, 0, index.columns,
                 row.data());
          float sum = 0;
          for (std::uint32_t c = 0; c < index.columns; ++c) sum += skewed[c] * row[c];
          scores[h * n + t] = sum / std::sqrt(static_cast<float>(dim));
        }
      });
      choose_units(pool_, ctx, index, shape, layer, scores, n,
                   units(r, tokens_near_the_best(scores, shape.q_heads, n, r.alpha)));
    }
  };
  op.stand_in = [this, shape, layer, rows, units](BodyContext& ctx) {
    for (const Row& r : rows) {
      // Drawn for runs of tokens; a score is its normal part times the head's concentration.
      const std::uint32_t n = r.index.tokens[layer], runs = n / kDrawnTokens;
      std::vector<float> drawn(std::size_t{shape.q_heads} * runs), scores(std::size_t{shape.q_heads} * n);
      draw_scores(pool_, shape, *process_, r.place, runs, drawn.data());
      for (std::uint32_t h = 0; h < shape.q_heads; ++h) {
        const auto s = static_cast<float>(process_->concentration(layer, h));
        for (std::uint32_t t = 0; t < n; ++t)
          scores[std::size_t{h} * n + t] = s * drawn[std::size_t{h} * runs + t / kDrawnTokens];
      }
      choose_units(pool_, ctx, r.index, shape, layer, scores, n,
                   units(r, tokens_near_the_best(scores, shape.q_heads, n, r.alpha)));
    }
  };
  return device_.submit(device_.lane(LaneKind::device_compute), std::move(op));
}

SpeculatedRef EngineOps::fetch_speculated(const LayerContext& context, const QueryRef& query,
                                          std::span<const SpeculateRequest> requests) {
  const std::uint32_t layer = query.layer;
  struct Row {
    SkewedIndex index;  // as it is now
    HostPages::List pages;
  };
  SpeculatedRef speculated{layer, {}, {}};
  Op op;
  op.name = "fetch speculated kv";
  op.kind = Kind::copy;
  op.cause = Cause::recall;
  op.layer = layer;
  op.cost.upper_bound = true;
  op.cost.pieces = 0;
  op.after = {speculate(context, query, requests)};
  const KvShape& shape = kv_.shape();
  std::vector<Row> rows;
  rows.reserve(requests.size());
  for (const SpeculateRequest& request : requests) {
    const SkewedIndex& index = stores_.skewed.get(request.index.id);
    Row row{index, {}};
    const Range pages{0, index.tokens[layer] / kPageTokens};
    row.pages = index.host_pages->of(kv_, request.sequence->id, layer, pages);
    kv_.append_access(request.sequence->id, layer, pages, Tier::host, Range{0, shape.kv_heads}, false, op.access);
    op.access.insert(op.access.end(),
                     {index.chosen.reads(layer % 2, layer % 2 + 1), index.staged.writes(layer % 2, layer % 2 + 1)});
    op.cost.h2d += std::uint64_t{index.most} * index.unit * 2 * shape.vector_bytes() * shape.kv_heads;
    op.cost.pieces += index.most * shape.kv_heads * 2;
    speculated.rows.push_back(request.sequence->row);
    rows.push_back(std::move(row));
  }
  const auto run = [this, layer, rows = std::move(rows)](BodyContext& ctx, bool move) {
    Cost cost;
    cost.pieces = 0;
    const KvShape& s = kv_.shape();
    const std::size_t vector_bytes = s.vector_bytes();
    for (const Row& r : rows) {
      const SkewedIndex& index = r.index;
      for (std::uint32_t g = 0; g < s.kv_heads; ++g) {
        const std::uint32_t* list = ctx.read<std::uint32_t>(index.chosen) + index.chosen_offset(layer, g);
        cost.h2d += std::uint64_t{list[0]} * index.unit * 2 * vector_bytes;
        // K and V of a page lie in one run; of a token in two.
        cost.pieces += list[0] * (index.unit == 1 ? 2 : index.unit / kPageTokens);
        if (!move) continue;
        const char* from = ctx.read<char>(kv_.host_buffer());
        char* k = ctx.write<char>(index.staged) + index.staged_offset(layer, g);
        char* v = k + index.half_bytes() / 2;
        for (std::uint32_t i = 1; i <= list[0]; ++i) {
          const std::uint32_t piece = std::min(index.unit, kPageTokens);  // tokens that are adjacent on the host
          for (std::uint32_t t = list[i] * index.unit; t < (list[i] + 1) * index.unit; t += piece) {
            const std::uint32_t slot = (*r.pages)[t / kPageTokens];
            const std::size_t at = t % kPageTokens * vector_bytes;
            std::memcpy(k, from + kv_.k_offset(slot, g) + at, piece * vector_bytes);
            std::memcpy(v, from + kv_.v_offset(slot, g) + at, piece * vector_bytes);
            k += piece * vector_bytes;
            v += piece * vector_bytes;
          }
        }
      }
    }
    cost.pieces = std::max<std::uint32_t>(cost.pieces, 1);
    ctx.settle(cost);
  };
  op.body = [run](BodyContext& ctx) { run(ctx, true); };
  op.stand_in = [run](BodyContext& ctx) { run(ctx, false); };
  speculated.ready = ask(LaneKind::recall, std::move(op));
  return speculated;
}

}  // namespace tandem
