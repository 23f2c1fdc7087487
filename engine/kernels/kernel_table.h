// The hot loops that exist once per instruction set. Internal to engine/kernels: callers use the headers of the
// operations. Arguments were checked by the caller; scratch memory is the caller's.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/kernels/attention_span.h"
#include "engine/kernels/tensor.h"

namespace tandem {

// Functions here are static, so that no build of a hot file leaves one for the others (vec.h).

/// One tile of prefill attention: `queries` queries times the `group` heads of one KV head.
struct PrefillTile {
  const float* q;                // first query, first head of the group
  size_t query_stride;           // floats between one query and the next, for q and out
  const void* const* k_pages;    // from token 0
  const void* const* v_pages;    //
  DType kv;                      // of the pages
  uint32_t first_position;       // of the first query of the tile
  uint32_t queries, group, dim;  //
  float* out;                    //
  float* scratch;                // prefill_scratch_floats(queries * group, dim)
};
constexpr uint32_t kPrefillTileTokens = 64;
constexpr uint32_t kMaxWidth = 16;
static constexpr size_t padded_dim(uint32_t dim) {
  return (size_t{dim} + 2 * kMaxWidth - 1) / (2 * kMaxWidth) * (2 * kMaxWidth);  // whole pairs of vectors
}
static constexpr size_t prefill_scratch_floats(uint32_t query_rows, uint32_t dim) {
  const size_t rows = (size_t{query_rows} + 15) / 16 * 16;  // whole tiles
  return padded_dim(dim) * (2 * (rows + kPrefillTileTokens) + 1) + rows * (kPrefillTileTokens + kMaxWidth + 1);
}

// Of partial_attention and token_scores: queries and sums; or in tiles (RunBuffers, attention_amx_cpu.h), with rows
// rounded up to 16, queries (rows / 2 times dim), 32 keys of bf16 (16 dim), sums (rows dim), 16 rows of them and the
// values of 32 tokens (16 dim each), and weights of 32 tokens (16 rows).
static constexpr size_t partial_scratch_floats(uint32_t group, uint32_t dim) {
  const size_t rows = (size_t{group} + 15) / 16 * 16;
  const size_t plain = (2 * size_t{group} + 1) * padded_dim(dim), tiles = (rows * 3 / 2 + 48) * dim + rows * 16;
  return plain > tiles ? plain : tiles;
}

/// Rows [first, last) of w times all n rows of x.
struct LinearRows {
  const float* packed_x;  // by linear_pack
  const void* w;
  DType type;
  uint32_t in, out, first, last;
  const float* bias;  // [out] or nullptr
  float* y;           // [n][out]
  uint32_t n;
};
static constexpr size_t linear_padded(uint32_t in) {
  return (size_t{in} + kMaxWidth - 1) / kMaxWidth * kMaxWidth;
}

constexpr uint32_t kPrefillColumns = 64;
constexpr uint32_t kPrefillDepth = 128;
static constexpr size_t linear_prefill_scratch_floats(uint32_t n) {
  return size_t{kPrefillDepth} * (kPrefillColumns + 1) + size_t{n} * kPrefillColumns;
}

/// Rows [row, row + rows) of x, rounded, times weight rows [column, column + columns), columns <= kPrefillColumns.
struct Bf16Block {
  const uint16_t* x;  // by linear_bf16_round, all_rows rows
  uint32_t all_rows, row, rows;
  const void* w;  // bf16
  uint32_t in, out, column, columns;
  const float* bias;  // [out] or nullptr
  float* y;           // [all_rows][out]
  float* scratch;     // linear_bf16_scratch_floats(linear_bf16_depth, rows), aligned to 64 bytes
};
static constexpr size_t linear_bf16_padded(uint32_t in) {
  return (size_t{in} + 31) / 32 * 32;
}
/// For a build whose blocks take `depth` elements of `in` at a time.
static constexpr size_t linear_bf16_scratch_floats(uint32_t depth, uint32_t rows) {
  return size_t{kPrefillColumns} * (depth / 2 + rows);
}

constexpr uint32_t kGramColumns = 8;

struct KernelTable {
  // packed: n * linear_padded(in) floats, aligned to 64 bytes, for linear_rows of the same build.
  void (*linear_pack)(const float* x, uint32_t in, uint32_t n, float* packed);
  void (*linear_rows)(const LinearRows& rows);
  // Rows [first, first + columns) of w for all n rows of x; columns <= kPrefillColumns.
  // scratch: linear_prefill_scratch_floats(n).
  void (*linear_prefill_block)(const float* x, const void* w, DType type, uint32_t in, uint32_t out, uint32_t first,
                               uint32_t columns, const float* bias, float* y, uint32_t n, float* scratch);
  void (*round_to_bf16)(const float* x, size_t n, float* out);  // nearest, ties to even
  // The three of builds with BF16; 0 and nullptr in the others. Subnormal numbers may count as 0.
  uint32_t linear_bf16_depth;
  void (*linear_bf16_round)(const float* x, uint32_t in, uint32_t first, uint32_t last, uint32_t all_rows,
                            uint16_t* rounded);
  void (*linear_bf16_block)(const Bf16Block& block);
  void (*widen)(const void* data, DType type, size_t first, size_t n, float* out);
  void (*narrow)(const float* x, DType type, size_t n, void* out);
  void (*rms_norm_row)(const float* x, const void* weight, DType type, float eps, float* y, uint32_t d);
  void (*rope_angles)(const double* inverse_frequency, uint32_t pairs, double position, float* cosines, float* sines);
  void (*rotate)(float* x, uint32_t pairs, const float* cosines, const float* sines);
  void (*swiglu)(const float* gate, const float* up, float* out, size_t n);
  void (*add)(float* x, const float* y, size_t n);
  float (*largest)(const float* x, uint32_t n);                 // -infinity where all are NaN or n is 0
  float (*exp_sum)(const float* x, float reference, size_t n);  // sum of exp(x - reference)
  // average = keep * average + share * exp(scores - lse)
  // lse is above -infinity.
  void (*blend_weights)(const float* scores, float lse, size_t n, float keep, float share, float* average);
  // ends: [parts], the number of spans up to the end of each. o: [parts][group][dim]; lse: [parts][group]. scratch:
  // partial_scratch_floats(group, dim), aligned to 64 bytes. scores: [group][score_stride] or nullptr; with scores, all
  // heads attend all spans.
  void (*partial_attention)(const float* q, const KvSpan* spans, const size_t* ends, size_t parts, AttentionShape shape,
                            float* o, float* lse, float* scores, size_t score_stride, float* scratch);
  // scratch: partial_scratch_floats(group, dim), aligned to 64 bytes. Head masks are not looked at.
  void (*token_scores)(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* scores,
                       size_t score_stride, float* scratch);
  void (*prefill_tile)(const PrefillTile& tile);
  void (*min_max)(const void* low, const void* high, DType type, uint32_t rows, uint32_t dim, void* min_out,
                  void* max_out);
  // sums[d] += rows[r][d], row after row: n rows of dim.
  void (*add_rows)(const void* rows, DType type, uint32_t n, uint32_t dim, float* sums);
  // gram[i][j] += sum over the rows of x[i] x[j], row after row, at least for j <= i: n rows of dim, a multiple of
  // kGramColumns. The products are exact where x are floats.
  void (*add_gram)(const double* x, uint32_t n, uint32_t dim, double* gram);
  // out[h][r] = scale * q[h] . rows[r], all in f32: [group][stride >= n] of q [group][dim] and rows [n][dim].
  // scratch: group * padded_dim(dim) floats, aligned to 64 bytes.
  void (*dot_rows)(const float* q, uint32_t group, const void* rows, DType type, uint32_t n, uint32_t dim, float scale,
                   float* out, size_t stride, float* scratch);
  // scratch: 2 * group * dim floats.
  void (*score_blocks)(const float* q, const void* digest_min, const void* digest_max, uint32_t blocks,
                       AttentionShape shape, float* scores, float* scratch);
};

/// The table of active_isa(), or of the living ScopedIsa.
const KernelTable& kernels();

namespace isa_baseline {
extern const KernelTable table;
}
namespace isa_avx2 {
extern const KernelTable table;
}
namespace isa_avx512 {
extern const KernelTable table;
}
namespace isa_avx512_bf16 {
extern const KernelTable table;
}
namespace isa_amx {
extern const KernelTable table;
}

}  // namespace tandem
