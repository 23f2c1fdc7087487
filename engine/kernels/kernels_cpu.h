// Declarations of the functions of KernelTable inside the namespace of the instruction set being compiled.
#pragma once

#include "engine/kernels/kernel_table.h"

namespace tandem::TANDEM_ISA_NAMESPACE {

void linear_pack(const float* x, uint32_t in, uint32_t n, float* packed);
void linear_rows(const LinearRows& rows);
void linear_prefill_block(const float* x, const void* w, DType type, uint32_t in, uint32_t out, uint32_t first,
                          uint32_t columns, const float* bias, float* y, uint32_t n, float* scratch);
void round_to_bf16(const float* x, size_t n, float* out);
void linear_bf16_round(const float* x, uint32_t in, uint32_t first, uint32_t last, uint32_t all_rows,
                       uint16_t* rounded);
void linear_bf16_block(const Bf16Block& block);
// Elements of `in` that linear_bf16_block() takes before it puts the sums down: 64 weight rows of 1024 are 128 KiB.
// Tiles wait longer for sums than for x from the third-level cache: with 1024, 512 rows times 4864 -> 896 took 1.4
// times as long, and 4096 -> 14336 1.2 times (two cores with 2 MiB of second-level cache each).
#if defined(__AMX_BF16__)
constexpr uint32_t kBf16Depth = 5120;
#else
constexpr uint32_t kBf16Depth = 1024;
#endif
void widen(const void* data, DType type, size_t first, size_t n, float* out);
void narrow(const float* x, DType type, size_t n, void* out);
void rms_norm_row(const float* x, const void* weight, DType type, float eps, float* y, uint32_t d);
void rope_angles(const double* inverse_frequency, uint32_t pairs, double position, float* cosines, float* sines);
void rotate(float* x, uint32_t pairs, const float* cosines, const float* sines);
void swiglu(const float* gate, const float* up, float* out, size_t n);
void add(float* x, const float* y, size_t n);
float largest(const float* x, uint32_t n);
float exp_sum(const float* x, float reference, size_t n);
void blend_weights(const float* scores, float lse, size_t n, float keep, float share, float* average);
void partial_attention(const float* q, const KvSpan* spans, const size_t* ends, size_t parts, AttentionShape shape,
                       float* o, float* lse, float* scores, size_t score_stride, float* scratch);
void token_scores(const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* scores,
                  size_t score_stride, float* scratch);
void prefill_tile(const PrefillTile& tile);
void min_max(const void* low, const void* high, DType type, uint32_t rows, uint32_t dim, void* min_out, void* max_out);
void add_rows(const void* rows, DType type, uint32_t n, uint32_t dim, float* sums);
void add_gram(const double* x, uint32_t n, uint32_t dim, double* gram);
void dot_rows(const float* q, uint32_t group, const void* rows, DType type, uint32_t n, uint32_t dim, float scale,
              float* out, size_t stride, float* scratch);
void score_blocks(const float* q, const void* digest_min, const void* digest_max, uint32_t blocks, AttentionShape shape,
                  float* scores, float* scratch);

}  // namespace tandem::TANDEM_ISA_NAMESPACE
