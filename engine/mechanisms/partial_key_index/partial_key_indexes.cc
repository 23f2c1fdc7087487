// The partial index of a sequence's keys (InfiniGen). speculation.cc chooses by it and fetches what it chose.
#include "engine/mechanisms/partial_key_index/partial_key_indexes.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/common/error.h"
#include "engine/mechanisms/partial_key_index/kernels/skewed.h"
#include "engine/runtime/copy_op.h"
#include "engine/runtime/launched_attention.h"

namespace tandem {
namespace {

constexpr std::uint32_t kIndexBlock = 2 * kPageTokens;  // tokens that leave the device together
constexpr std::uint64_t kJacobiSweeps = 8;              // for the declared cost

}  // namespace

KeyIndexRef PartialKeyIndexes::index_keys(SequenceState& sequence, const KeyIndexRequest& request) {
  const KvShape& shape = kv_.shape();
  TANDEM_CHECK(request.first_layer <= shape.layers, "an index from layer {} of {} on", request.first_layer,
               shape.layers);
  PartialKeyIndex index;
  index.sequence = sequence.id;
  index.scope = request.scope;
  index.shape = shape;
  index.columns = request.columns;
  index.first_layer = request.first_layer;
  index.unit = request.unit;
  index.tokens.resize(shape.layers);
  index.host_pages = std::make_shared<HostPages>(shape.layers);
  index.skew = device_.allocate_device(
      std::size_t{index.layers()} * shape.kv_heads * index.columns * shape.head_dim * sizeof(float), "skewing");
  make_index_room(device_, index, sequence.max_tokens);
  make_fetch_room(device_, index, request.most);
  const KeyIndexRef ref{kept_.add(index)};
  const std::uint32_t filled = sequence.tokens / kIndexBlock * kIndexBlock;
  for (std::uint32_t layer = request.first_layer; layer < shape.layers; ++layer) {
    if (sequence.tokens > 0) {
      skew_layer(sequence, index, layer);
    } else {
      keep_columns(index, layer);
    }
  }
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) index_more(sequence, ref, layer, filled);
  return ref;
}

void PartialKeyIndexes::renew(SequenceState& sequence, KeyIndexRef ref, std::uint32_t most) {
  PartialKeyIndex& index = kept_.get(ref.id);
  grow_index(index, sequence.max_tokens);
  make_fetch_room(device_, index, most);
  const std::uint32_t filled = sequence.tokens / kIndexBlock * kIndexBlock;
  for (std::uint32_t layer = 0; layer < kv_.shape().layers; ++layer) index_more(sequence, ref, layer, filled);
}

/// The skewing of a layer whose prompt is one token, which the first step takes in: there is nothing to learn
/// directions from, so the first columns are kept as they are.
void PartialKeyIndexes::keep_columns(const PartialKeyIndex& index, std::uint32_t layer) {
  const KvShape& shape = kv_.shape();
  Op op("skew keys", Cause::selection, layer);
  op.access = {index.skew.writes(layer, layer + 1)};
  std::vector<float> skew(shape.kv_heads * std::size_t{index.columns} * shape.head_dim);  // of unit vectors
  for (std::uint32_t head = 0; head < shape.kv_heads; ++head) {
    for (std::uint32_t i = 0; i < std::min(index.columns, shape.head_dim); ++i)
      skew[(std::size_t{head} * index.columns + i) * shape.head_dim + i] = 1;
  }
  set_copies(op, [index, layer, skew = std::move(skew)](Copier& copier) {
    copier.from_values(index.skew, std::as_bytes(std::span(skew)))
        .add(index.skew_offset(layer, 0) * sizeof(float), 0, skew.size() * sizeof(float));
  });
  op.kind = Kind::compute;
  op.cost.hbm = std::uint64_t{shape.kv_heads} * index.columns * shape.head_dim * sizeof(float);
  ask(LaneKind::device_compute, std::move(op));
}

/// The skewing of a layer: directions in which the prompt's keys and its last queries have most, both counted alike.
void PartialKeyIndexes::skew_layer(const SequenceState& sequence, const PartialKeyIndex& index, std::uint32_t layer) {
  const KvShape& shape = kv_.shape();
  const ModelShape model = forward_.shape();
  const PromptQueries& queries = parts_.queries_of(sequence.id);
  const std::uint32_t tokens = sequence.tokens, observed = std::min(queries.kept, tokens), dim = shape.head_dim;
  Op op("skew keys", Cause::selection, layer);
  op.cost.work = Work::gemm;
  op.cost.kernels = 2;  // products, directions
  op.cost.hbm = std::uint64_t{tokens} * shape.kv_heads * shape.vector_bytes() +
                std::uint64_t{observed} * model.q_heads * dim * sizeof(float) +
                std::uint64_t{shape.kv_heads} * index.columns * dim * sizeof(float);
  op.cost.flops =
      (std::uint64_t{2} * tokens * shape.kv_heads + std::uint64_t{2} * observed * model.q_heads) * dim * dim +
      kJacobiSweeps * shape.kv_heads * 6 * dim * dim * dim;
  op.access = {queries.values.reads(layer, layer + 1), index.skew.writes(layer, layer + 1)};
  const std::vector<std::uint32_t> slots =
      kv_.declare_reads(op, sequence.id, layer, {0, blocks_for(tokens)}, Tier::device);
  const std::size_t square = std::size_t{dim} * dim;
  const auto grams_of = [layer, model, queries, tokens, observed, square](
                            const BodyContext& ctx, const std::uint32_t* pages, double* of_keys, double* of_queries) {
    // A prompt shorter than the kept queries fills the first entries only.
    const std::size_t width = std::size_t{model.q_heads} * model.head_dim;
    const float* kept = ctx.read<float>(queries.values) + std::size_t{layer} * queries.kept * width;
    std::vector<SkewGrams> grams(model.kv_heads);
    for (std::uint32_t g = 0; g < model.kv_heads; ++g) {
      SkewGrams& own = grams[g];
      own.slots = pages;
      own.tokens = tokens;
      own.kv_head = g;
      own.queries = kept + std::size_t{g} * model.group() * model.head_dim;
      own.stride = width;
      own.observed = observed;
      own.key_gram = of_keys + g * square;
      own.query_gram = of_queries + g * square;
    }
    return grams;
  };
  op.launch = [&](LaunchContext& ctx) {
    auto* const of_keys = ctx.scratch<double>(shape.kv_heads * square);
    auto* const of_queries = ctx.scratch<double>(shape.kv_heads * square);
    const std::vector<SkewGrams> grams = grams_of(ctx, ctx.upload(slots), of_keys, of_queries);
    skew_grams_cuda(ctx.upload(grams), shape.kv_heads, model.group(), device_pages(ctx, kv_), ctx.stream());
    skew_directions_cuda(of_keys, of_queries, shape.kv_heads, dim, index.columns,
                         ctx.write<float>(index.skew) + index.skew_offset(layer, 0), ctx.stream());
  };
  op.body = [this, index, model, layer, dim, square, grams_of, slots](BodyContext& ctx) {
    std::vector<double> of_keys(model.kv_heads * square), of_queries(of_keys.size());
    const std::vector<SkewGrams> grams = grams_of(ctx, slots.data(), of_keys.data(), of_queries.data());
    const KvPages kv = device_pages(ctx, kv_);
    float* skew = ctx.write<float>(index.skew);
    pool_.parallel_for(model.kv_heads, [&](std::size_t head) {
      const auto g = static_cast<std::uint32_t>(head);
      skew_grams(grams[g], model.group(), kv);
      skew_directions(grams[g].key_gram, grams[g].query_gram, dim, index.columns, skew + index.skew_offset(layer, g));
    });
  };
  ask(LaneKind::device_compute, std::move(op));
}

void PartialKeyIndexes::block_filled(SequenceState& sequence, KeyIndexRef ref, std::uint32_t layer) {
  if (sequence.tokens % kIndexBlock != 0) return;
  PartialKeyIndex& index = kept_.get(ref.id);
  if (sequence.tokens > index.room) grow_index(index, std::max(sequence.max_tokens, sequence.tokens));
  index_more(sequence, ref, layer, sequence.tokens);
}

/// Takes the tokens up to `end`, which are on the device, into the layer's index, where it has one, and moves them to
/// host memory.
void PartialKeyIndexes::index_more(SequenceState& sequence, KeyIndexRef ref, std::uint32_t layer, std::uint32_t end) {
  PartialKeyIndex& index = kept_.get(ref.id);
  const Range added{index.tokens[layer], end};
  if (added.begin >= added.end) return;
  if (layer >= index.first_layer) index_keys_of(sequence, index, layer, added);
  index.tokens[layer] = end;
  parts_.ops.move_to_host(sequence, added, layer);
}

void PartialKeyIndexes::index_keys_of(const SequenceState& sequence, const PartialKeyIndex& index, std::uint32_t layer,
                                      Range added) {
  const KvShape& shape = kv_.shape();
  const Range pages{added.begin / kPageTokens, added.end / kPageTokens};
  Op op("index keys", Cause::selection, layer);
  op.cost.work = added.end - added.begin > kIndexBlock ? Work::gemm : Work::stream;
  op.cost.hbm = std::uint64_t{added.end - added.begin} * shape.kv_heads * (shape.vector_bytes() + index.row_bytes()) +
                std::uint64_t{shape.kv_heads} * index.columns * shape.head_dim * sizeof(float);
  op.cost.context = op.cost.hbm;
  op.cost.flops = std::uint64_t{2} * (added.end - added.begin) * shape.kv_heads * index.columns * shape.head_dim;
  op.access = {index.skew.reads(layer, layer + 1), index.keys.writes(layer, layer + 1)};
  const std::vector<std::uint32_t> slots = kv_.declare_reads(op, sequence.id, layer, pages, Tier::device);
  const auto keys_of = [index, layer, added](const BodyContext& ctx, const std::uint32_t* of_tokens) {
    std::vector<SkewedKeys> keys(index.shape.kv_heads);
    for (std::uint32_t g = 0; g < keys.size(); ++g)
      keys[g] = {ctx.read<float>(index.skew) + index.skew_offset(layer, g), of_tokens, added.end - added.begin, g,
                 ctx.write<char>(index.keys) + index.keys_offset(layer, g) + added.begin * index.row_bytes()};
    return keys;
  };
  op.launch = [&](LaunchContext& ctx) {
    skew_keys_cuda(ctx.pass(keys_of(ctx, ctx.upload(slots))), shape.kv_heads, added.end - added.begin, index.columns,
                   device_pages(ctx, kv_), ctx.stream());
  };
  op.body = [this, columns = index.columns, keys_of, slots](BodyContext& ctx) {
    const std::vector<SkewedKeys> keys = keys_of(ctx, slots.data());
    const KvPages kv = device_pages(ctx, kv_);
    pool_.parallel_for(keys.size(), [&](std::size_t head) { skew_keys(keys[head], columns, kv); });
  };
  ask(LaneKind::device_compute, std::move(op));
}

/// A session goes on: room for `tokens`; what is there gets copied.
void PartialKeyIndexes::grow_index(PartialKeyIndex& index, std::uint32_t tokens) {
  if (tokens <= index.room || index.layers() == 0) return;
  const PartialKeyIndex old = index;
  make_index_room(device_, index, tokens);
  Op op("extend partial index", Cause::selection);
  op.access = {old.keys.reads(), index.keys.writes()};
  set_copies(op, [old, to = index](Copier& copier) {
    Copier::Between keys = copier.between(to.keys, old.keys);
    for (std::uint32_t layer = old.first_layer; layer < old.shape.layers; ++layer) {
      for (std::uint32_t g = 0; g < old.shape.kv_heads; ++g)
        keys.add(to.keys_offset(layer, g), old.keys_offset(layer, g), old.tokens[layer] * old.row_bytes());
    }
  });
  ask(LaneKind::device_compute, std::move(op));
}

}  // namespace tandem
