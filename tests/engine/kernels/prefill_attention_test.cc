#include <cmath>
#include <limits>

#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

/// KV of several heads in pages that lie in memory in reverse; slots from `tokens` on are NaN.
class PagedKv {
 public:
  PagedKv(Random& random, DType type, std::uint32_t heads, std::uint32_t tokens, std::uint32_t dim, float scale = 1)
      : k_pages_(heads), v_pages_(heads) {
    const std::size_t page = std::size_t{kPrefillPageTokens} * dim, pages = (tokens + 15) / 16;
    storage_.resize(2 * heads * pages * page * size_of(type));
    char* next = storage_.data() + storage_.size();
    std::vector<float> values(page);
    for (std::uint32_t h = 0; h < heads; ++h) {
      for (auto* list : {&k_pages_[h], &v_pages_[h]}) {
        for (std::size_t p = 0; p < pages; ++p) {
          next -= page * size_of(type);
          list->push_back(next);
          const std::size_t used = std::min<std::size_t>(16, tokens - 16 * p);
          std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
          for (std::size_t i = 0; i < used * dim; ++i) values[i] = random.normal() * (list == &k_pages_[h] ? scale : 1);
          from_f32(values.data(), type, page, next);
        }
      }
      kv.push_back({k_pages_[h], v_pages_[h], type});
    }
  }
  std::vector<PrefillKv> kv;

 private:
  std::vector<char> storage_;
  std::vector<std::vector<const void*>> k_pages_, v_pages_;
};

class PrefillAttentionTest : public IsaAndTypeTest {
 protected:
  /// Weights of bf16 values are rounded: each by 2^-9 of |v - o| at most, which averages out.
  double tolerance(double otherwise) const { return type() == DType::bf16 ? 1.0 / 128 : otherwise; }
};
TANDEM_EACH_ISA_AND_TYPE(PrefillAttentionTest);

TEST_P(PrefillAttentionTest, AgreesWithFloat64) {
  Random random(1);
  ThreadPool pool(2);
  const struct {
    std::uint32_t dim, kv_heads, group, first, n;
    float scale;
  } cases[] = {{64, 2, 1, 0, 1, 1},    {64, 1, 4, 0, 70, 1},   {80, 2, 3, 17, 50, 4},  {96, 1, 8, 100, 33, 1},
               {128, 2, 4, 0, 130, 1}, {128, 1, 7, 63, 20, 9}, {12, 2, 2, 5, 70, 1},   {100, 2, 1, 9, 40, 1},
               {1, 1, 3, 0, 20, 1},    {64, 1, 40, 3, 5, 1},   {128, 1, 100, 64, 3, 1}};
  for (const auto& c : cases) {
    const PagedKv pages(random, type(), c.kv_heads, c.first + c.n, c.dim, c.scale);
    const std::uint32_t heads = c.kv_heads * c.group;
    const auto q = random.normals(std::size_t{c.n} * heads * c.dim);
    std::vector<float> expected(q.size()), out(q.size(), 99);
    prefill_attention_reference(q.data(), pages.kv, c.first, c.n, heads, c.kv_heads, c.dim, expected.data());
    prefill_attention(pool, q.data(), pages.kv, c.first, c.n, heads, c.kv_heads, c.dim, out.data());
    expect_near(out, expected, tolerance(1e-5 * std::max(2.0f, c.scale / 2)));  // scores round in proportion
    double mean = 0;
    for (std::size_t i = 0; i < out.size(); ++i)
      mean += std::fabs(double{out[i]} - double{expected[i]}) / double(out.size());
    EXPECT_LT(mean, 1.0 / 2048);
  }
}

TEST_P(PrefillAttentionTest, AgreesWithPartialAttention) {
  Random random(2);
  ThreadPool pool(1);
  const std::uint32_t dim = 64, group = 4, tokens = 100;
  const PagedKv pages(random, type(), 1, tokens, dim);
  const auto q = random.normals(std::size_t{tokens} * group * dim);
  std::vector<float> out(q.size()), one(group * dim), lse(group);
  prefill_attention(pool, q.data(), pages.kv, 0, tokens, group, 1, dim, out.data());
  for (std::uint32_t i = 0; i < tokens; ++i) {
    std::vector<KvSpan> spans;
    for (std::uint32_t from = 0; from <= i; from += 16)
      spans.push_back(
          {pages.kv[0].k_pages[from / 16], pages.kv[0].v_pages[from / 16], std::min(16u, i + 1 - from), 0xf});
    partial_attention(q.data() + std::size_t{i} * group * dim, spans, {group, dim, type()}, one.data(), lse.data());
    const auto begin = out.begin() + std::ptrdiff_t{i} * group * dim;
    expect_near({begin, begin + group * dim}, one, tolerance(1e-5));
  }
}

TEST_P(PrefillAttentionTest, ChunksGiveTheSameResult) {
  Random random(3);
  ThreadPool pool(2);
  const std::uint32_t dim = 64, heads = 4, kv_heads = 2, tokens = 150;
  const PagedKv pages(random, type(), kv_heads, tokens, dim);
  const auto q = random.normals(std::size_t{tokens} * heads * dim);
  std::vector<float> whole(q.size()), chunked(q.size());
  prefill_attention(pool, q.data(), pages.kv, 0, tokens, heads, kv_heads, dim, whole.data());
  for (std::uint32_t first = 0; first < tokens;) {
    const std::uint32_t n = std::min(1 + random.below(60), tokens - first);
    const std::size_t at = std::size_t{first} * heads * dim;
    prefill_attention(pool, q.data() + at, pages.kv, first, n, heads, kv_heads, dim, chunked.data() + at);
    first += n;
  }
  expect_near(chunked, whole, 1e-5);
}

TEST_P(PrefillAttentionTest, BitsDoNotDependOnThreads) {
  Random random(4);
  const std::uint32_t dim = 80, heads = 6, kv_heads = 2, tokens = 120;
  const PagedKv pages(random, type(), kv_heads, tokens, dim);
  const auto q = random.normals(std::size_t{tokens} * heads * dim);
  std::vector<float> first;
  for (const unsigned threads : {1u, 2u, 3u, 7u}) {
    ThreadPool pool(threads);
    std::vector<float> out(q.size());
    prefill_attention(pool, q.data(), pages.kv, 0, tokens, heads, kv_heads, dim, out.data());
    if (first.empty()) first = out;
    EXPECT_TRUE(same_bits(out, first)) << threads;
  }
}

// Scores far beyond what exp can take, and keys of -infinity, which nobody attends to; queries are powers of two times
// small whole numbers, which bf16 holds, so that each type has the scores that float64 has.
TEST_P(PrefillAttentionTest, HugeScoresAndKeysOfMinusInfinity) {
  Random random(6);
  ThreadPool pool(2);
  const std::uint32_t dim = 64, heads = 4, tokens = 70;
  std::vector<float> keys(std::size_t{80} * dim), values(keys.size());  // whole pages
  for (float& key : keys) key = static_cast<float>(random.below(9)) - 4;
  for (float& value : values) value = random.normal();
  for (const std::uint32_t token : {0u, 5u, 40u, 41u, 69u}) keys[std::size_t{token} * dim] = -INFINITY;
  std::vector<char> k(keys.size() * size_of(type())), v(k.size());
  from_f32(keys.data(), type(), keys.size(), k.data());
  from_f32(values.data(), type(), values.size(), v.data());
  std::vector<const void*> k_pages, v_pages;
  for (std::size_t page = 0; page < 5; ++page) {
    k_pages.push_back(k.data() + page * kPrefillPageTokens * dim * size_of(type()));
    v_pages.push_back(v.data() + page * kPrefillPageTokens * dim * size_of(type()));
  }
  const std::vector<PrefillKv> kv = {{k_pages, v_pages, type()}};
  for (const float scale : {0x1p-6f, 1.0f, 0x1p20f, 0x1p100f}) {
    std::vector<float> q(std::size_t{tokens} * heads * dim);
    for (std::size_t i = 0; i < q.size(); ++i)
      q[i] = scale * (i % dim == 0 ? 1 : static_cast<float>(random.below(17)) - 8);
    std::vector<float> expected(q.size()), out(q.size(), 99);
    prefill_attention_reference(q.data(), kv, 0, tokens, heads, 1, dim, expected.data());
    prefill_attention(pool, q.data(), kv, 0, tokens, heads, 1, dim, out.data());
    for (const float x : out) ASSERT_TRUE(std::isfinite(x)) << scale;
    expect_near(out, expected, tolerance(1e-5));
  }
}

TEST_P(PrefillAttentionTest, RefusesTooFewPages) {
  Random random(5);
  ThreadPool pool(1);
  const PagedKv pages(random, type(), 1, 16, 8);
  std::vector<float> q(17 * 8), out(q.size());
  EXPECT_THROW(prefill_attention(pool, q.data(), pages.kv, 0, 17, 1, 1, 8, out.data()), LogicError);
  EXPECT_THROW(prefill_attention(pool, q.data(), pages.kv, 0, 16, 1, 2, 8, out.data()), LogicError);
  prefill_attention(pool, q.data(), pages.kv, 0, 0, 1, 1, 8, out.data());  // nothing to do
}

}  // namespace
}  // namespace tandem
