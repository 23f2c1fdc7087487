// Partial attention of one token: online softmax over tiles of 16 tokens, all heads of the group per tile.
//
// A head's result is canonical because every step is defined token by token, in order: a score is a dot product that
// does not depend on where the token lies in a tile; the reference score `m` moves only when a score exceeds it by more
// than kSlack, which the token sequence alone decides; and sums over tokens run in sequence. So tiles may be cut
// anywhere.
#include "engine/kernels/attention_span.h"
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kTile = 16;
constexpr uint32_t kMaxGroup = 32;
constexpr float kLargest = 3.402823466e+38f;
// Weights are exp(score - m) with m up to this much below the largest score so far. Moving m for each new maximum would
// cost a pass over o each time and its rounding; exp(8) = 2981 keeps far from overflow.
constexpr float kSlack = 8.0f;

// Up to 16 tokens in a row that are attended by the same heads. Slots beyond count repeat the last token.
struct Tile {
  const float* k[kTile];
  const float* v[kTile];
  uint32_t count;
  uint32_t mask;
};

struct Cursor {
  const KvSpan* span;
  const KvSpan* end;
  uint32_t token;
  uint32_t valid_heads;
};

void next_tile(Cursor& at, uint32_t dim, Tile& tile) {
  tile.count = 0;
  tile.mask = 0;
  while (at.span != at.end && tile.count < kTile) {
    const uint32_t mask = at.span->head_mask & at.valid_heads;
    if (mask == 0 || at.token == at.span->tokens) {
      ++at.span;
      at.token = 0;
      continue;
    }
    if (tile.count == 0) tile.mask = mask;
    if (tile.mask != mask) break;
    const uint32_t left = at.span->tokens - at.token, room = kTile - tile.count;
    const uint32_t take = left < room ? left : room;
    for (uint32_t t = 0; t < take; ++t) {
      tile.k[tile.count + t] = at.span->k + size_t{dim} * (at.token + t);
      tile.v[tile.count + t] = at.span->v + size_t{dim} * (at.token + t);
    }
    tile.count += take;
    at.token += take;
  }
  if (tile.count == 0) return;
  for (uint32_t t = tile.count; t < kTile; ++t) {
    tile.k[t] = tile.k[tile.count - 1];
    tile.v[t] = tile.v[tile.count - 1];
  }
}

// Dot products of q with kWidth tokens. While it computes on lines d of this tile it fetches those lines of the next
// one for which `turn` is this head's, so that the heads of the group share the fetching evenly.
TANDEM_INLINE vf scores_of(const float* q, const float* const* k, uint32_t dim, const float* const* next, uint32_t turn,
                           uint32_t turns) {
  constexpr uint32_t kLine = 16;
  vf total[kWidth] = {};
  uint32_t d = 0;
  for (; d + kWidth <= dim; d += kWidth) {
    const vf query = load(q + d);
    for (int t = 0; t < kWidth; ++t) total[t] = fma(load(k[t] + d), query, total[t]);
    if (next && d % kLine == 0 && d / kLine % turns == turn)
      for (int t = 0; t < kWidth; ++t) __builtin_prefetch(next[t] + d);
  }
  if (d < dim) {  // half a vector
    const vf query = load(q + d);
    for (int t = 0; t < kWidth; ++t) total[t] = fma(load_first(k[t] + d, kWidth / 2), query, total[t]);
  }
  return sum_each(total);
}

void scale_queries(const float* q, uint32_t group, uint32_t dim, float* queries) {
  const size_t padded = padded_dim(dim);
  const float scale = 1.0f / __builtin_sqrtf(static_cast<float>(dim));
  for (uint32_t h = 0; h < group; ++h)
    for (uint32_t d = 0; d < padded; ++d) queries[h * padded + d] = d < dim ? q[size_t{dim} * h + d] * scale : 0.0f;
}

// o += sum over tokens [begin, end) of p_t v_t for kHeads heads and kVectors vectors from dimension d on.
template <int kHeads, int kVectors, bool kHalf>
TANDEM_INLINE void accumulate_block(const float* const* v, uint32_t begin, uint32_t end, const float* const* p,
                                    float* const* o, uint32_t d, const float* const* next) {
  vf total[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kVectors; ++i) total[h][i] = load(o[h] + d + i * kWidth);
  for (uint32_t t = begin; t < end; ++t) {
    vf value[kVectors];
    for (int i = 0; i < kVectors; ++i)
      value[i] = kHalf ? load_first(v[t] + d + i * kWidth, kWidth / 2) : load(v[t] + d + i * kWidth);
    for (int h = 0; h < kHeads; ++h) {
      const vf weight = splat(p[h][t]);
      for (int i = 0; i < kVectors; ++i) total[h][i] = fma(weight, value[i], total[h][i]);
    }
    if (next)
      for (int i = 0; i < kVectors; ++i) __builtin_prefetch(next[t] + d + i * kWidth);
  }
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kVectors; ++i) store(o[h] + d + i * kWidth, total[h][i]);
}

template <int kHeads>
void accumulate(const float* const* v, uint32_t begin, uint32_t end, const float* const* p, float* const* o,
                uint32_t dim, const float* const* next) {
  constexpr int kVectors = kHeads == 1 ? 8 : 4;
  uint32_t d = 0;
  for (; d + kVectors * kWidth <= dim; d += kVectors * kWidth)
    accumulate_block<kHeads, kVectors, false>(v, begin, end, p, o, d, next);
  for (; d + kWidth <= dim; d += kWidth) accumulate_block<kHeads, 1, false>(v, begin, end, p, o, d, next);
  if (d < dim) accumulate_block<kHeads, 1, true>(v, begin, end, p, o, d, nullptr);
}

constexpr uint32_t kHeadsAtOnce = kRegisters == 32 ? 4 : 2;

struct Head {
  float reference;  // m
  float total;      // sum of exp(score - m)
  float* o;         // sum of exp(score - m) v
  float p[kTile];   // scores, then weights, of the current tile
};

void weights(Head& head, uint32_t begin, uint32_t end) {
  const float reference = head.reference == -kInfinity ? 0.0f : head.reference;
  float padded[kTile + kMaxWidth];
  for (uint32_t t = 0; t < kTile; ++t) padded[t] = head.p[t];
  for (uint32_t t = 0; t < kTile; t += kWidth) store(padded + t, exp(load(padded + t) - splat(reference)));
  for (uint32_t t = begin; t < end; ++t) {
    head.p[t] = padded[t];
    head.total += padded[t];
  }
}

void move_reference(Head& head, float reference, uint32_t dim) {
  const float factor = exp(splat(head.reference - reference))[0];  // 0 at the first token
  head.reference = reference;
  head.total *= factor;
  for (uint32_t d = 0; d < dim; ++d) head.o[d] *= factor;
}

// The rare tile in which the reference moves: one head, runs of tokens between the moves.
void moving_tile(Head& head, const Tile& tile, uint32_t dim) {
  uint32_t begin = 0;
  const auto finish = [&](uint32_t end) {
    weights(head, begin, end);
    const float* p[] = {head.p};
    float* o[] = {head.o};
    accumulate<1>(tile.v, begin, end, p, o, dim, nullptr);
    begin = end;
  };
  for (uint32_t t = 0; t < tile.count; ++t) {
    const float score = head.p[t];
    if (score > head.reference + kSlack) {
      if (begin < t) finish(t);
      move_reference(head, score, dim);
    }
  }
  finish(tile.count);
}

}  // namespace

void partial_attention(const float* q, const KvSpan* spans, size_t span_count, uint32_t group, uint32_t dim, float* o,
                       float* lse, float* scores, size_t score_stride, float* scratch) {
  const size_t padded = padded_dim(dim);
  float* queries = scratch;                // [group][padded], scaled
  float* sums = scratch + group * padded;  // [group][padded]
  scale_queries(q, group, dim, queries);
  Head heads[kMaxGroup];
  for (uint32_t h = 0; h < group; ++h) {
    for (uint32_t d = 0; d < padded; ++d) sums[h * padded + d] = 0.0f;
    heads[h].reference = -kInfinity;
    heads[h].total = 0.0f;
    heads[h].o = sums + h * padded;
  }

  Cursor cursor{spans, spans + span_count, 0, group == 32 ? ~0u : (1u << group) - 1};
  Tile tiles[2];
  next_tile(cursor, dim, tiles[0]);
  size_t first = 0;  // token of the tile
  for (int now = 0; tiles[now].count > 0; first += tiles[now].count, now ^= 1) {
    const Tile& tile = tiles[now];
    Tile& following = tiles[now ^ 1];
    next_tile(cursor, dim, following);
    const bool more = following.count > 0;

    const uint32_t turns = static_cast<uint32_t>(__builtin_popcount(tile.mask));
    uint32_t turn = 0, steady_count = 0, steady[kMaxGroup];
    for (uint32_t left = tile.mask; left != 0; left &= left - 1, ++turn) {
      const uint32_t h = static_cast<uint32_t>(__builtin_ctz(left));
      Head& head = heads[h];
      vf most = splat(-kInfinity);
      for (uint32_t t = 0; t < kTile; t += kWidth) {
        const vf score =
            scores_of(queries + h * padded, tile.k + t, dim, more ? following.k + t : nullptr, turn, turns);
        const vf finite = minimum(score, splat(kLargest));  // an overflowed score stays comparable
        store(head.p + t, finite);
        most = maximum(finite, most);  // slots beyond count repeat a token of the tile
      }
      if (scores != nullptr)
        for (uint32_t t = 0; t < tile.count; ++t) scores[h * score_stride + first + t] = head.p[t];
      if (maximum_of(most) > head.reference + kSlack)
        moving_tile(head, tile, dim);
      else
        steady[steady_count++] = h;
    }

    for (uint32_t i = 0; i < steady_count; ++i) weights(heads[steady[i]], 0, tile.count);
    for (uint32_t i = 0; i < steady_count;) {
      const float* const* next = i == 0 && more ? following.v : nullptr;
      const uint32_t together = steady_count - i >= kHeadsAtOnce ? kHeadsAtOnce : 1;
      const float* p[kHeadsAtOnce];
      float* to[kHeadsAtOnce];
      for (uint32_t j = 0; j < together; ++j) {
        p[j] = heads[steady[i + j]].p;
        to[j] = heads[steady[i + j]].o;
      }
      if (together == kHeadsAtOnce)
        accumulate<kHeadsAtOnce>(tile.v, 0, tile.count, p, to, dim, next);
      else
        accumulate<1>(tile.v, 0, tile.count, p, to, dim, next);
      i += together;
    }
  }

  for (uint32_t h = 0; h < group; ++h) {
    const Head& head = heads[h];
    const bool empty = head.total == 0.0f;
    const float inverse = empty ? 0.0f : 1.0f / head.total;
    for (uint32_t d = 0; d < dim; ++d) o[size_t{dim} * h + d] = head.o[d] * inverse;
    lse[h] = empty ? -kInfinity : head.reference + __builtin_logf(head.total);
  }
}

void token_scores(const float* q, const KvSpan* spans, size_t span_count, uint32_t group, uint32_t dim, float* scores,
                  size_t score_stride, float* scratch) {
  const size_t padded = padded_dim(dim);
  scale_queries(q, group, dim, scratch);
  size_t first = 0;  // token of the span
  for (size_t s = 0; s < span_count; ++s) {
    for (uint32_t at = 0; at < spans[s].tokens; at += kWidth) {
      const uint32_t left = spans[s].tokens - at, count = left < kWidth ? left : kWidth;
      const float* k[kWidth];
      for (uint32_t t = 0; t < kWidth; ++t) k[t] = spans[s].k + size_t{dim} * (at + (t < count ? t : count - 1));
      for (uint32_t h = 0; h < group; ++h) {
        const vf score = minimum(scores_of(scratch + h * padded, k, dim, nullptr, 0, 1), splat(kLargest));
        float* out = scores + h * score_stride + first + at;
        if (count == kWidth)
          store(out, score);
        else
          for (uint32_t t = 0; t < count; ++t) out[t] = score[t];
      }
    }
    first += spans[s].tokens;
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
