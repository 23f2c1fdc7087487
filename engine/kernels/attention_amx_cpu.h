// Partial attention of bf16 KV by AMX, for partial_attention_cpu.cc, which alone includes this: D a multiple of 32, any
// group.
//
// Scores are products of 16 keys, as they lie in memory, with the queries of 16 heads. Weights times V are products of
// the heads' weights with a run of 32 tokens. A product sums a run's even tokens and its odd ones and adds both to what
// was there, so that bits depend on where runs begin: every head has runs of its own, of the tokens that it attends in
// their order. Where all heads attend the same tokens, as nearly always, a tile of tokens is everybody's run.
//
// Against vdpbf16ps, which Sapphire Rapids starts every two cycles, groups of 8 read 0.84 of a pure read of memory in
// one piece instead of 0.60 and 0.87 of random pages instead of 0.56 (two cores); groups of 1 as much with either, and
// 0.76 of random pages instead of 0.83 in an hour when others used the memory.
#pragma once

#include "engine/kernels/amx_cpu.h"
#include "engine/kernels/attention_products_amx_cpu.h"
#include "engine/kernels/attention_tiles_cpu.h"
#include "engine/kernels/attention_values_cpu.h"
#include "engine/kernels/dot_cpu.h"
#include "engine/kernels/vec.h"

#if defined(__AMX_BF16__)

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kRun = kTile;
constexpr uint32_t kRunPairs = kRun / 2;

// A head's tokens that are in no run yet, and its sums.
struct RunHead {
  float reference;  // m
  uint32_t tokens;  // in no run yet
  vf total;         // sum of exp(score - m); lane i has the tokens i and 16 + i of each run
  vf kept_total;    // the same of the weights rounded to bf16
  const char* v[2 * kRun];
  alignas(64) float scores[2 * kRun];
};

class Runs {
 public:
  Runs(const float* q, AttentionShape shape, float* scratch)
      : group_(shape.group),
        dim_(shape.dim),
        token_bytes_(dim_ * size_t{2}),
        scale_(splat(score_scale<DotBF16>(dim_))),
        buffers_(scratch, group_, dim_),
        tiles_(shapes(group_)) {
    prepare_query_tiles(q, group_, dim_, buffers_.queries);
  }

  // A part, which finish() ends.
  void begin() {
    __builtin_memset(buffers_.sums, 0, size_t{group_} * dim_ * sizeof(float));
    waiting_ = 0;
    for (uint32_t h = 0; h < group_; ++h) {
      heads_[h].reference = -kInfinity;
      heads_[h].tokens = 0;
      heads_[h].total = heads_[h].kept_total = vf{};
    }
  }

  // Adds a tile's tokens; `next` is what comes next. scores: of the tile's first token and the first head, or nullptr.
  void take(const Tile& tile, const Tile& next, float* scores, size_t score_stride) {
    Fetch fetch = fetch_of(next);
    const bool is_run = tile.count == kRun && tile.alike() && (tile.any & waiting_) == 0;
    multiply(tile, fetch, is_run);
    for (uint32_t first = 0; first < group_; first += 4)
      for (uint32_t from = 0; from < tile.count; from += kTileRows) {
        vf four[4];
        four_scores(products_[first / kTileRows] + from * kTileRows, first % kTileRows, scale_, four);
        for (uint32_t h = first; h < group_ && h < first + 4; ++h) {
          if ((tile.any >> h & 1) == 0) continue;  // it may have tokens waiting
          RunHead& head = heads_[h];
          if (is_run)
            store(head.scores + from, four[h - first]);
          else
            head.tokens += own_tokens(tile, from, h, four[h - first], head.v + head.tokens, head.scores + head.tokens);
        }
      }
    if (scores != nullptr)  // every head attends
      for (uint32_t h = 0; h < group_; ++h)
        __builtin_memcpy(scores + h * score_stride, heads_[h].scores + (is_run ? 0 : heads_[h].tokens - tile.count),
                         tile.count * sizeof(float));
    if (!is_run) {
      while (!fetch.done()) fetch_piece<false>(fetch);
      waiting_ |= tile.any;
      take_runs(tile.any, kRun);
      return;
    }
    uint32_t members[kMaxGroup], count = 0;
    for (uint32_t left = tile.any; left != 0; left &= left - 1) members[count++] = lowest(left);
    add_run(
        members, count, [&]() __attribute__((always_inline)) { fetch_some(fetch); });
    while (!fetch.done()) fetch_piece<false>(fetch);
  }

  void finish(float* o, float* lse) {
    for (uint32_t left = waiting_; left != 0; left &= left - 1) {
      RunHead& head = heads_[lowest(left)];
      for (uint32_t t = head.tokens; t < kRun; ++t) {
        head.scores[t] = -kInfinity;
        head.v[t] = nullptr;
      }
    }
    take_runs(waiting_, 1);
    for (uint32_t h = 0; h < group_; ++h) {
      const RunHead& head = heads_[h];
      const float total = sum(head.total);
      const bool empty = total == 0.0f;
      store_sums<PairedValues>(buffers_.sums + size_t{h} * dim_, empty ? 0.0f : 1.0f / sum(head.kept_total), dim_,
                               o + size_t{dim_} * h);
      lse[h] = empty ? -kInfinity : head.reference + __builtin_logf(total);
    }
  }

 private:
  // 0 to 2 are sums and weights of a group, the others of 16 rows.
  static TileShapes shapes(uint32_t group) {
    const auto rows = static_cast<uint8_t>(group < kTileRows ? group : kTileRows);
    return {{rows, rows, rows, kTileRows, kTileRows, kTileRows, kTileRows, kTileRows}};
  }
  static uint32_t lowest(uint32_t heads) { return static_cast<uint32_t>(__builtin_ctz(heads)); }

  // All products of keys, and beside them the values where they are a run: the products alone would wait for each
  // other.
  __attribute__((always_inline)) void multiply(const Tile& tile, Fetch& fetch, bool is_run) {
    const char* keys[2];
    keys_in_rows(tile.k, tile.count, token_bytes_, buffers_.keys, keys);
    const auto with_values = [&](uint32_t i, uint32_t n) __attribute__((always_inline)) {
      fetch_some(fetch);
      for (uint32_t pair = i * kRunPairs / n; pair < (i + 1) * kRunPairs / n; ++pair) interleave(tile.v, pair);
    };
    const auto fetching = [&](uint32_t, uint32_t) __attribute__((always_inline)) {
      fetch_some(fetch);
      fetch_some(fetch);
    };
    if (is_run)
      multiply_keys(keys, token_bytes_, buffers_.queries, products_[0], with_values);
    else
      multiply_keys(keys, token_bytes_, buffers_.queries, products_[0], fetching);
    if (group_ > kTileRows)
      multiply_keys(keys, token_bytes_, buffers_.queries + size_t{kTileRows} * dim_ / 2, products_[1],
                    [](uint32_t, uint32_t) {});
  }

  // A tile whose tokens have L lines is fetched in 32 L pieces, beside 4 L products: eight to each. Each piece is
  // fetched once; a second time gained nothing here. Fetching token by token took 1.19 times as long in random pages of
  // D 64, 1.04 times in those of D 128, and 0.96 to 1 times in memory in one piece (groups of 4, two cores).
  TANDEM_INLINE void fetch_some(Fetch& fetch) {
    for (int i = 0; i < 8; ++i) fetch_piece<false>(fetch);
  }

  // Values of tokens 2 pair and 2 pair + 1 of a run, of which tokens that are none are 0.
  __attribute__((always_inline)) void interleave(const char* const* v, uint32_t pair) {
    const char *even = v[2 * pair], *odd = v[2 * pair + 1];
    __m512i* to = buffers_.values + pair;
    for (size_t at = 0; at < token_bytes_; at += kRowBytes, to += 2 * kTileRows) {
      const __m512i first = even != nullptr ? _mm512_loadu_si512(even + at) : __m512i{};
      const __m512i second = odd != nullptr ? _mm512_loadu_si512(odd + at) : __m512i{};
      to[0] = _mm512_unpacklo_epi16(first, second);
      to[kTileRows] = _mm512_unpackhi_epi16(first, second);
    }
  }

  // Runs of those of `heads` that have `least` tokens, until none has.
  void take_runs(uint32_t heads, uint32_t least) {
    while (heads != 0) {
      uint32_t members[kMaxGroup], count = 0, others = 0;
      const char* const* v = nullptr;
      for (uint32_t left = heads; left != 0; left &= left - 1) {
        const uint32_t h = lowest(left);
        if (heads_[h].tokens < least) continue;
        if (v == nullptr) v = heads_[h].v;
        if (__builtin_memcmp(v, heads_[h].v, kRun * sizeof *v) == 0)
          members[count++] = h;
        else
          others |= 1u << h;
      }
      if (count == 0) return;
      if (count == 1 && group_ > 1) {
        add_alone(members[0], v);
      } else {
        for (uint32_t pair = 0; pair < kRunPairs; ++pair) interleave(v, pair);
        add_run(members, count, [] {});
      }
      for (uint32_t i = 0; i < count; ++i) leave_behind(members[i]);
      heads = others;
    }
  }
  void leave_behind(uint32_t h) {
    RunHead& head = heads_[h];
    if (head.tokens <= kRun) {
      head.tokens = 0;
      waiting_ &= ~(1u << h);
      return;
    }
    head.tokens -= kRun;
    __builtin_memcpy(head.v, head.v + kRun, sizeof head.v / 2);
    __builtin_memcpy(head.scores, head.scores + kRun, sizeof head.scores / 2);
  }

  // The run of heads that attend the same tokens in it, whose values are interleaved.
  template <class Beside>
  __attribute__((always_inline)) void add_run(const uint32_t* members, uint32_t count, const Beside& beside) {
    for (uint32_t i = 0; i < count; ++i) weigh(members[i], buffers_.weights + i * kWidth);
    const size_t bytes = dim_ * sizeof(float);
    for (uint32_t first = 0; first < count; first += kTileRows) {
      const float* weights = buffers_.weights + first * kWidth;
      if (count == group_) {
        multiply_values(weights, buffers_.sums + size_t{first} * dim_, beside);
        continue;
      }
      // Rows beyond these have any number.
      const uint32_t some = count - first < kTileRows ? count - first : kTileRows;
      const auto sums_of = [&](uint32_t i) { return buffers_.sums + size_t{members[first + i]} * dim_; };
      for (uint32_t i = 0; i < some; ++i) __builtin_memcpy(buffers_.some_sums + size_t{i} * dim_, sums_of(i), bytes);
      multiply_values(weights, buffers_.some_sums, beside);
      for (uint32_t i = 0; i < some; ++i) __builtin_memcpy(sums_of(i), buffers_.some_sums + size_t{i} * dim_, bytes);
    }
  }

  // The run of one head among several, to the same bits without tiles: sums of even and of odd tokens, and both added
  // to what was there. Copies in rows of tiles' own would have to reach the cache before a tile can be loaded from
  // them.
  void add_alone(uint32_t h, const char* const* v) {
    weigh(h, buffers_.weights);
    float weights[kRun];
    for (uint32_t t = 0; t < kRun; t += kWidth)
      store(weights + t, BF16::load(reinterpret_cast<const char*>(buffers_.weights) + t * size_t{2}));
    float* sums = buffers_.sums + size_t{h} * dim_;
    size_t at = 0;
    for (; at + 4 * kRowBytes <= token_bytes_; at += 4 * kRowBytes) add_lines<4>(weights, v, at, sums + at / 2);
    for (; at < token_bytes_; at += kRowBytes) add_lines<1>(weights, v, at, sums + at / 2);
  }
  template <int kLines>
  TANDEM_INLINE void add_lines(const float* weights, const char* const* v, size_t at, float* sums) {
    vf parity[2][2 * kLines] = {};
    for (uint32_t t = 0; t < kRun && v[t] != nullptr; t += 2)
      for (uint32_t odd = 0; odd < 2 && v[t + odd] != nullptr; ++odd) {
        const vf weight = splat(weights[t + odd]);
        for (int i = 0; i < kLines; ++i) {
          vf a, b;
          BF16::load_pair(v[t + odd] + at + i * kRowBytes, a, b);
          parity[odd][2 * i] = fma(weight, a, parity[odd][2 * i]);
          parity[odd][2 * i + 1] = fma(weight, b, parity[odd][2 * i + 1]);
        }
      }
    for (uint32_t odd = 0; odd < 2; ++odd)  // tokens that are none add 0 in a tile: what was flushed to -0 becomes 0
      if (v[kRun - 2 + odd] == nullptr)
        for (vf& sum : parity[odd]) sum = sum + vf{};
    for (int i = 0; i < kLines; ++i, sums += 2 * kWidth) {
      const vf a = parity[0][2 * i] + parity[1][2 * i], b = parity[0][2 * i + 1] + parity[1][2 * i + 1];
      store(sums, load(sums) + _mm512_unpacklo_ps(a, b));
      store(sums + kWidth, load(sums + kWidth) + _mm512_unpackhi_ps(a, b));
    }
  }

  // Scores of a head's first 32 tokens to weights, which its totals take in.
  void weigh(uint32_t h, float* weights) {
    RunHead& head = heads_[h];
    const vf first = load(head.scores), second = load(head.scores + kWidth), most = maximum(first, second);
    if (any_above(most, splat(head.reference + kSlack))) move_reference(h, maximum_of(most));
    const vf reference = splat(head.reference == -kInfinity ? 0.0f : head.reference);
    const vf a = exp(first - reference), b = exp(second - reference);
    const auto kept = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a));
    _mm512_storeu_si512(weights, kept);
    const auto widened = [](__m256i half) { return reinterpret_cast<vf>(widen(half) << 16); };
    head.total = head.total + a + b;
    head.kept_total =
        head.kept_total + widened(_mm512_castsi512_si256(kept)) + widened(_mm512_extracti64x4_epi64(kept, 1));
  }
  void move_reference(uint32_t h, float reference) {
    RunHead& head = heads_[h];
    const vf factor = exp(splat(head.reference - reference));  // 0 at the first run
    head.reference = reference;
    head.total = head.total * factor;
    head.kept_total = head.kept_total * factor;
    float* sums = buffers_.sums + size_t{h} * dim_;
    for (uint32_t d = 0; d < dim_; d += kWidth) store(sums + d, load(sums + d) * factor);
  }

  // sums[rows][D] += weights[rows][32] times the interleaved values. beside() is called twice for every line of a
  // token.
  template <class Beside>
  __attribute__((always_inline)) void multiply_values(const float* weights, float* sums, const Beside& beside) {
    const size_t row = dim_ * sizeof(float);
    written(sums);
    _tile_loadd(2, weights, kRowBytes);
    const __m512i* values = buffers_.values;
    for (size_t at = 0; at < token_bytes_; at += kRowBytes, values += 2 * kTileRows, sums += 2 * kWidth) {
      _tile_loadd(0, sums, row);
      _tile_loadd(1, sums + kWidth, row);
      _tile_loadd(3, values, kRowBytes);
      _tile_dpbf16ps(0, 2, 3);
      beside();
      _tile_loadd(4, values + kTileRows, kRowBytes);
      _tile_dpbf16ps(1, 2, 4);
      beside();
      _tile_stored(0, sums, row);
      _tile_stored(1, sums + kWidth, row);
    }
    written(sums);
  }

  uint32_t group_, dim_;
  size_t token_bytes_;
  vf scale_;
  RunBuffers buffers_;
  uint32_t waiting_;  // heads with tokens in no run yet
  RunHead heads_[kMaxGroup];
  alignas(64) float products_[kMaxGroup / kTileRows][2 * kTileFloats];
  const Tiles tiles_;
  const FlushSubnormals flush_;
};

void attend_in_runs(const float* q, const KvSpan* spans, const size_t* ends, size_t parts, AttentionShape shape,
                    float* o, float* lse, float* scores, size_t score_stride, float* scratch) {
  const uint32_t all_heads = shape.group == 32 ? ~0u : (1u << shape.group) - 1;
  const Cursor cursor{spans, spans, 0, all_heads, shape.dim * size_t{2}, kTile, kTile};
  Runs runs(q, shape, scratch);
  for_each_tile(
      cursor, ends, parts, [&] { runs.begin(); },
      [&](const Tile& tile, const Tile& following) {
        runs.take(tile, following, scores, score_stride);
        if (scores != nullptr) scores += tile.count;
      },
      [&] {
        runs.finish(o, lse);
        o += size_t{shape.group} * shape.dim;
        lse += shape.group;
      });
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE

#endif
