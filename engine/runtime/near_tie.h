// Steps at which rounding may have chosen the token.
#pragma once

#include "engine/kernels/tensor.h"

namespace tandem {

/// A greedy step whose two best logits are nearer than this is a near tie: the same sums in another order, by another
/// instruction set or a GPU, may choose the other token. The margin is above what rounding does to this gap in 99 of
/// 100 steps. It grows with what K and V are rounded to: where a number lies between two of them, a last bit of an f32
/// sum decides which one is stored. avx2 to amx moved the gap against baseline, in 100 steps of the embedded model
/// behind 563 tokens, with logits up to 28, by
///   precision   median    99 % of steps   most
///   f32         2.9e-6    1.9e-5          2.5e-5
///   f16         1.2e-4    7.1e-4          9.5e-4
///   bf16        3.1e-3    3.7e-2          5.7e-2
/// (Xeon, Sapphire Rapids; near_tie_test.cc measures it anew.) Longer contexts and other models move it more or less,
/// so that the margin leaves room.
constexpr float near_tie_margin(DType precision) {
  switch (precision) {
    case DType::f32:
      return 1e-4f;
    case DType::f16:
      return 5e-3f;
    case DType::bf16:
      return 5e-2f;
  }
  return 0;
}

}  // namespace tandem
