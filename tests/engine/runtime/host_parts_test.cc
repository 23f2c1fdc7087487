#include "engine/runtime/host_parts.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <random>

#include "engine/kernels/attention.h"

namespace tandem {
namespace {

constexpr std::uint32_t kDim = 64, kRows = 2, kKvHeads = 2, kGroup = 3;
constexpr ModelShape kShape{1, 384, kKvHeads* kGroup, kKvHeads, kDim};

// Of every row and KV head another number of tokens, in pages; the last has none.
struct Work {
  Work() : keys(kTokens * kDim), values(keys.size()), query(std::size_t{kRows} * kShape.q_heads * kDim) {
    std::mt19937 engine(3);
    std::normal_distribution<float> normal;
    for (auto* of : {&keys, &values, &query})
      for (float& x : *of) x = normal(engine);
    std::uint32_t tokens = 700;
    for (std::uint32_t row = 0; row < kRows; ++row) {
      for (std::uint32_t head = 0; head<kKvHeads; ++head, tokens = tokens> 300 ? tokens - 333 : 0) {
        HeadSpans& own = spans.emplace_back(HeadSpans{row, head, {}});
        for (std::uint32_t t = 0; t < tokens; t += 16)
          own.spans.push_back({&keys[t * kDim], &values[t * kDim], std::min(16u, tokens - t), ~0u});
      }
    }
  }
  static std::size_t tokens_of(const HeadSpans& own) {
    std::size_t tokens = 0;
    for (const KvSpan& span : own.spans) tokens += span.tokens;
    return tokens;
  }

  static constexpr std::size_t kTokens = 700;
  std::vector<float> keys, values, query;
  std::vector<HeadSpans> spans;
};

struct Attended {
  std::vector<float> o = std::vector<float>(std::size_t{kRows} * kShape.q_heads * kDim, -7.0f),
                     lse = std::vector<float>(std::size_t{kRows} * kShape.q_heads, -7.0f);
  std::vector<std::vector<float>> scores;
};

Attended attend(const Work& work, std::uint32_t part_tokens, unsigned threads, bool scores = false) {
  ThreadPool pool(threads);
  Attended out;
  std::vector<HeadSpans> spans = work.spans;
  for (HeadSpans& own : spans) out.scores.emplace_back(scores ? kGroup * Work::tokens_of(own) : 0, -7.0f);
  for (std::size_t i = 0; scores && i < spans.size(); ++i) spans[i].scores = out.scores[i].data();
  attend_in_parts(pool, kShape, DType::f32, spans, cut_parts(spans, kDim * sizeof(float), part_tokens),
                  work.query.data(), out.o.data(), out.lse.data());
  return out;
}

TEST(HeadParts, AttendWhatTheWholeAttends) {
  const Work work;
  for (const std::uint32_t part : {16u, 100u, 512u}) {
    const Attended got = attend(work, part, 2);
    for (const HeadSpans& own : work.spans) {
      const std::size_t head = std::size_t{own.row} * kShape.q_heads + own.kv_head * kGroup;
      std::vector<float> o(kGroup * kDim), lse(kGroup);
      partial_attention_reference(&work.query[head * kDim], own.spans, {kGroup, kDim, DType::f32}, o.data(),
                                  lse.data());
      for (std::uint32_t i = 0; i < kGroup * kDim; ++i) EXPECT_NEAR(got.o[head * kDim + i], o[i], 1e-5) << part;
      for (std::uint32_t h = 0; h < kGroup; ++h) {
        if (own.spans.empty())
          EXPECT_EQ(got.lse[head + h], -std::numeric_limits<float>::infinity());
        else
          EXPECT_NEAR(got.lse[head + h], lse[h], 1e-5) << part;
      }
    }
  }
}

TEST(HeadParts, ThreadsChangeNoBitAndScoresNeither) {
  const Work work;
  const Attended one = attend(work, 100, 1), three = attend(work, 100, 3), scored = attend(work, 100, 2, true);
  EXPECT_EQ(one.o, three.o);
  EXPECT_EQ(one.lse, three.lse);
  EXPECT_EQ(one.o, scored.o);
  EXPECT_EQ(one.lse, scored.lse);
  for (std::size_t i = 0; i < work.spans.size(); ++i) {
    const HeadSpans& own = work.spans[i];
    const std::size_t head = std::size_t{own.row} * kShape.q_heads + own.kv_head * kGroup;
    std::vector<float> wanted(scored.scores[i].size());
    token_scores(&work.query[head * kDim], own.spans, {kGroup, kDim, DType::f32}, wanted.data());
    EXPECT_EQ(scored.scores[i], wanted) << "entry " << i;
  }
}

TEST(HeadParts, APartThatIsAllIsTheKernelsResult) {
  const Work work;
  const Attended got = attend(work, 4096, 2);
  const HeadSpans& own = work.spans[1];
  std::vector<float> o(kGroup * kDim), lse(kGroup);
  const std::size_t head = own.kv_head * kGroup;
  partial_attention(&work.query[head * kDim], own.spans, {kGroup, kDim, DType::f32}, o.data(), lse.data());
  EXPECT_TRUE(std::equal(o.begin(), o.end(), got.o.begin() + head * kDim));
  EXPECT_TRUE(std::equal(lse.begin(), lse.end(), got.lse.begin() + head));
}

}  // namespace
}  // namespace tandem
