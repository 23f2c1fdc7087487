// Causal attention of prompts on the GPU or its emulation: chunks, extreme scores, refusals.
// eval/kernels/attention_cases.cc compares shapes with float64.
#include <limits>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

/// A prompt's pages in reverse slots; slot 0 and token slots from `tokens` on are NaN.
struct Prompt {
  Prompt(Random& random, DType type, std::uint32_t heads, std::uint32_t tokens, std::uint32_t dim, float scale) {
    const std::uint32_t count = (tokens + 15) / 16;
    const std::size_t vector = dim * size_of(type);
    storage.assign((count + 1) * heads * 32 * vector, char(0xff));
    for (std::uint32_t p = 0; p < count; ++p) slots.push_back(count - p);
    k_pages.resize(heads);
    v_pages.resize(heads);
    for (std::uint32_t h = 0; h < heads; ++h) {
      for (std::uint32_t t = 0; t < tokens; ++t) {
        char* const page = &storage[(std::size_t{slots[t / 16]} * heads + h) * 32 * vector];
        from_f32(random.normals(dim, scale).data(), type, dim, page + t % 16 * vector);
        from_f32(random.normals(dim).data(), type, dim, page + (16 + t % 16) * vector);
        if (t % 16 != 0) continue;
        k_pages[h].push_back(page);
        v_pages[h].push_back(page + 16 * vector);
      }
      kv.push_back({k_pages[h], v_pages[h], type});
    }
    device = OnDevice<char>(storage);
    device_slots = OnDevice<std::uint32_t>(slots);
    pages = {device.data(), type, heads, dim};
  }
  std::vector<char> storage;
  std::vector<std::uint32_t> slots;
  std::vector<std::vector<const void*>> k_pages, v_pages;
  std::vector<PrefillKv> kv;
  OnDevice<char> device;
  OnDevice<std::uint32_t> device_slots;
  KvPages pages;
};

std::vector<float> attend(const Prompt& prompt, const std::vector<float>& q, std::uint32_t first, std::uint32_t n,
                          std::uint32_t heads) {
  const OnDevice<float> query(q), out(q.size());
  prefill_attention_cuda({query.data(), prompt.pages, prompt.device_slots.data(), first, n, heads, out.data()}, {});
  return out.values();
}

class PrefillAttentionCudaTest : public CudaTypeTest {};
TANDEM_EACH_TYPE(PrefillAttentionCudaTest);

TEST_P(PrefillAttentionCudaTest, ChunksGiveTheSameBits) {
  Random random(2);
  for (const std::uint32_t dim : {64u, 40u}) {
    const std::uint32_t heads = 6, kv_heads = 2, tokens = type() != DType::f32 && dim == 64 ? 90 : 35;
    const Prompt prompt(random, type(), kv_heads, tokens, dim, 1);
    const auto q = random.normals(std::size_t{tokens} * heads * dim);
    const auto whole = attend(prompt, q, 0, tokens, heads);
    std::vector<float> chunked;
    for (std::uint32_t first = 0; first < tokens;) {
      const std::uint32_t n = std::min(1 + random.below(2 * tokens / 3), tokens - first);
      const auto begin = q.begin() + std::ptrdiff_t{first} * heads * dim;
      const auto part = attend(prompt, {begin, begin + std::ptrdiff_t{n} * heads * dim}, first, n, heads);
      chunked.insert(chunked.end(), part.begin(), part.end());
      first += n;
    }
    EXPECT_TRUE(same_bits(chunked, whole)) << dim;
  }
}

// Of chunks in the middle of a prompt, as a merge with what others attend needs them; queries are numbers of the KV's
// type.
TEST_P(PrefillAttentionCudaTest, LogSumsAreThoseOfTheScores) {
  Random random(4);
  for (const std::uint32_t dim : {64u, 40u}) {
    const std::uint32_t heads = 6, kv_heads = 2, first = 21, n = type() != DType::f32 && dim == 64 ? 60 : 14;
    const Prompt prompt(random, type(), kv_heads, first + n, dim, 1);
    auto q = random.normals(std::size_t{n} * heads * dim);
    std::vector<char> narrow(dim * size_of(type()));
    for (std::size_t at = 0; at < q.size(); at += dim) {
      from_f32(q.data() + at, type(), dim, narrow.data());
      to_f32(narrow.data(), type(), 0, dim, q.data() + at);
    }
    const OnDevice<float> query(q), out(q.size()), lse(std::size_t{n} * heads);
    prefill_attention_cuda(
        {query.data(), prompt.pages, prompt.device_slots.data(), first, n, heads, out.data(), lse.data()}, {});
    EXPECT_TRUE(same_bits(out.values(), attend(prompt, q, first, n, heads)));
    std::vector<float> expected, key(dim);
    for (std::uint32_t row = 0; row < n; ++row) {
      for (std::uint32_t head = 0; head < heads; ++head) {
        double sum = 0;
        for (std::uint32_t t = 0; t <= first + row; ++t) {
          const auto* const page = static_cast<const char*>(prompt.k_pages[head / 3][t / 16]);
          to_f32(page + t % 16 * dim * size_of(type()), type(), 0, dim, key.data());
          double score = 0;
          for (std::uint32_t d = 0; d < dim; ++d)
            score += double{q[(std::size_t{row} * heads + head) * dim + d]} * key[d];
          sum += std::exp(score / std::sqrt(double(dim)));
        }
        expected.push_back(static_cast<float>(std::log(sum)));
      }
    }
    expect_near(lse.values(), expected, 2e-5);
  }
}

TEST_P(PrefillAttentionCudaTest, LargeScoresGiveNoNan) {
  Random random(3);
  const std::uint32_t dim = 64, tokens = 40;
  const Prompt prompt(random, type(), 1, tokens, dim, 3e3f);
  const auto q = random.normals(std::size_t{tokens} * dim, 10);
  std::vector<float> expected(q.size());
  prefill_attention_reference(q.data(), prompt.kv, 0, tokens, 1, 1, dim, expected.data());
  const auto out = attend(prompt, q, 0, tokens, 1);
  for (const float value : out) ASSERT_TRUE(std::isfinite(value));
  if (type() != DType::f16)
    expect_near(out, expected, 1.0 / 128);  // f16 rounds queries that these scores do not forgive
}

TEST_P(PrefillAttentionCudaTest, RefusesWhatIsNoShape) {
  PrefillChunk chunk;
  chunk.kv = {nullptr, type(), 2, 64};
  chunk.q_heads = 3;
  EXPECT_THROW(prefill_attention_cuda(chunk, {}), LogicError);
  chunk.q_heads = 4;
  prefill_attention_cuda(chunk, {});  // no queries: nothing to do
  const OnDevice<char> memory(16);
  chunk.out = reinterpret_cast<float*>(memory.data() + 4);
  if (type() != DType::f32) {
    EXPECT_THROW(prefill_attention_cuda(chunk, {}), LogicError);  // floats in pairs
  }
  chunk.out = nullptr;
  chunk.kv.pages = memory.data() + 8;
  EXPECT_THROW(prefill_attention_cuda(chunk, {}), LogicError);
  chunk.kv.dim = 1024;
  EXPECT_THROW(prefill_attention_cuda(chunk, {}), InputError);
}

}  // namespace
}  // namespace tandem
