// The kernels that are compiled once per instruction set, one entry each: TANDEM_KERNEL(result, name, parameters).
// A file that includes this list defines TANDEM_KERNEL first. kernel_table.h makes the pointers of KernelTable,
// kernels_cpu.h the declarations for the *_cpu.cc files, table_cpu.cc the rows. The list undefines both macros.
#if !defined(TANDEM_KERNEL)
#define TANDEM_KERNEL(result, name, parameters)
#endif
// Kernels of builds with BF16 only: nullptr in the others. Subnormal numbers may count as 0.
#if !defined(TANDEM_BF16_KERNEL)
#define TANDEM_BF16_KERNEL(result, name, parameters) TANDEM_KERNEL(result, name, parameters)
#endif

// packed: n * linear_padded(in) floats, aligned to 64 bytes, for linear_rows of the same build.
TANDEM_KERNEL(void, linear_pack, (const float* x, uint32_t in, uint32_t n, float* packed));
TANDEM_KERNEL(void, linear_rows, (const LinearRows& rows));
// Rows [first, first + columns) of w for all n rows of x; columns <= kPrefillColumns.
// scratch: linear_prefill_scratch_floats(n).
TANDEM_KERNEL(void, linear_prefill_block,
              (const float* x, const void* w, DType type, uint32_t in, uint32_t out, uint32_t first, uint32_t columns,
               const float* bias, float* y, uint32_t n, float* scratch));
TANDEM_KERNEL(void, round_to_bf16, (const float* x, size_t n, float* out));  // nearest, ties to even
TANDEM_BF16_KERNEL(void, linear_bf16_round,
                   (const float* x, uint32_t in, uint32_t first, uint32_t last, uint32_t all_rows, uint16_t* rounded));
TANDEM_BF16_KERNEL(void, linear_bf16_block, (const Bf16Block& block));
TANDEM_KERNEL(void, widen, (const void* data, DType type, size_t first, size_t n, float* out));
TANDEM_KERNEL(void, narrow, (const float* x, DType type, size_t n, void* out));
TANDEM_KERNEL(void, rms_norm_row, (const float* x, const void* weight, DType type, float eps, float* y, uint32_t d));
TANDEM_KERNEL(void, rope_angles,
              (const double* inverse_frequency, uint32_t pairs, double position, float* cosines, float* sines));
TANDEM_KERNEL(void, rotate, (float* x, uint32_t pairs, const float* cosines, const float* sines));
TANDEM_KERNEL(void, swiglu, (const float* gate, const float* up, float* out, size_t n));
TANDEM_KERNEL(void, add, (float* x, const float* y, size_t n));
TANDEM_KERNEL(float, largest, (const float* x, uint32_t n));                 // -infinity where all are NaN or n is 0
TANDEM_KERNEL(float, exp_sum, (const float* x, float reference, size_t n));  // sum of exp(x - reference)
// average = keep * average + share * exp(scores - lse). lse is above -infinity.
TANDEM_KERNEL(void, blend_weights, (const float* scores, float lse, size_t n, float keep, float share, float* average));
// ends: [parts], the number of spans up to the end of each. o: [parts][group][dim]; lse: [parts][group]. scratch:
// partial_scratch_floats(group, dim), aligned to 64 bytes. scores: [group][score_stride] or nullptr; with scores, all
// heads attend all spans.
TANDEM_KERNEL(void, partial_attention,
              (const float* q, const KvSpan* spans, const size_t* ends, size_t parts, AttentionShape shape, float* o,
               float* lse, float* scores, size_t score_stride, float* scratch));
// scratch: partial_scratch_floats(group, dim), aligned to 64 bytes. Head masks are not looked at.
TANDEM_KERNEL(void, token_scores,
              (const float* q, const KvSpan* spans, size_t span_count, AttentionShape shape, float* scores,
               size_t score_stride, float* scratch));
TANDEM_KERNEL(void, prefill_tile, (const PrefillTile& tile));
TANDEM_KERNEL(void, min_max,
              (const void* low, const void* high, DType type, uint32_t rows, uint32_t dim, void* min_out,
               void* max_out));
// sums[d] += rows[r][d], row after row: n rows of dim.
TANDEM_KERNEL(void, add_rows, (const void* rows, DType type, uint32_t n, uint32_t dim, float* sums));
// gram[i][j] += sum over the rows of x[i] x[j], row after row, at least for j <= i: n rows of dim, a multiple of
// kGramColumns. The products are exact where x are floats.
TANDEM_KERNEL(void, add_gram, (const double* x, uint32_t n, uint32_t dim, double* gram));
// out[h][r] = scale * q[h] . rows[r], all in f32: [group][stride >= n] of q [group][dim] and rows [n][dim].
// scratch: group * padded_dim(dim) floats, aligned to 64 bytes.
TANDEM_KERNEL(void, dot_rows,
              (const float* q, uint32_t group, const void* rows, DType type, uint32_t n, uint32_t dim, float scale,
               float* out, size_t stride, float* scratch));
// scratch: 2 * group * dim floats.
TANDEM_KERNEL(void, score_blocks,
              (const float* q, const void* digest_min, const void* digest_max, uint32_t blocks, AttentionShape shape,
               float* scores, float* scratch));

#undef TANDEM_KERNEL
#undef TANDEM_BF16_KERNEL
