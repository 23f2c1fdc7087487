// Declarations of the functions of KernelTable inside the namespace of the instruction set being compiled.
#pragma once

#include "engine/kernels/kernel_table.h"

namespace tandem::TANDEM_ISA_NAMESPACE {

#define TANDEM_KERNEL(result, name, parameters) result name parameters
#include "engine/kernels/kernel_list.h"

// Elements of `in` that linear_bf16_block() takes before it puts the sums down: 64 weight rows of 1024 are 128 KiB.
// Tiles wait longer for sums than for x from the third-level cache: with 1024, 512 rows times 4864 -> 896 took 1.4
// times as long, and 4096 -> 14336 1.2 times (two cores with 2 MiB of second-level cache each).
#if defined(__AMX_BF16__)
constexpr uint32_t kBf16Depth = 5120;
#else
constexpr uint32_t kBf16Depth = 1024;
#endif

}  // namespace tandem::TANDEM_ISA_NAMESPACE
