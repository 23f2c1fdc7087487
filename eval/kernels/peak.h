// The arithmetic limit of the caller's machine, and whether a neighbour is using it up at this moment.
#pragma once

#include <string>

#include "engine/kernels/thread_pool.h"

namespace tandem {

/// What the inner loop of a kernel multiplies.
enum class Arithmetic {
  f32,         // fused multiply-adds of the active instruction set (multiply and add where it has no fused ones)
  bf16_pairs,  // dot products of bf16 pairs where the active instruction set has them, else as f32
};

/// FLOP/s that the threads of `pool` reach in registers alone, measured now for some 10 ms.
double arithmetic_rate(Arithmetic arithmetic, ThreadPool& pool);

/// Empty where shares of a peak mean something for the threads of `pool`. Else why not: they do not scale in registers
/// (below 0.9 of their number times one), or repeated reads of memory differ too much. Measured once per number of
/// threads, which takes about a second.
const std::string& busy_machine(ThreadPool& pool);

}  // namespace tandem
