// Tiles of tokens that partial_attention_cpu.cc goes through (with AMX attention_amx_cpu.h), and how the next one's
// memory is fetched while one is computed.
#pragma once

#include "engine/kernels/attention_span.h"
#include "engine/kernels/kernels_cpu.h"
#include "engine/kernels/vec.h"

namespace tandem::TANDEM_ISA_NAMESPACE {
namespace {

constexpr uint32_t kTile = 32;
// Tokens of a tile are 16 where 32 of them and the 32 that are being fetched would not stay in the first-level cache.
constexpr size_t kTileBytes = 16 << 10;
constexpr size_t kRunBytes = 256;
constexpr size_t kPieceBytes = 128;  // fetched at a time: the bookkeeping costs as much as the fetches
constexpr uint32_t kMaxRuns = 2 * kTile;
constexpr uint32_t kAgain = 16;  // runs between the first and the second fetch, at most
constexpr uint32_t kSlots = kMaxWidth;

// Tokens in a row. Pointers beyond count, up to the cursor's tile_tokens, are those of the last token; scores are
// computed for `slots`, count rounded up.
struct Tile {
  const char* k[kTile];
  const char* v[kTile];
  uint32_t masks[kTile];                // of the heads that attend a token; 0 beyond count
  const char* runs[kAgain + kMaxRuns];  // in the order in which they are fetched, after the last of the tile before
  uint32_t run_count;
  uint32_t again;    // runs between the first and the second fetch
  size_t run_bytes;  // whole pieces
  uint32_t count, slots;
  uint32_t any, all;  // heads that attend one of them, and all of them
  bool alike() const { return any == all; }
};

struct Cursor {
  const KvSpan* span;
  const KvSpan* end;
  uint32_t token;
  uint32_t valid_heads;
  size_t token_bytes;
  uint32_t tile_tokens;
  uint32_t enough;  // with so many tokens that the same heads attend a tile ends where other heads attend the next one
};

// How the next tile is fetched. Memory in one piece from its beginning to its end; pages each in one piece two at a
// time, because a core reads only so far ahead in each: 0.64 of a pure read instead of 0.54 in random pages of 16
// tokens (groups of 4, one thread).
void plan_fetch(Tile& tile, uint32_t tokens, size_t token_bytes) {
  const uint32_t half = tokens / 2;
  const size_t page = half * token_bytes, run = page > kMaxRuns / 4 * kRunBytes ? 4 * page / kMaxRuns : kRunBytes;
  const auto in_one_piece = [&](const char* const* rows) { return rows[half - 1] == rows[0] + page - token_bytes; };
  const bool of_pages = tile.v[0] < tile.k[half];  // K, V, K, V; otherwise K, K, V, V
  const char *second = of_pages ? tile.v[0] : tile.k[half], *third = of_pages ? tile.k[half] : tile.v[0];
  const char* fourth = tile.v[half];
  const char** at = tile.runs + kAgain;
  tile.again = kAgain;
  if (!in_one_piece(tile.k) || !in_one_piece(tile.k + half) || !in_one_piece(tile.v) || !in_one_piece(tile.v + half) ||
      page % run != 0 || run % kPieceBytes != 0) {
    for (uint32_t t = 0; t < tokens; ++t) *at++ = tile.k[t];
    for (uint32_t t = 0; t < tokens; ++t) *at++ = tile.v[t];
    tile.run_bytes = (token_bytes + kPieceBytes - 1) / kPieceBytes * kPieceBytes;
  } else {
    if (second == tile.k[0] + page && third == second + page && fourth == third + page) {
      for (size_t offset = 0; offset < 4 * page; offset += page) *at++ = tile.k[0] + offset;
      tile.run_bytes = page;
      tile.again = 1;
    } else {
      tile.run_bytes = run;
      const char* const* const halves[2] = {tile.k, tile.v};
      for (const char* const* rows : halves)
        for (size_t offset = 0; offset < page; offset += run) {
          *at++ = rows[0] + offset;
          *at++ = rows[half] + offset;
        }
    }
  }
  tile.run_count = static_cast<uint32_t>(at - tile.runs) - kAgain;
}

// The next tokens; none where all were there.
void next_tile(Cursor& at, Tile& tile) {
  tile.count = 0;
  tile.any = 0;
  tile.all = ~0u;
  while (at.span != at.end && tile.count < at.tile_tokens) {
    const uint32_t mask = at.span->head_mask & at.valid_heads;
    if (mask == 0 || at.token == at.span->tokens) {
      ++at.span;
      at.token = 0;
      continue;
    }
    if (tile.count >= at.enough && tile.alike() && mask != tile.any) break;
    tile.any |= mask;
    tile.all &= mask;
    const uint32_t left = at.span->tokens - at.token, room = at.tile_tokens - tile.count;
    const uint32_t take = left < room ? left : room;
    const char* k = static_cast<const char*>(at.span->k) + at.token_bytes * at.token;
    const char* v = static_cast<const char*>(at.span->v) + at.token_bytes * at.token;
    for (uint32_t t = 0; t < take; ++t) {
      tile.k[tile.count + t] = k + at.token_bytes * t;
      tile.v[tile.count + t] = v + at.token_bytes * t;
      tile.masks[tile.count + t] = mask;
    }
    tile.count += take;
    at.token += take;
  }
  if (tile.count == 0) return;
  tile.slots = (tile.count + kSlots - 1) / kSlots * kSlots;
  for (uint32_t t = tile.count; t < at.tile_tokens; ++t) {
    tile.k[t] = tile.k[tile.count - 1];
    tile.v[t] = tile.v[tile.count - 1];
    tile.masks[t] = 0;
  }
}

// The same, and how it is fetched; `before`: the tile before, or nullptr.
void next_tile(Cursor& at, Tile& tile, const Tile* before) {
  next_tile(at, tile);
  if (tile.count == 0) return;
  for (uint32_t i = 0; i < kAgain; ++i) tile.runs[i] = before ? before->runs[before->run_count + i] : tile.k[0];
  plan_fetch(tile, at.tile_tokens, at.token_bytes);
}

// Goes through the tiles of all parts; part i ends before span ends[i], and the cursor stands before the first span. Of
// each part: begin(), then take(tile, next) for each tile, then finish(). `next` is to be fetched meanwhile: the tile
// after this one, of the next part where this part has no more; without tokens behind the last one.
template <class Begin, class Take, class Finish>
TANDEM_INLINE void for_each_tile(Cursor cursor, const size_t* ends, size_t parts, const Begin& begin, const Take& take,
                                 const Finish& finish) {
  const KvSpan* const spans = cursor.span;
  Tile tiles[2];
  int now = 0;
  size_t reached = 0;  // parts that the cursor goes through
  const auto reach = [&](Tile& tile, const Tile* before) {
    cursor.end = spans + ends[reached++];
    next_tile(cursor, tile, before);
  };
  for (size_t part = 0; part < parts; ++part) {
    begin();
    if (reached == part) reach(tiles[now], nullptr);
    for (bool more = tiles[now].count > 0; more; now ^= 1) {
      const Tile& tile = tiles[now];
      Tile& following = tiles[now ^ 1];
      next_tile(cursor, following, &tile);
      more = following.count > 0;
      if (!more && reached < parts) reach(following, &tile);
      take(tile, following);
    }
    finish();
  }
}

// Of the tokens [from, from + kWidth) of a tile those that a head attends, one after the other: the values' addresses
// and the scores. Returns how many; v and own have room for kWidth.
TANDEM_INLINE uint32_t own_tokens(const Tile& tile, uint32_t from, uint32_t head, vf scores, const char** v,
                                  float* own) {
#if defined(__AVX512F__)
  const __mmask16 mask =
      _mm512_test_epi32_mask(_mm512_loadu_si512(tile.masks + from), _mm512_set1_epi32(static_cast<int>(1u << head)));
  store(own, _mm512_maskz_compress_ps(mask, scores));
  const auto low = static_cast<__mmask8>(mask), high = static_cast<__mmask8>(mask >> 8);
  _mm512_storeu_si512(v, _mm512_maskz_compress_epi64(low, _mm512_loadu_si512(tile.v + from)));
  _mm512_storeu_si512(v + __builtin_popcount(low),
                      _mm512_maskz_compress_epi64(high, _mm512_loadu_si512(tile.v + from + kWidth / 2)));
  return static_cast<uint32_t>(__builtin_popcount(mask));
#else
  uint32_t count = 0;
  for (uint32_t t = 0; t < kWidth; ++t) {
    v[count] = tile.v[from + t];
    own[count] = scores[t];
    count += tile.masks[from + t] >> head & 1;
  }
  return count;
#endif
}

// The next tile is fetched while this one is computed. Evenly, since a burst of fetches stops the core and a pause the
// memory: 0.91 of a pure read of memory in one piece, where four rows at a time for the first four heads gave 0.80.
//
// Every line is fetched twice, since the core drops fetches when it has too many under way, and a line that is missing
// when it is wanted costs more than a hundred fetches of lines that are there. Into the second-level cache: a core has
// more of these under way than of the first level's, and the first level is near enough to the second. Shares of a pure
// read on Zen 4 (groups of 1, one thread), memory in one piece and random pieces of 32 tokens: 0.94 and 0.88, fetched
// once 0.64 and 0.64; into the first level twice 0.50 and 0.40.
struct Fetch {
  const char* const* run;  // the one after that of `at`
  const char* const* end;
  ptrdiff_t runs_between;
  size_t run_bytes;
  const char* at;
  const char* again;  // in the run of runs_between before
  const char* stop;   // end of the run of `at`
  bool done() const { return at == stop && run == end; }
};
TANDEM_INLINE Fetch fetch_of(const Tile& tile) {
  const char* const* const first = tile.runs + kAgain;
  return {first,
          first + (tile.count > 0 ? tile.run_count : 0),
          static_cast<ptrdiff_t>(tile.again),
          tile.run_bytes,
          nullptr,
          nullptr,
          nullptr};
}
template <bool kTwice = true>
TANDEM_INLINE void fetch_piece(Fetch& fetch) {
  if (fetch.at == fetch.stop) {
    if (fetch.run == fetch.end) return;
    fetch.at = *fetch.run;
    fetch.again = fetch.run[-fetch.runs_between];
    ++fetch.run;
    fetch.stop = fetch.at + fetch.run_bytes;
  }
  for (size_t line = 0; line < kPieceBytes; line += 64) __builtin_prefetch(fetch.at + line, 0, 2);
  if (kTwice)
    for (size_t line = 0; line < kPieceBytes; line += 64) __builtin_prefetch(fetch.again + line, 0, 2);
  fetch.at += kPieceBytes;
  fetch.again += kPieceBytes;
}

}  // namespace
}  // namespace tandem::TANDEM_ISA_NAMESPACE
