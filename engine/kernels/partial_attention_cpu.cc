// Partial attention of one token: online softmax over tiles of up to 32 tokens, all heads of the group per tile.
//
// A head's result is canonical because every step is defined token by token, in order: a score is a dot product that
// does not depend on where the token lies in a tile; the reference score `m` moves only when a score exceeds it by more
// than kSlack, which the token sequence alone decides; and sums over tokens run in sequence. So tiles may be cut
// anywhere.
#include "engine/kernels/attention_span.h"
#include "engine/kernels/attention_tiles_cpu.h"
#include "engine/kernels/dot_cpu.h"
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kMaxGroup = 32;
// Weights are exp(score - m) with m up to this much below the largest score so far. Moving m for each new maximum would
// cost a pass over o each time and its rounding; exp(8) = 2981 keeps far from overflow.
constexpr float kSlack = 8.0f;

struct Head {
  float reference;    // m
  float total;        // sum of exp(score - m)
  float* o;           // sum of exp(score - m) v, where pair_place puts it
  const char* query;  //
};

// The heads that attend a tile, in order, and their scores, then weights.
struct Attending {
  Head* heads[kMaxGroup];
  float p[kMaxGroup][kTile];
  uint32_t count;
  Head* spare;  // nobody's
  // Three heads take as long as four, but two and one take longer: groups of 7 read 24.5 GB/s from the caches of a core
  // with the spare head, 18.8 without.
  uint32_t with_spare() {
    if (count % 4 != 3) return count;
    heads[count] = spare;
    return count + 1;
  }
};

// ---- scores ---------------------------------------------------------------------------------------------------------

// Scores of heads [first, first + kHeads) for the whole tile. Of every `turns` runs of tokens, number `turn` fetches as
// much of the next tile's keys as it reads itself.
template <class Dot, int kHeads>
void score_heads(Attending& at, uint32_t first, const Tile& tile, uint32_t dim, float scale, Fetch& next, uint32_t turn,
                 uint32_t turns) {
  constexpr uint32_t kTokens = kWidth / kHeads;
  constexpr int kDone = kTokens == 1 ? 0 : kTokens == 2 ? 1 : kTokens == 4 ? 2 : kTokens == 8 ? 3 : 4;  // levels
  constexpr size_t kStepBytes = kTokens * Dot::kStep * Dot::Type::kBytes;
  const char* q[kHeads];
  for (int h = 0; h < kHeads; ++h) q[h] = at.heads[first + h]->query;
  Fetch fetch = next;  // in registers
  for (uint32_t from = 0; from < tile.slots; from += kWidth) {
    vf parts[kHeads][kHeads];  // [run of tokens][head]
    for (uint32_t run = 0; run < kHeads; ++run) {
      const uint32_t t = from + run * kTokens;
      const bool mine = t / kTokens % turns == turn;
      if (mine && kStepBytes >= kPieceBytes) {
        dot_heads<Dot, kHeads>(q, tile.k + t, dim, parts[run], [&] { fetch_bytes<kStepBytes>(fetch); });
      } else {
        dot_heads<Dot, kHeads>(q, tile.k + t, dim, parts[run], [] {});
        if (mine)
          for (size_t done = 0; done < kTokens * dim * Dot::Type::kBytes; done += kPieceBytes)
            fetch_bytes<kPieceBytes>(fetch);
      }
    }
    for (uint32_t h = 0; h < kHeads; ++h) {
      vf runs[kHeads];
      for (uint32_t run = 0; run < kHeads; ++run) runs[run] = parts[run][h];
      const vf scores = fold_all<kHeads, kDone>(runs) * splat(scale);
      store(at.p[first + h] + from, minimum(scores, splat(kLargest)));  // an overflowed score stays comparable
    }
  }
  next = fetch;
}

// Heads are computed by fours, then by twos, then alone.
constexpr uint32_t turns_of(uint32_t heads) {
  return heads / 4 + heads % 4 / 2 + heads % 2;
}

template <class Dot>
void score_tile(Attending& at, const Tile& tile, uint32_t dim, float scale, Fetch& next) {
  const uint32_t heads = at.with_spare(), turns = turns_of(heads);
  uint32_t i = 0, turn = 0;
  for (; i + 4 <= heads; i += 4) score_heads<Dot, 4>(at, i, tile, dim, scale, next, turn++, turns);
  for (; i + 2 <= heads; i += 2) score_heads<Dot, 2>(at, i, tile, dim, scale, next, turn++, turns);
  if (i < heads) score_heads<Dot, 1>(at, i, tile, dim, scale, next, turn, turns);
}

// ---- values ---------------------------------------------------------------------------------------------------------

// o += sum over tokens [begin, end) of p_t v_t for kHeads heads, and kPairs pairs of vectors from dimension d on.
// kTotals: the heads' totals too, token after token; as vector additions beside the products they cost nothing, where a
// chain of scalar additions per head took a sixth of the time. Every `turns` tokens as much is fetched as a token is
// read.
template <class Type, int kHeads, int kPairs, bool kTotals>
TANDEM_INLINE void accumulate_pairs(Attending& at, uint32_t first, const char* const* v, uint32_t begin, uint32_t end,
                                    uint32_t d, Fetch& next, uint32_t turns) {
  constexpr int kVectors = 2 * kPairs;
  vf total[kHeads][kVectors];
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kVectors; ++i) total[h][i] = load(at.heads[first + h]->o + d + i * kWidth);
  vf weights[kHeads] = {};
  if (kTotals)
    for (int h = 0; h < kHeads; ++h) weights[h] = splat(at.heads[first + h]->total);
  const float* p = at.p[first] + begin;
  const size_t offset = d * Type::kBytes;
  constexpr size_t kBytes = kVectors * kWidth * Type::kBytes, kFetched = kBytes < kPieceBytes ? kPieceBytes : kBytes;
  const uint32_t interval = turns * static_cast<uint32_t>(kFetched / kBytes);
  Fetch fetch = next;
  uint32_t wait = interval;
  for (uint32_t t = begin; t < end; ++t, ++p) {
    asm("" : "+r"(p));  // one pointer: GCC makes one for each head, and keeps those that are too many in vectors
    vf value[kVectors];
    for (int i = 0; i < kVectors; i += 2)
      Type::load_pair(v[t] + offset + i * kWidth * Type::kBytes, value[i], value[i + 1]);
    for (int h = 0; h < kHeads; ++h) {
      const vf weight = splat(p[h * kTile]);
      if (kTotals) weights[h] = weights[h] + weight;
      for (int i = 0; i < kVectors; ++i) total[h][i] = fma(weight, value[i], total[h][i]);
    }
    if (--wait == 0) {
      wait = interval;
      fetch_bytes<kFetched>(fetch);
    }
  }
  next = fetch;
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kVectors; ++i) store(at.heads[first + h]->o + d + i * kWidth, total[h][i]);
  if (kTotals)
    for (int h = 0; h < kHeads; ++h) at.heads[first + h]->total = weights[h][0];
}

// The dimensions beyond the last pair, fewer than 2 kWidth, from d on.
template <class Type>
void accumulate_rest(float* o, const float* p, const char* const* v, uint32_t begin, uint32_t end, uint32_t d,
                     uint32_t dim) {
  for (; d < dim; d += kWidth) {
    const int count = dim - d < static_cast<uint32_t>(kWidth) ? static_cast<int>(dim - d) : kWidth;
    vf total = load(o + d);
    for (uint32_t t = begin; t < end; ++t) {
      const char* from = v[t] + d * Type::kBytes;
      total = fma(splat(p[t]), count == kWidth ? Type::load(from) : load_first_weights<Type>(from, count), total);
    }
    store(o + d, total);
  }
}

template <class Type, int kHeads>
void accumulate(Attending& at, uint32_t first, const Tile& tile, uint32_t begin, uint32_t end, uint32_t dim,
                Fetch& next, uint32_t turns) {
  constexpr int kAccumulators = kRegisters == 32 ? 16 : 8;
  constexpr int kPairs = kAccumulators / kHeads < 8 ? kAccumulators / kHeads / 2 : 4;
  constexpr uint32_t kPair = 2 * kWidth;
  uint32_t d = 0;
  if (kPairs * kPair <= dim) {
    accumulate_pairs<Type, kHeads, kPairs, true>(at, first, tile.v, begin, end, 0, next, turns);
    for (d = kPairs * kPair; d + kPairs * kPair <= dim; d += kPairs * kPair)
      accumulate_pairs<Type, kHeads, kPairs, false>(at, first, tile.v, begin, end, d, next, turns);
  } else {
    for (uint32_t h = first; h < first + kHeads; ++h)
      for (uint32_t t = begin; t < end; ++t) at.heads[h]->total += at.p[h][t];
  }
  for (; d + kPair <= dim; d += kPair)
    accumulate_pairs<Type, kHeads, 1, false>(at, first, tile.v, begin, end, d, next, turns);
  if (d < dim)
    for (uint32_t h = first; h < first + kHeads; ++h)
      accumulate_rest<Type>(at.heads[h]->o, at.p[h], tile.v, begin, end, d, dim);
}

// Four heads and four vectors at once, not eight heads and two (which halves the conversions): 24 GB/s instead of 22.5
// for groups of 8 in one core's caches.
template <class Type>
void accumulate_tile(Attending& at, const Tile& tile, uint32_t dim, Fetch& next) {
  const uint32_t heads = at.with_spare(), turns = turns_of(heads);
  if (heads > at.count)
    for (uint32_t t = 0; t < tile.count; ++t) at.p[at.count][t] = 0.0f;
  uint32_t i = 0;
  for (; i + 4 <= heads; i += 4) accumulate<Type, 4>(at, i, tile, 0, tile.count, dim, next, turns);
  for (; i + 2 <= heads; i += 2) accumulate<Type, 2>(at, i, tile, 0, tile.count, dim, next, turns);
  if (i < heads) accumulate<Type, 1>(at, i, tile, 0, tile.count, dim, next, turns);
}

// ---- softmax --------------------------------------------------------------------------------------------------------

// Scores to weights for the tokens [begin, end).
TANDEM_INLINE void weigh(const Head& head, float* p, uint32_t begin, uint32_t end) {
  const vf reference = splat(head.reference == -kInfinity ? 0.0f : head.reference);
  if (begin == 0 && end % kWidth == 0) {
    for (uint32_t t = 0; t < end; t += kWidth) store(p + t, exp(load(p + t) - reference));
    return;
  }
  float all[kTile];
  for (uint32_t t = 0; t < end; t += kWidth) store(all + t, exp(load(p + t) - reference));
  for (uint32_t t = begin; t < end; ++t) p[t] = all[t];
}

void move_reference(Head& head, float reference, uint32_t dim) {
  const float factor = exp(splat(head.reference - reference))[0];  // 0 at the first token
  head.reference = reference;
  head.total *= factor;
  for (uint32_t d = 0; d < dim; ++d) head.o[d] *= factor;
}

// The rare tile in which the reference moves: head i alone, runs of tokens between the moves.
template <class Type>
void moving_tile(Attending& at, uint32_t i, const Tile& tile, uint32_t dim, Fetch& next) {
  uint32_t begin = 0;
  Head& head = *at.heads[i];
  const auto finish = [&](uint32_t end) {
    weigh(head, at.p[i], begin, end);
    accumulate<Type, 1>(at, i, tile, begin, end, dim, next, turns_of(at.count));
    begin = end;
  };
  for (uint32_t t = 0; t < tile.count; ++t) {
    const float score = at.p[i][t];
    if (score > head.reference + kSlack) {
      if (begin < t) finish(t);
      move_reference(head, score, dim);
    }
  }
  finish(tile.count);
}

template <class Dot>
void attend(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* o, float* lse,
            float* scores, size_t score_stride, float* scratch) {
  typedef typename Dot::Type Type;
  const uint32_t group = shape.group, dim = shape.dim;
  const size_t padded = padded_dim(dim);
  float* queries = scratch;                // [group][padded]
  float* sums = scratch + group * padded;  // [group + 1][padded]
  prepare_queries<Dot>(q, group, dim, queries);
  const float scale = score_scale<Dot>(dim);
  Head heads[kMaxGroup];
  for (uint32_t h = 0; h < group; ++h) {
    for (uint32_t d = 0; d < padded; ++d) sums[h * padded + d] = 0.0f;
    heads[h].reference = -kInfinity;
    heads[h].total = 0.0f;
    heads[h].o = sums + h * padded;
    heads[h].query = reinterpret_cast<const char*>(queries + h * padded);
  }

  Cursor cursor{spans,
                spans + span_count,
                0,
                group == 32 ? ~0u : (1u << group) - 1,
                dim * Type::kBytes,
                kTile * 2 * dim * Type::kBytes <= kTileBytes ? kTile : kSlots};
  for (uint32_t d = 0; d < padded; ++d) sums[group * padded + d] = 0.0f;
  Head spare{0.0f, 0.0f, sums + group * padded, heads[0].query};
  Attending at;
  at.spare = &spare;
  Tile tiles[2];
  next_tile(cursor, tiles[0]);
  size_t first = 0;  // token of the tile
  for (int now = 0; tiles[now].count > 0; first += tiles[now].count, now ^= 1) {
    const Tile& tile = tiles[now];
    Tile& following = tiles[now ^ 1];
    next_tile(cursor, following);
    Fetch next{following.runs, following.runs + (following.count > 0 ? following.run_count : 0), 0,
               following.run_bytes};

    at.count = 0;
    for (uint32_t left = tile.mask; left != 0; left &= left - 1) at.heads[at.count++] = heads + __builtin_ctz(left);
    score_tile<Dot>(at, tile, dim, scale, next);
    if (scores != nullptr)  // every head attends
      for (uint32_t h = 0; h < group; ++h)
        __builtin_memcpy(scores + h * score_stride + first, at.p[h], tile.count * sizeof(float));

    uint32_t steady = 0;  // heads whose reference stays
    for (uint32_t i = 0; i < at.count; ++i) {
      vf most = load(at.p[i]);  // slots beyond count repeat a token of the tile
      for (uint32_t t = kWidth; t < tile.slots; t += kWidth) most = maximum(load(at.p[i] + t), most);
      if (maximum_of(most) > at.heads[i]->reference + kSlack) {
        moving_tile<Type>(at, i, tile, dim, next);
        continue;
      }
      if (steady < i) {
        at.heads[steady] = at.heads[i];
        for (uint32_t t = 0; t < tile.slots; t += kWidth) store(at.p[steady] + t, load(at.p[i] + t));
      }
      ++steady;
    }
    at.count = steady;
    for (uint32_t i = 0; i < at.count; ++i) weigh(*at.heads[i], at.p[i], 0, tile.count);
    accumulate_tile<Type>(at, tile, dim, next);
    while (next.run != next.end) fetch_bytes<kRunBytes>(next);  // what moving references and odd dimensions left
  }

  for (uint32_t h = 0; h < group; ++h) {
    const Head& head = heads[h];
    const bool empty = head.total == 0.0f;
    const float inverse = empty ? 0.0f : 1.0f / head.total;
    for (uint32_t d = 0; d < dim; ++d) {
      const uint32_t pair = d / (2 * kWidth) * (2 * kWidth);
      const uint32_t place = pair + 2 * kWidth <= dim ? pair + Type::pair_place(d - pair) : d;
      o[size_t{dim} * h + d] = head.o[place] * inverse;
    }
    lse[h] = empty ? -kInfinity : head.reference + __builtin_logf(head.total);
  }
}

template <class Dot>
void scores_alone(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* scores,
                  size_t score_stride, float* scratch) {
  const uint32_t dim = shape.dim;
  const size_t padded = padded_dim(dim), token_bytes = dim * Dot::Type::kBytes;
  prepare_queries<Dot>(q, shape.group, dim, scratch);
  const vf scale = splat(score_scale<Dot>(dim));
  size_t first = 0;  // token of the span
  for (size_t s = 0; s < span_count; ++s) {
    const char* keys = static_cast<const char*>(spans[s].k);
    for (uint32_t at = 0; at < spans[s].tokens; at += kWidth) {
      const uint32_t left = spans[s].tokens - at, count = left < kWidth ? left : kWidth;
      const char* k[kWidth];
      for (uint32_t t = 0; t < kWidth; ++t) k[t] = keys + token_bytes * (at + (t < count ? t : count - 1));
      for (uint32_t h = 0; h < shape.group; ++h) {
        const char* query = reinterpret_cast<const char*>(scratch + h * padded);
        vf dot;
        dot_heads<Dot, 1>(&query, k, dim, &dot, [] {});
        const vf score = minimum(dot * scale, splat(kLargest));
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

}  // namespace

void partial_attention(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* o,
                       float* lse, float* scores, size_t score_stride, float* scratch) {
  switch (shape.kv) {
    case DType::f32:
      return attend<DotF32>(q, spans, span_count, shape, o, lse, scores, score_stride, scratch);
    case DType::f16:
      return attend<DotF16>(q, spans, span_count, shape, o, lse, scores, score_stride, scratch);
    case DType::bf16:
      return attend<DotBF16>(q, spans, span_count, shape, o, lse, scores, score_stride, scratch);
  }
}

void token_scores(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* scores,
                  size_t score_stride, float* scratch) {
  switch (shape.kv) {
    case DType::f32:
      return scores_alone<DotF32>(q, spans, span_count, shape, scores, score_stride, scratch);
    case DType::f16:
      return scores_alone<DotF16>(q, spans, span_count, shape, scores, score_stride, scratch);
    case DType::bf16:
      return scores_alone<DotBF16>(q, spans, span_count, shape, scores, score_stride, scratch);
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
