
#include "engine/common/error.h"
#include "engine/kernels/attention.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

constexpr std::uint32_t kAllHeads = ~0u;

struct Result {
  std::vector<float> o, lse;
  bool operator==(const Result& other) const { return same_bits(o, other.o) && same_bits(lse, other.lse); }
};

/// What rounding every weight to bf16 may change of o, and the standard deviation of what it does change.
struct Rounding {
  std::vector<double> most, deviation;
};

void expect_agrees(const Result& result, const Result& expected, double tolerance, const Rounding& rounding = {}) {
  ASSERT_EQ(result.o.size(), expected.o.size());
  for (std::size_t i = 0; i < result.o.size(); ++i) {
    const double allowed = tolerance * std::max(1.0, std::fabs(double{expected.o[i]}));
    ASSERT_NEAR(result.o[i], expected.o[i], allowed + (rounding.most.empty() ? 0 : rounding.most[i])) << "at " << i;
  }
  ASSERT_EQ(result.lse.size(), expected.lse.size());
  for (std::size_t h = 0; h < result.lse.size(); ++h) {
    if (expected.lse[h] == -kInfinity)
      EXPECT_EQ(result.lse[h], -kInfinity);
    else
      EXPECT_NEAR(result.lse[h], expected.lse[h], tolerance * std::max(1.0f, std::fabs(expected.lse[h])));
  }
}

struct Kv {
  Kv(Random& random, DType type, std::uint32_t tokens, std::uint32_t dim, float of_keys = 1, float of_values = 1)
      : k(random.normals(std::size_t{tokens} * dim, of_keys), type),
        v(random.normals(std::size_t{tokens} * dim, of_values), type),
        dim_(dim) {}
  KvSpan span(std::uint32_t first, std::uint32_t tokens, std::uint32_t mask = kAllHeads) const {
    return {k.at(std::size_t{first} * dim_), v.at(std::size_t{first} * dim_), tokens, mask};
  }
  StoredArray k, v;
  std::uint32_t dim_;
};

/// Cuts tokens [0, tokens) into random spans, empty ones among them.
std::vector<KvSpan> cut(Random& random, const Kv& kv, std::uint32_t tokens, std::uint32_t longest) {
  std::vector<KvSpan> spans;
  for (std::uint32_t first = 0; first < tokens;) {
    const std::uint32_t size = std::min(random.below(longest + 1), tokens - first);
    spans.push_back(kv.span(first, size));
    first += size;
  }
  return spans;
}

class PartialAttentionTest : public IsaAndTypeTest {
 protected:
  using Spans = std::vector<KvSpan>;
  static Result fast(const std::vector<float>& q, const Spans& spans, std::uint32_t group, std::uint32_t dim) {
    const auto kernel = [](const float* query, std::span<const KvSpan> attended, AttentionShape shape, float* o,
                           float* lse) { partial_attention(query, attended, shape, o, lse); };
    return run(kernel, q, spans, group, dim);
  }
  static Result exact(const std::vector<float>& q, const Spans& spans, std::uint32_t group, std::uint32_t dim) {
    return run(partial_attention_reference, q, spans, group, dim);
  }
  // With weights w (1 + e) instead of w, o changes by the sum of w e (v - o) over that of w (1 + e). A bf16 has 8 bits:
  // |e| <= 2^-8, and the mean of e^2 over mantissas of any size m in [1, 2) is 2^-14 / 12 times that of 1 / m^2, 0.541
  // where their logarithms are even.
  static Rounding rounding(const std::vector<float>& q, const Spans& spans, std::uint32_t group, std::uint32_t dim,
                           const Result& expected) {
    Rounding out;
    if (type() != DType::bf16) return out;
    out.most.resize(expected.o.size());
    out.deviation.resize(expected.o.size());
    std::size_t tokens = 0;
    for (const KvSpan& span : spans) tokens += span.tokens;
    std::vector<float> scores(group * tokens);
    token_scores_reference(q.data(), spans, {group, dim, type()}, scores.data());
    for (std::size_t h = 0; h < group; ++h) {
      const float* score = scores.data() + h * tokens;
      for (const KvSpan& span : spans)
        for (std::size_t t = 0; t < span.tokens; ++t, ++score) {
          if ((span.head_mask >> h & 1u) == 0) continue;
          const double weight = std::exp(double{*score} - double{expected.lse[h]});
          for (std::size_t d = 0; d < dim; ++d) {
            const double part = weight * (double{load_element(span.v, type(), t * dim + d)} - expected.o[h * dim + d]);
            out.most[h * dim + d] += std::fabs(part) / 255;
            out.deviation[h * dim + d] += part * part;
          }
        }
    }
    for (double& value : out.deviation) value = std::sqrt(value * 0.541 / 12) / 128;
    return out;
  }

 private:
  template <class Kernel>
  static Result run(Kernel kernel, const std::vector<float>& q, const Spans& spans, std::uint32_t group,
                    std::uint32_t dim) {
    Result result{std::vector<float>(std::size_t{group} * dim, 99), std::vector<float>(group, 99)};
    kernel(q.data(), spans, {group, dim, type()}, result.o.data(), result.lse.data());
    return result;
  }
};
TANDEM_EACH_ISA_AND_TYPE(PartialAttentionTest);

TEST_P(PartialAttentionTest, PartsInOneCallHaveTheBitsOfTheirOwn) {
  Random random(21);
  const std::uint32_t tokens = 500;
  for (const std::uint32_t dim : {24u, 64u, 128u}) {
    for (const std::uint32_t group : {1u, 4u, 7u, 17u}) {
      const Kv kv(random, type(), tokens, dim, 3);
      const auto q = random.normals(group * dim);
      for (const bool mixed : {false, true}) {
        Spans spans = cut(random, kv, tokens, 40);
        for (KvSpan& span : spans)  // some that no head attends
          if (mixed) span.head_mask = random.below(3) == 0 ? 0 : random.below(1u << 17);
        std::vector<std::size_t> ends;
        for (std::size_t end = 0; end < spans.size();) {
          end = std::min(spans.size(), end + random.below(9));  // some parts are empty
          ends.push_back(end);
        }
        ends.push_back(spans.size());
        const std::size_t parts = ends.size();
        std::vector<float> scores(std::size_t{group} * tokens), expected_scores(scores.size());
        Result all{std::vector<float>(parts * group * dim, 99), std::vector<float>(parts * group, 99)}, expected;
        partial_attention_of_parts(q.data(), spans, ends, {group, dim, type()}, all.o.data(), all.lse.data(),
                                   mixed ? nullptr : scores.data());
        for (std::size_t part = 0; part < parts; ++part) {
          const std::size_t begin = part == 0 ? 0 : ends[part - 1];
          const Result own = fast(
              q, Spans(spans.begin() + std::ptrdiff_t(begin), spans.begin() + std::ptrdiff_t(ends[part])), group, dim);
          expected.o.insert(expected.o.end(), own.o.begin(), own.o.end());
          expected.lse.insert(expected.lse.end(), own.lse.begin(), own.lse.end());
        }
        EXPECT_EQ(all, expected) << "groups of " << group << ", D " << dim << (mixed ? ", mixed" : "");
        if (mixed) continue;
        token_scores(q.data(), spans, {group, dim, type()}, expected_scores.data());
        EXPECT_EQ(scores, expected_scores);
      }
    }
  }
}

TEST_P(PartialAttentionTest, AgreesWithFloat64) {
  Random random(1);
  for (const std::uint32_t dim : {8u, 24u, 64u, 80u, 96u, 128u, 256u, 12u}) {
    for (std::uint32_t group = 1; group <= 8; ++group) {
      const std::uint32_t tokens = 1 + random.below(150);
      const Kv kv(random, type(), tokens, dim, 1 + static_cast<float>(random.below(6)));
      const auto q = random.normals(std::size_t{group} * dim);
      std::vector<KvSpan> spans = cut(random, kv, tokens, 40);
      for (KvSpan& span : spans)
        if (random.below(2)) span.head_mask = random.below(1u << group);
      const Result expected = exact(q, spans, group, dim);
      expect_agrees(fast(q, spans, group, dim), expected, 1e-5, rounding(q, spans, group, dim, expected));
    }
  }
}

// Tiles of these are fetched in runs that are no whole number of pieces.
TEST_P(PartialAttentionTest, UnusualDimensions) {
  Random random(9);
  for (const std::uint32_t dim : {136u, 160u, 200u, 320u, 520u}) {
    const std::uint32_t tokens = 70, group = 3;
    const Kv kv(random, type(), tokens, dim);
    const auto q = random.normals(std::size_t{group} * dim);
    const std::vector<KvSpan> spans = {kv.span(0, tokens)};
    const Result expected = exact(q, spans, group, dim);
    expect_agrees(fast(q, spans, group, dim), expected, 2e-5, rounding(q, spans, group, dim, expected));
  }
}

// Every rest of the last pair of vectors. KV ends at the end of its memory, which the address sanitizer watches.
TEST_P(PartialAttentionTest, DimensionsOfAnyRest) {
  Random random(12);
  std::vector<std::uint32_t> dims = {68, 98, 100, 126, 132};
  for (std::uint32_t dim = 1; dim <= 33; ++dim) dims.push_back(dim);
  for (const std::uint32_t dim : dims) {
    const std::uint32_t tokens = 37, group = 1 + dim % 5;
    const Kv kv(random, type(), tokens, dim);
    const auto q = random.normals(std::size_t{group} * dim);
    const std::vector<KvSpan> spans = {kv.span(0, 20), kv.span(20, tokens - 20)};
    const Result expected = exact(q, spans, group, dim);
    expect_agrees(fast(q, spans, group, dim), expected, 1e-5, rounding(q, spans, group, dim, expected));
    std::vector<float> scores(std::size_t{tokens} * group), right(scores.size());
    token_scores(q.data(), spans, {group, dim, type()}, scores.data());
    token_scores_reference(q.data(), spans, {group, dim, type()}, right.data());
    expect_near(scores, right, 1e-5);
  }
}

TEST_P(PartialAttentionTest, RoundedWeightsErrNoMoreThanRoundingDoes) {
  Random random(9);
  double squares = 0, foreseen = 0;
  for (const std::uint32_t tokens : {5u, 40u, 300u}) {
    const std::uint32_t group = 4, dim = 64;
    const Kv kv(random, type(), tokens, dim);
    const auto q = random.normals(std::size_t{group} * dim);
    const std::vector<KvSpan> spans = {kv.span(0, tokens)};
    const Result result = fast(q, spans, group, dim), expected = exact(q, spans, group, dim);
    const Rounding rounded = rounding(q, spans, group, dim, expected);
    for (std::size_t i = 0; i < result.o.size(); ++i) {
      const double deviation = rounded.deviation.empty() ? 1e-6 : rounded.deviation[i];
      squares += std::pow((result.o[i] - expected.o[i]) / deviation, 2);
      foreseen += 1;
    }
  }
  RecordProperty("error_in_deviations", std::to_string(std::sqrt(squares / foreseen)));
  EXPECT_LT(std::sqrt(squares / foreseen), 1.3);
}

TEST_P(PartialAttentionTest, EqualScoresGiveTheMean) {
  Random random(10);
  for (const std::uint32_t dim : {24u, 96u, 128u})
    for (const std::uint32_t group : {1u, 3u, 5u, 7u, 8u, 9u}) {
      const std::uint32_t tokens = 77;
      Kv kv(random, type(), tokens, dim, 0);  // weights of 1, which no rounding changes
      const auto q = random.normals(std::size_t{group} * dim);
      std::vector<KvSpan> spans = cut(random, kv, tokens, 20);
      for (KvSpan& span : spans)
        if (random.below(2)) span.head_mask = random.below(1u << group);
      expect_agrees(fast(q, spans, group, dim), exact(q, spans, group, dim), 1e-6);
    }
}

TEST_P(PartialAttentionTest, GroupsOfUpTo32Heads) {
  Random random(2);
  for (const std::uint32_t group : {12u, 16u, 31u, 32u}) {
    const Kv kv(random, type(), 70, 64);
    const auto q = random.normals(std::size_t{group} * 64);
    const std::vector<KvSpan> spans = {kv.span(0, 33, 0xaaaaaaaau), kv.span(33, 37)};
    const Result expected = exact(q, spans, group, 64);
    expect_agrees(fast(q, spans, group, 64), expected, 1e-5, rounding(q, spans, group, 64, expected));
  }
  std::vector<float> q(64), o(64), lse(1);
  EXPECT_THROW(partial_attention(q.data(), {}, {0, 64, type()}, o.data(), lse.data()), LogicError);
  EXPECT_THROW(partial_attention(q.data(), {}, {33, 64, type()}, o.data(), lse.data()), LogicError);
}

TEST_P(PartialAttentionTest, OneTokenIsItsValue) {
  Random random(3);
  const Kv kv(random, type(), 1, 64);
  const auto q = random.normals(64);
  const Result result = fast(q, {kv.span(0, 1)}, 1, 64);
  EXPECT_EQ(result.o, kv.v.values());
  double dot = 0;
  for (std::size_t d = 0; d < 64; ++d) {
    const float query = type() == DType::bf16 ? bf16_to_float(float_to_bf16(q[d])) : q[d];
    dot += double{query} * double{kv.k.values()[d]};
  }
  EXPECT_NEAR(result.lse[0], dot / 8, 1e-5);
}

TEST_P(PartialAttentionTest, NoTokensGiveZeroAndMinusInfinity) {
  Random random(4);
  const Kv kv(random, type(), 40, 80);
  const auto q = random.normals(3 * 80);
  const Result nothing{std::vector<float>(3 * 80, 0.0f), std::vector<float>(3, -kInfinity)};
  EXPECT_TRUE(fast(q, {}, 3, 80) == nothing);
  EXPECT_TRUE(fast(q, {kv.span(0, 0)}, 3, 80) == nothing);
  EXPECT_TRUE(fast(q, {kv.span(0, 40, 0)}, 3, 80) == nothing);
  EXPECT_TRUE(fast(q, {kv.span(0, 40, ~7u)}, 3, 80) == nothing) << "bits beyond the group mean nothing";
  EXPECT_TRUE(fast(q, {KvSpan{nullptr, nullptr, 9, 0}}, 3, 80) == nothing) << "a masked span is not read";
  const Result middle_alone = fast(q, {kv.span(0, 40, 2)}, 3, 80);
  EXPECT_EQ(middle_alone.lse[0], -kInfinity);
  EXPECT_NE(middle_alone.lse[1], -kInfinity);
  EXPECT_EQ(middle_alone.lse[2], -kInfinity);
}

TEST_P(PartialAttentionTest, BitsDoNotDependOnHowTokensAreCut) {
  Random random(5);
  for (const std::uint32_t dim : {64u, 72u, 100u, 128u}) {
    for (const float scale : {1.0f, 20.0f}) {  // 20: the largest score moves often
      const std::uint32_t tokens = 333, group = scale == 1.0f && dim != 128 ? 19 : 7;
      const Kv kv(random, type(), tokens, dim, scale);
      const auto q = random.normals(std::size_t{group} * dim);
      const Result whole = fast(q, {kv.span(0, tokens)}, group, dim);
      for (const std::uint32_t longest : {1u, 3u, 16u, 17u, 100u})
        EXPECT_TRUE(fast(q, cut(random, kv, tokens, longest), group, dim) == whole) << longest;
    }
  }
}

TEST_P(PartialAttentionTest, BitsOfAHeadDoNotDependOnTheOthers) {
  Random random(6);
  const std::uint32_t group = 6;
  for (const std::uint32_t dim : {64u, 128u})
    for (const auto& [tokens, of_values] :
         {std::pair{200u, 1.0f}, {45u, 1.0f}, {45u, 3e-38f}}) {  // also subnormal sums
      const Kv kv(random, type(), tokens, dim, 8, of_values);
      const auto q = random.normals(std::size_t{group} * dim);
      for (int round = 0; round < 10; ++round) {
        const std::uint32_t longest[] = {30, 1, 3, 120};
        std::vector<KvSpan> spans = cut(random, kv, tokens, longest[round % 4]);
        for (KvSpan& span : spans) span.head_mask = random.below(1u << group);
        if (round >= 5)  // most of them by all heads
          for (std::size_t i = 0; i < spans.size(); ++i)
            if (i % 8 != 0) spans[i].head_mask = kAllHeads;
        const Result together = fast(q, spans, group, dim);
        for (std::uint32_t h = 0; h < group; ++h) {
          std::vector<KvSpan> mine;
          for (KvSpan span : spans)
            if (span.head_mask >> h & 1u) mine.push_back({span.k, span.v, span.tokens, 1});
          const std::vector<float> query(q.begin() + h * dim, q.begin() + (h + 1) * dim);
          const Result alone = fast(query, mine, 1, dim);
          EXPECT_TRUE(same_bits(alone.o, {together.o.begin() + h * dim, together.o.begin() + (h + 1) * dim}));
          EXPECT_TRUE(same_bits(alone.lse, {together.lse[h]}));
        }
      }
    }
}

// Blocks of 16 and 32 tokens of few heads: whole tiles beside tokens that others have attended before.
TEST_P(PartialAttentionTest, BlocksOfSomeHeadsAgreeWithFloat64) {
  Random random(14);
  for (const std::uint32_t group : {3u, 8u, 17u, 32u})
    for (const std::uint32_t dim : {32u, 64u}) {
      const std::uint32_t tokens = 400;
      const Kv kv(random, type(), tokens, dim);
      const auto q = random.normals(std::size_t{group} * dim);
      for (int round = 0; round < 4; ++round) {
        Spans spans;
        for (std::uint32_t first = 0; first < tokens;) {
          const std::uint32_t size = std::min(16 * (1 + random.below(3)), tokens - first);
          spans.push_back(
              kv.span(first, size, 1u << random.below(group) | (round % 2 ? 1u << random.below(group) : 0)));
          first += size;
        }
        const Result expected = exact(q, spans, group, dim), together = fast(q, spans, group, dim);
        expect_agrees(together, expected, 1e-5, rounding(q, spans, group, dim, expected));
        for (std::uint32_t h = 0; h < group; ++h) {
          Spans mine;
          for (const KvSpan& span : spans)
            if (span.head_mask >> h & 1u) mine.push_back({span.k, span.v, span.tokens, 1});
          const Result alone = fast({q.begin() + h * dim, q.begin() + (h + 1) * dim}, mine, 1, dim);
          EXPECT_TRUE(same_bits(alone.o, {together.o.begin() + h * dim, together.o.begin() + (h + 1) * dim}));
        }
      }
    }
}

TEST_P(PartialAttentionTest, ScoresAreTheSameAloneAndFromAttention) {
  Random random(13);
  const std::uint32_t tokens = 150;
  for (const std::uint32_t dim : {64u, 96u, 72u, 128u})
    for (const std::uint32_t group : {1u, 4u, 7u, 18u}) {
      const float of_keys = group == 7 ? 3e-38f : 1.0f;  // whose scores are subnormal
      const Kv kv(random, type(), tokens, dim, of_keys);
      const auto q = random.normals(std::size_t{group} * dim);
      for (const std::uint32_t longest : {3u, 16u, 150u}) {
        const Spans spans = cut(random, kv, tokens, longest);
        Result with{std::vector<float>(std::size_t{group} * dim), std::vector<float>(group)};
        std::vector<float> given(std::size_t{group} * tokens), alone(given.size()), right(given.size());
        partial_attention(q.data(), spans, {group, dim, type()}, with.o.data(), with.lse.data(), given.data());
        token_scores(q.data(), spans, {group, dim, type()}, alone.data());
        token_scores_reference(q.data(), spans, {group, dim, type()}, right.data());
        EXPECT_TRUE(with == fast(q, spans, group, dim)) << "asking for scores changes nothing else";
        EXPECT_TRUE(same_bits(given, alone)) << "dim " << dim << ", group " << group;
        expect_near(alone, right, 1e-5);
      }
    }
}

TEST_P(PartialAttentionTest, RisingAndFallingScores) {
  Random random(7);
  const std::uint32_t tokens = 400;
  for (const std::uint32_t dim : {64u, 8u, 128u}) {
    Kv kv(random, type(), tokens, dim);
    std::vector<float> q(dim, 8 / std::sqrt(static_cast<float>(dim)));
    for (const double step : {1e-3, 0.5, 3.0, -0.5, 40.0}) {
      for (std::uint32_t t = 0; t < tokens; ++t)
        for (std::uint32_t d = 0; d < dim; ++d)
          kv.k.set(t * dim + d, static_cast<float>(step * t / 8));  // score = step * t, nearly
      const std::vector<KvSpan> spans = {kv.span(0, tokens)};
      const Result expected = exact(q, spans, 1, dim);
      expect_agrees(fast(q, spans, 1, dim), expected, 3e-5, rounding(q, spans, 1, dim, expected));
    }
  }
}

TEST_P(PartialAttentionTest, LargeAndInfiniteScoresNeverGiveNan) {
  Random random(8);
  const std::uint32_t dim = 64;
  Kv kv(random, type(), 20, dim);
  const std::vector<float> q(dim, 1.0f);
  const auto fill = [&](std::uint32_t token, float value) {
    for (std::uint32_t d = 0; d < dim; ++d) kv.k.set(token * dim + d, value);
  };
  // The last two of f32 and bf16 overflow when summed.
  const std::vector<float> large =
      type() == DType::f16 ? std::vector{1e4f, 6e4f} : std::vector{1e4f, 1e20f, 1e38f, 3e38f};
  for (const float big : large) {
    fill(4, big);
    fill(9, -big);
    const Result result = fast(q, {kv.span(0, 20)}, 1, dim);
    for (std::size_t d = 0; d < dim; ++d) ASSERT_NEAR(result.o[d], kv.v.values()[4 * dim + d], 1e-6);
    EXPECT_GE(result.lse[0], big * 7.9f / 8 > 1e38f ? 2.9e38f : big);
  }
  fill(4, -kInfinity);
  fill(9, 0);
  const Result without = fast(q, {kv.span(0, 4), kv.span(5, 15)}, 1, dim);
  const Result with = fast(q, {kv.span(0, 20)}, 1, dim);
  expect_agrees(with, without, 1e-6);  // a token with score -infinity adds nothing
  const Result alone = fast(q, {kv.span(4, 1)}, 1, dim);
  EXPECT_EQ(alone.lse[0], -kInfinity);
  EXPECT_EQ(alone.o, std::vector<float>(dim, 0.0f));
  const Result first = fast(q, {kv.span(4, 1), kv.span(0, 4), kv.span(5, 15)}, 1, dim);
  expect_agrees(first, without, 1e-6);
}

}  // namespace
}  // namespace tandem
