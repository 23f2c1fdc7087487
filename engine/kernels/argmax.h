// Greedy choice of the next token, and how clear it was.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// The largest and the second largest logit; ties go to the lower index. NaN counts as -infinity. A vocabulary of one
/// has second = -1 and second_logit = -infinity.
struct TopTwo {
  std::int32_t best = -1;
  float best_logit = 0;
  std::int32_t second = -1;
  float second_logit = 0;
};

/// vocab >= 1.
TopTwo top_two(const float* logits /*[vocab]*/, std::uint32_t vocab);

/// Bytes of device memory that choose_cuda() works in.
std::size_t choose_scratch_bytes(std::uint32_t n, std::uint32_t vocab);

/// On the GPU, for each row: top_two(), and log_probability() of tokens[i], of the best token where `tokens` is nullptr
/// (exponentials in f32, their sum in f64: within 1e-6); NaN for a token that is not in [0, vocab). `best`: the best
/// tokens alone, for the next step to read. What is nullptr is not written. Device memory; n <= 65535. `scratch`:
/// choose_scratch_bytes(n, vocab), aligned to 8 bytes.
void choose_cuda(const float* logits /*[n][vocab]*/, std::uint32_t n, std::uint32_t vocab,
                 const std::int32_t* tokens /*[n] or nullptr*/, TopTwo* top /*[n] or nullptr*/,
                 std::int32_t* best /*[n] or nullptr*/, double* log_probabilities /*[n] or nullptr*/, void* scratch,
                 CudaStream stream);

}  // namespace tandem
