#include "engine/kernels/kernels_cpu.h"

namespace tandem::TANDEM_ISA_NAMESPACE {

const KernelTable table = {
    .linear_pack = linear_pack,
    .linear_rows = linear_rows,
    .linear_prefill_block = linear_prefill_block,
    .round_to_bf16 = round_to_bf16,
#if defined(__AVX512BF16__)
    .linear_bf16_depth = kBf16Depth,
    .linear_bf16_round = linear_bf16_round,
    .linear_bf16_block = linear_bf16_block,
#else
    .linear_bf16_depth = 0,
    .linear_bf16_round = nullptr,
    .linear_bf16_block = nullptr,
#endif
    .widen = widen,
    .narrow = narrow,
    .rms_norm_row = rms_norm_row,
    .rope_angles = rope_angles,
    .rotate = rotate,
    .swiglu = swiglu,
    .add = add,
    .largest = largest,
    .exp_sum = exp_sum,
    .blend_weights = blend_weights,
    .partial_attention = partial_attention,
    .token_scores = token_scores,
    .prefill_tile = prefill_tile,
    .min_max = min_max,
    .add_rows = add_rows,
    .add_gram = add_gram,
    .dot_rows = dot_rows,
    .score_blocks = score_blocks,
};

}  // namespace tandem::TANDEM_ISA_NAMESPACE
