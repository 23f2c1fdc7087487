// Partial attention of one token: online softmax over tiles of up to 32 tokens, all heads of the group per tile.
//
// A head's result is canonical because every step is defined token by token, in order: a score is a dot product that
// does not depend on where the token lies in a tile; the reference score `m` moves only when a score exceeds it by more
// than kSlack, which the token sequence alone decides; sums of weights times V run in sequence, and those of weights in
// kWidth lanes, each of which has every token of its number modulo kWidth. So tiles may be cut anywhere. (bf16 KV with
// AMX has an order of its own: attention_amx_cpu.h.)
#include "engine/kernels/attention_amx_cpu.h"
#include "engine/kernels/attention_products_amx_cpu.h"
#include "engine/kernels/attention_span.h"
#include "engine/kernels/attention_tiles_cpu.h"
#include "engine/kernels/attention_values_cpu.h"
#include "engine/kernels/dot_cpu.h"
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

// ---- scores ---------------------------------------------------------------------------------------------------------

#if defined(__AVX512BF16__)
// Scores of four heads of 128 dimensions, [first, first + 4), for the whole tile. Queries stay in registers and every
// head has a tree of its own, which needs no transposition: 21 cycles per token for groups of 8 on Zen 5 instead of 31
// as score_heads has it. The products alone, two a cycle, are 16; one of their two ports has the tree's shuffles too.
// Beside every `turns`-th piece of keys that it reads it fetches one of the next tile.
constexpr uint32_t kFourDim = 128;
__attribute__((noinline)) void score_four(Attending& at, uint32_t first, const Tile& tile, float scale, Fetch& next,
                                          uint32_t turns) {
  constexpr int kHeads = 4, kSteps = kFourDim / DotBF16::kStep;
  __m512bh q[kHeads][kSteps];
  for (int h = 0; h < kHeads; ++h)
    for (int i = 0; i < kSteps; ++i) q[h][i] = DotBF16::query(at.heads[first + h]->query + i * 64);
  Fetch fetch = next;  // in registers
  uint32_t wait = turns;
  for (uint32_t from = 0; from < tile.slots; from += kWidth) {
    vf fours[kHeads][4];
#pragma GCC unroll 4
    for (int run = 0; run < 4; ++run) {
      vf pairs[kHeads][2];
#pragma GCC unroll 2
      for (int pair = 0; pair < 2; ++pair) {
        const char* const* k = tile.k + from + 4 * run + 2 * pair;
        const char *even = k[0], *odd = k[1];
        vf total[kHeads][2] = {};
        for (int i = 0; i < kSteps; ++i) {
          const __m512bh a = DotBF16::key(even + i * 64), b = DotBF16::key(odd + i * 64);
          for (int h = 0; h < kHeads; ++h) {
            total[h][0] = DotBF16::add(q[h][i], a, total[h][0]);
            total[h][1] = DotBF16::add(q[h][i], b, total[h][1]);
          }
          if (--wait == 0) {
            wait = turns;
            fetch_piece(fetch);
          }
        }
        for (int h = 0; h < kHeads; ++h) pairs[h][pair] = fold_all<2>(total[h]);
      }
      for (int h = 0; h < kHeads; ++h) fours[h][run] = fold_all<2, 1>(pairs[h]);
    }
    for (int h = 0; h < kHeads; ++h)
      store(at.p[first + h] + from, minimum(fold_all<4, 2>(fours[h]) * splat(scale), splat(kLargest)));
  }
  next = fetch;
}
#endif

// The same for any number of heads and dimensions. Not inlined, as the above: in attend GCC keeps sums on the stack.
template <class Dot, int kHeads>
__attribute__((noinline)) void score_heads(Attending& at, uint32_t first, const Tile& tile, uint32_t dim, float scale,
                                           Fetch& next, uint32_t turns) {
  constexpr uint32_t kTokens = kWidth / kHeads;
  constexpr size_t kStepBytes = kTokens * Dot::kStep * Dot::Type::kBytes;
  const char* q[kHeads];
  for (int h = 0; h < kHeads; ++h) q[h] = at.heads[first + h]->query;
  Fetch fetch = next;  // in registers
  uint32_t wait = turns;
  const auto beside = [&](uint32_t d, int i) __attribute__((always_inline)) {
    constexpr uint32_t kPieces = kStepBytes / kPieceBytes;  // of a step; 0 where it takes several steps
    if constexpr (kPieces > 0) {
      if (static_cast<uint32_t>(i) % (kWidth / kPieces) != 0) return;
    } else {
      if (i != 0 || d % (kPieceBytes / kStepBytes * Dot::kStep) != 0) return;
    }
    if (--wait == 0) {
      wait = turns;
      fetch_piece(fetch);
    }
  };
  for (uint32_t from = 0; from < tile.slots; from += kWidth) {
    vf scores[kHeads];  // of runs of tokens, then of heads
    for (uint32_t run = 0; run < kHeads; ++run)
      scores[run] = dot_heads<Dot, kHeads>(q, tile.k + from + run * kTokens, dim, beside);
    transpose_blocks<kHeads>(scores);
    for (uint32_t h = 0; h < kHeads; ++h)  // an overflowed score stays comparable
      store(at.p[first + h] + from, minimum(scores[h] * splat(scale), splat(kLargest)));
  }
  next = fetch;
}

// Heads are computed by fours, then by twos, then alone.
constexpr uint32_t turns_of(uint32_t heads) {
  return heads / 4 + heads % 4 / 2 + heads % 2;
}

template <class Dot>
void score_tile(Attending& at, const Tile& tile, uint32_t dim, float scale, Fetch& next) {
#if defined(__AVX512BF16__)
  const bool fours =
      __is_same(Dot, DotBF16) && dim == kFourDim;  // which are worth it for two heads, or one beside four
#else
  constexpr bool fours = false;
#endif
  const uint32_t heads = at.with_spares(!fours ? 3 : at.count > 4 ? 1 : 2), turns = turns_of(heads);
  uint32_t i = 0;
  for (; i + 4 <= heads; i += 4) {
#if defined(__AVX512BF16__)
    if (fours) {
      score_four(at, i, tile, scale, next, turns);
      continue;
    }
#endif
    score_heads<Dot, 4>(at, i, tile, dim, scale, next, turns);
  }
  for (; i + 2 <= heads; i += 2) score_heads<Dot, 2>(at, i, tile, dim, scale, next, turns);
  if (i < heads) score_heads<Dot, 1>(at, i, tile, dim, scale, next, turns);
}

// ---- softmax --------------------------------------------------------------------------------------------------------

// Scores of a run of tokens to weights, which the head's totals take in.
template <class Values>
TANDEM_INLINE void weigh(Head& head, const float* scores, uint32_t tokens, float* weights) {
  const vf reference = splat(head.reference == -kInfinity ? 0.0f : head.reference);
  const uint32_t lane = head.tokens % kWidth;
  vf total = head.total, kept_total = head.kept_total;
  head.tokens += tokens;
  const auto add = [&](vf weight, uint32_t t) __attribute__((always_inline)) {
    vf kept = Values::keep(weight, weights, t);
    if (lane != 0) {
      weight = rotate_lanes(weight, lane);
      kept = rotate_lanes(kept, lane);
    }
    total = total + weight;
    if (Values::kRounds) kept_total = kept_total + kept;
  };
  uint32_t t = 0;
  for (; t + kWidth <= tokens; t += kWidth) add(exp(load(scores + t) - reference), t);
  if (const uint32_t left = tokens - t; left > 0)
    add(first_lanes(exp(load_first(scores + t, static_cast<int>(left)) - reference), left), t);
  head.total = total;
  head.kept_total = kept_total;
}

void move_reference(Head& head, float reference, uint32_t dim) {
  const float factor = exp(splat(head.reference - reference))[0];  // 0 at the first token
  head.reference = reference;
  head.total = head.total * splat(factor);
  head.kept_total = head.kept_total * splat(factor);
  for (uint32_t d = 0; d < padded_dim(dim); d += kWidth) store(head.o + d, load(head.o + d) * splat(factor));
}

// Four heads and four vectors at once where V is widened, not eight heads and two (which halves the conversions): 24
// GB/s instead of 22.5 for groups of 8 in one core's caches. Of pairs eight heads and two vectors: 22 cycles per token
// for groups of 8 on Zen 5, of which the products alone are 16. With the scores' 21 and 8 for exponentials groups of 8
// take 60; neither unrolled steps here, nor two vectors of weights at a time, nor tiles of 16 tokens (78) make it less.
template <class Values, int kHeads = Values::kTogether>
void accumulate_heads(Attending& at, uint32_t first, uint32_t heads, const Tile& tile, uint32_t dim, Fetch& next,
                      uint32_t turns) {
  for (; first + kHeads <= heads; first += kHeads)
    accumulate<Values, kHeads>(at, first, tile.v, tile.count, dim, next, turns);
  if constexpr (kHeads > 1) {
    if (first < heads) accumulate_heads<Values, kHeads - 1>(at, first, heads, tile, dim, next, turns);
  }
}

template <class Values>
void accumulate_tile(Attending& at, const Tile& tile, uint32_t dim, Fetch& next) {
  uint32_t heads = at.count;
  if (heads % Values::kTogether == 3) {
    at.with_spares(3);
    __builtin_memset(at.weights[heads++], 0, sizeof at.weights[0]);
  }
  accumulate_heads<Values>(at, 0, heads, tile, dim, next, (heads + Values::kTogether - 1) / Values::kTogether);
}

// Tokens of the head in `row` alone, in runs between the moves of its reference.
template <class Values>
void add_alone(Attending& at, uint32_t row, const float* scores, const char* const* v, uint32_t tokens, uint32_t dim,
               Fetch& next) {
  uint32_t begin = 0;
  Head& head = *at.heads[row];
  const auto finish = [&](uint32_t end) {
    weigh<Values>(head, scores + begin, end - begin, at.weights[row]);
    accumulate<Values, 1>(at, row, v + begin, end - begin, dim, next, turns_of(at.count));
    begin = end;
  };
  for (uint32_t t = 0; t < tokens; ++t) {
    if (scores[t] > head.reference + kSlack) {
      if (begin < t) finish(t);
      move_reference(head, scores[t], dim);
    }
  }
  if (begin < tokens) finish(tokens);
}

// A tile of tokens that not the same heads attend: each head's own are picked out. With a tile for every change of the
// heads, tokens of which each of 8 heads attends three in ten were read at 0.09 of a pure read (bf16, Sapphire Rapids),
// like this at 0.55.
template <class Values>
void add_mixed(Attending& at, const Tile& tile, uint32_t dim, Fetch& next) {
  uint32_t row = 0;
  for (uint32_t left = tile.any; left != 0; left &= left - 1, ++row) {
    const uint32_t h = static_cast<uint32_t>(__builtin_ctz(left));
    const char* v[2 * kTile];
    float scores[2 * kTile];
    uint32_t tokens = 0;
    for (uint32_t from = 0; from < tile.slots; from += kWidth)
      tokens += own_tokens(tile, from, h, load(at.p[row] + from), v + tokens, scores + tokens);
    add_alone<Values>(at, row, scores, v, tokens, dim, next);
  }
}

// A tile's tokens, all heads that attend one of them; fetches `following` beside. scores: of the first head and the
// tile's first token, or nullptr. Not inlined: what attend keeps for later costs registers here.
template <class Dot, class Values>
__attribute__((noinline)) void attend_tile(Attending& at, Head* heads, uint32_t group, const Tile& tile,
                                           const Tile& following, uint32_t dim, float scale, float* scores,
                                           size_t score_stride) {
  Fetch next = fetch_of(following);

  at.count = 0;
  for (uint32_t left = tile.any; left != 0; left &= left - 1) at.heads[at.count++] = heads + __builtin_ctz(left);
  score_tile<Dot>(at, tile, dim, scale, next);
  if (scores != nullptr)  // every head attends
    for (uint32_t h = 0; h < group; ++h)
      __builtin_memcpy(scores + h * score_stride, at.p[h], tile.count * sizeof(float));

  if (!tile.alike()) {
    add_mixed<Values>(at, tile, dim, next);
    while (!next.done()) fetch_piece(next);
    return;
  }
  uint32_t steady = 0;  // heads whose reference stays
  const float* scores_of[kMaxGroup];
  for (uint32_t i = 0; i < at.count; ++i) {
    vf most = load(at.p[i]);  // slots beyond count repeat a token of the tile
    for (uint32_t t = kWidth; t < tile.slots; t += kWidth) most = maximum(load(at.p[i] + t), most);
    Head& head = *at.heads[i];
    at.heads[steady] = &head;
    // A move at the first token, as in the first tile, leaves the tile whole.
    if (at.p[i][0] > head.reference + kSlack) move_reference(head, at.p[i][0], dim);
    if (any_above(most, splat(head.reference + kSlack)))
      add_alone<Values>(at, steady, at.p[i], tile.v, tile.count, dim, next);
    else
      scores_of[steady++] = at.p[i];
  }
  at.count = steady;
  for (uint32_t i = 0; i < steady; ++i) weigh<Values>(*at.heads[i], scores_of[i], tile.count, at.weights[i]);
  accumulate_tile<Values>(at, tile, dim, next);
  while (!next.done()) fetch_piece(next);  // what moving references and odd dimensions left
}

template <class Dot, class Values>
void attend(const float* q, const KvSpan* spans, const size_t* ends, size_t parts, AttentionShape shape, float* o,
            float* lse, float* scores, size_t score_stride, float* scratch) {
  typedef typename Dot::Type Type;
  const uint32_t group = shape.group, dim = shape.dim;
  const size_t padded = padded_dim(dim);
  float* queries = scratch;                // [group][padded]
  float* sums = scratch + group * padded;  // [group + 1][padded]
  prepare_queries<Dot>(q, group, dim, queries);
  const float scale = score_scale<Dot>(dim);
  Head heads[kMaxGroup];
  const Cursor cursor{spans,
                      spans,
                      0,
                      group == 32 ? ~0u : (1u << group) - 1,
                      dim * Type::kBytes,
                      kTile * 2 * dim * Type::kBytes <= kTileBytes ? kTile : kSlots,
                      kSlots};
  Head spare{0.0f, 0, vf{}, vf{}, sums + group * padded, reinterpret_cast<const char*>(queries)};
  __builtin_memset(spare.o, 0, padded * sizeof(float));
  Attending at;
  at.spare = &spare;
  for_each_tile(
      cursor, ends, parts,
      [&] {
        __builtin_memset(sums, 0, group * padded * sizeof(float));
        for (uint32_t h = 0; h < group; ++h)
          heads[h] = {
              -kInfinity, 0, vf{}, vf{}, sums + h * padded, reinterpret_cast<const char*>(queries + h * padded)};
      },
      [&](const Tile& tile, const Tile& following) __attribute__((always_inline)) {
        attend_tile<Dot, Values>(at, heads, group, tile, following, dim, scale, scores, score_stride);
        if (scores != nullptr) scores += tile.count;
      },
      [&] {
        for (uint32_t h = 0; h < group; ++h, ++lse, o += dim) {
          const Head& head = heads[h];
          const float total = sum(head.total);
          const bool empty = total == 0.0f;
          const float inverse = empty ? 0.0f : 1.0f / (Values::kRounds ? sum(head.kept_total) : total);
          store_sums<Values>(head.o, inverse, dim, o);
          *lse = empty ? -kInfinity : head.reference + __builtin_logf(total);
        }
      });
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
        const vf score = minimum(dot_heads<Dot, 1>(&query, k, dim, [](uint32_t, int) {}) * scale, splat(kLargest));
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

void partial_attention(const float* q, const KvSpan* spans, const size_t* ends, size_t parts, AttentionShape shape,
                       float* o, float* lse, float* scores, size_t score_stride, float* scratch) {
  switch (shape.kv) {
    case DType::f32:
      return attend<DotF32, WidenedValues<F32>>(q, spans, ends, parts, shape, o, lse, scores, score_stride, scratch);
    case DType::f16:
      return attend<DotF16, WidenedValues<F16>>(q, spans, ends, parts, shape, o, lse, scores, score_stride, scratch);
    case DType::bf16:
#if defined(__AMX_BF16__)
      if (shape.dim % kTileDims == 0)
        return attend_in_runs(q, spans, ends, parts, shape, o, lse, scores, score_stride, scratch);
#endif
      return attend<DotBF16, ValuesBF16>(q, spans, ends, parts, shape, o, lse, scores, score_stride, scratch);
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
#if defined(__AMX_BF16__)
      if (shape.dim % kTileDims == 0) return score_in_tiles(q, spans, span_count, shape, scores, score_stride, scratch);
#endif
      return scores_alone<DotBF16>(q, spans, span_count, shape, scores, score_stride, scratch);
  }
}

}  // namespace tandem::TANDEM_ISA_NAMESPACE
