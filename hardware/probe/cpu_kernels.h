// The two inner loops that the CPU sections time, one version per instruction set, and a plain version to check them
// by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tandem::probe {

enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16 };
const char* to_string(Isa isa);
/// Instruction sets this CPU has, best last. `scalar` is always there.
std::vector<Isa> available_isas();
inline Isa best_isa() {
  return available_isas().back();
}

/// Sum modulo 2^64 of `count` words. avx512_bf16 runs the avx512 loop.
std::uint64_t sum_words(Isa isa, const std::uint64_t* words, std::size_t count);

inline constexpr int kHeadDim = 128;
inline constexpr int kGroup = 4;  // query heads that share a KV head (GQA)
inline constexpr int kMaxPageTokens = 64;

/// One KV head's pages: K and V as bf16 [page][token][kHeadDim], each pool contiguous.
struct KvPool {
  const std::uint16_t* k = nullptr;
  const std::uint16_t* v = nullptr;
  int page_tokens = 16;  // multiple of 4, at most kMaxPageTokens
};

/// An attention-shaped read: for each token of each listed page, w_g = dot(q_g, k) / kHeadDim, out_g += w_g * v, for
/// the kGroup queries of a KV head, K and V read once. The weight is linear, not exp(): the figure is about the memory
/// path. q: f32 [kGroup][kHeadDim], values that bf16 represents exactly. out: f32 [kGroup][kHeadDim], added to.
/// prefetch: fetch the next listed page's lines, spread over the work on the current page.
void attend_pages(Isa isa, const KvPool& pool, std::span<const std::uint32_t> pages, const float* q, float* out,
                  bool prefetch);

/// The same in double, element by element.
void attend_pages_reference(const KvPool& pool, std::span<const std::uint32_t> pages, const float* q, double* out);

float bf16_to_float(std::uint16_t bits);

}  // namespace tandem::probe
