// Chooses the next token from what the model says: draws it, the same one on every device, or takes the best; and how
// clear the choice was.
//
// The random number of a token is a function of the seed and the token's position only (a counter-based generator,
// Salmon et al. 2011, Philox4x32-10), and probabilities are whole numbers, weights in units of 2^-40 of the best
// token's: sums do not depend on their order. So a draw does not depend on the batch, on threads or on the device,
// given the same logits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/device/cuda/launch_array.h"
#include "engine/device/cuda/runtime.h"  // CudaStream

namespace tandem {

/// How the next token is chosen. The filters apply in this order, each to what the one before left; ties go to the
/// lower token.
struct Sampling {
  float temperature = 0;    // finite, at least 0; weights are exp(logit / temperature). 0: the best token (greedy)
  std::uint32_t top_k = 0;  // only the k best tokens; 0: all
  float top_p = 1;          // in (0, 1]: only the best tokens whose weights first reach this share of their sum
  float min_p = 0;          // in [0, 1]: only tokens of at least this share of the best one's weight
  std::uint64_t seed = 0;
};

/// InputError that says which value is out of its range, by the names of `tandem generate`'s options.
void check_sampling(const Sampling& how);

/// The token at `position` of its sequence. A NaN logit counts as -infinity; an infinite one is the only choice, the
/// first of them. A token whose weight is below 2^-41 of the best one's is never drawn. vocab >= 1.
std::int32_t sample_token(const float* logits /*[vocab]*/, std::uint32_t vocab, const Sampling& how,
                          std::uint64_t position);

/// How often a draw on the GPU reads the logits: four times for each filter's end and for the best token, twice to walk
/// over what is left.
constexpr std::uint32_t sampling_passes(const Sampling& how, std::uint32_t vocab) {
  if (how.temperature == 0) return 5;
  return 6 + (how.top_k > 0 && how.top_k < vocab ? 4 : 0) + (how.top_p < 1 ? 4 : 0);
}

/// The same on the GPU for every row, exactly. Device memory.
struct SampleRow {
  const float* logits = nullptr;  // [vocab]
  Sampling how;
  std::uint64_t position = 0;
  std::int32_t* token = nullptr;  // [1]
};
void sample_tokens_cuda(const LaunchArray<SampleRow>& rows /*[count]*/, std::uint32_t count, std::uint32_t vocab,
                        CudaStream stream);

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

/// ln softmax(logits)[token], accumulated in double precision in the order of the vocabulary: the same bits with every
/// instruction set. vocab >= 1, token < vocab.
double log_probability(const float* logits /*[vocab]*/, std::uint32_t vocab, std::uint32_t token);

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
