#include "engine/runtime/row_scores.h"

#include <cstring>
#include <gtest/gtest.h>
#include <random>

#include "engine/kernels/convert.h"

namespace tandem {
namespace {

// Pages lie in reverse, so that neighbours in the prompt are none in memory.
struct Prompt {
  Prompt(DType type, std::uint32_t tokens, std::uint32_t group, std::uint32_t dim, std::uint32_t rows)
      : shape{group, dim, type},
        pages((tokens + kPageTokens - 1) / kPageTokens),
        page_bytes(std::size_t{kPageTokens} * dim * size_of(type)),
        keys(pages * page_bytes),
        queries(std::size_t{rows} * group * dim) {
    std::mt19937 engine(tokens);
    std::normal_distribution<float> normal;
    std::vector<float> values(keys.size() / size_of(type));
    for (float& value : values) value = normal(engine);
    from_f32(values.data(), type, values.size(), keys.data());
    for (float& value : queries) value = normal(engine);
  }
  const char* page(std::uint32_t p) const { return keys.data() + (pages - 1 - p) * page_bytes; }
  const char* key(std::uint32_t token) const {
    return page(token / kPageTokens) + token % kPageTokens * page_bytes / kPageTokens;
  }
  /// use(row, head, scores) for all rows, of which the first sees `before` + 1 tokens.
  template <class Use>
  void each_score(std::uint32_t before, std::uint32_t rows, const Use& use) const {
    RowScores(shape, before + rows)
        .each(
            before, rows, [&](std::uint32_t row) { return query(row); }, [&](std::uint32_t p) { return page(p); }, use);
  }
  const float* query(std::uint32_t row) const { return queries.data() + std::size_t{row} * shape.group * shape.dim; }

  AttentionShape shape;
  std::size_t pages, page_bytes;
  std::vector<char> keys;
  std::vector<float> queries;
};

TEST(RowScores, AreThoseOfEveryQueryAlone) {
  for (const DType type : {DType::f32, DType::bf16})
    for (const std::uint32_t group : {1u, 3u, 8u, 32u})
      for (const auto& [before, rows] : {std::pair{0u, 1u}, {0u, 50u}, {15u, 2u}, {16u, 33u}, {70u, 40u}}) {
        const Prompt prompt(type, before + rows, group, 64, rows);
        std::uint32_t calls = 0;
        prompt.each_score(before, rows, [&](std::uint32_t row, std::uint32_t g, const float* own) {
          ASSERT_EQ(row * group + g, calls++) << "rows in order, and heads of each";
          const std::uint32_t seen = before + row + 1;
          std::vector<KvSpan> spans;
          for (std::uint32_t t = 0; t < seen; ++t) spans.push_back({prompt.key(t), nullptr, 1, ~0u});
          std::vector<float> alone(seen);
          token_scores(prompt.query(row) + std::size_t{g} * 64, spans, {1, 64, type}, alone.data());
          EXPECT_EQ(std::memcmp(own, alone.data(), seen * sizeof(float)), 0) << "row " << row << ", head " << g;
        });
        EXPECT_EQ(calls, rows * group);
      }
}

// As many queries at a time as a second-level cache has room for scores of, and one where it has none.
TEST(RowScores, OfLongPromptsFewAtATime) {
  const std::uint32_t before = 599'990, rows = 3, group = 2;
  const Prompt prompt(DType::bf16, before + rows, group, 32, rows);
  std::uint32_t calls = 0;
  prompt.each_score(before, rows, [&](std::uint32_t row, std::uint32_t g, const float* own) {
    ++calls;
    const std::uint32_t last = before + row;
    const KvSpan span{prompt.key(last), nullptr, 1, ~0u};
    float alone = 0;
    token_scores(prompt.query(row) + std::size_t{g} * 32, {&span, 1}, {1, 32, DType::bf16}, &alone);
    EXPECT_EQ(own[last], alone);
  });
  EXPECT_EQ(calls, rows * group);
}

}  // namespace
}  // namespace tandem
