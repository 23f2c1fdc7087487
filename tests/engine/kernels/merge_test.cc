
#include <limits>

#include "engine/kernels/attention.h"
#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

struct Part {
  std::vector<float> o, lse;
};
constexpr std::uint32_t kMergedDim = 72;

Part merge(const std::vector<Part>& parts) {
  std::vector<const float*> o, lse;
  for (const Part& part : parts) {
    o.push_back(part.o.data());
    lse.push_back(part.lse.data());
  }
  const std::size_t rows = parts[0].lse.size();
  Part out{std::vector<float>(rows * kMergedDim, 99), std::vector<float>(rows, 99)};
  merge_partials(o.data(), lse.data(), static_cast<std::uint32_t>(parts.size()), static_cast<std::uint32_t>(rows),
                 kMergedDim, out.o.data(), out.lse.data());
  return out;
}

Part random_part(Random& random, std::size_t rows) {
  Part part{random.normals(rows * kMergedDim), random.normals(rows, 5)};
  for (std::size_t r = 0; r < rows; ++r) {
    if (random.below(4) != 0) continue;
    part.lse[r] = -kInfinity;
    std::fill_n(part.o.begin() + std::ptrdiff_t(r * kMergedDim), kMergedDim, 0.0f);
  }
  return part;
}
Part empty_part(std::size_t rows) {
  return {std::vector<float>(rows * kMergedDim, 0.0f), std::vector<float>(rows, -kInfinity)};
}

void expect_same(const Part& a, const Part& b, double tolerance) {
  expect_near(a.o, b.o, tolerance);
  for (std::size_t r = 0; r < a.lse.size(); ++r) {
    if (b.lse[r] == -kInfinity)
      EXPECT_EQ(a.lse[r], -kInfinity);
    else
      EXPECT_NEAR(a.lse[r], b.lse[r], tolerance * std::max(1.0f, std::fabs(b.lse[r])));
  }
}

TEST(Merge, IsCommutativeAndAssociative) {
  Random random(1);
  for (int round = 0; round < 20; ++round) {
    const Part a = random_part(random, 9), b = random_part(random, 9), c = random_part(random, 9);
    expect_same(merge({a, b}), merge({b, a}), 2e-6);
    expect_same(merge({merge({a, b}), c}), merge({a, merge({b, c})}), 4e-6);
    expect_same(merge({a, b, c}), merge({merge({a, b}), c}), 4e-6);
  }
}

void expect_same_part(const Part& a, const Part& b) {
  EXPECT_TRUE(same_bits(a.o, b.o));
  EXPECT_TRUE(same_bits(a.lse, b.lse));
}

TEST(Merge, EmptyIsTheIdentityBitForBit) {
  Random random(2);
  Part a = random_part(random, 9);
  const Part empty = empty_part(9);
  const std::vector<float> odd = {-0.0f, 1e-42f, -1e-42f, 3e38f, kInfinity, 0.0f};
  std::copy(odd.begin(), odd.end(), a.o.begin());
  a.lse[0] = -87.3f;
  Part garbage = empty;
  std::fill(garbage.o.begin(), garbage.o.end(), std::numeric_limits<float>::quiet_NaN());
  for (const Part& none : {empty, garbage}) {
    expect_same_part(merge({a, none}), a);
    expect_same_part(merge({none, a}), a);
    expect_same_part(merge({none, none, a, none}), a);
    expect_same_part(merge({none, none}), empty);
    expect_same_part(merge({none}), empty);
  }
  expect_same_part(merge({a}), a);
  // Beside other parts, too.
  const Part b = random_part(random, 9);
  expect_same_part(merge({a, garbage, b}), merge({a, b}));
  expect_same_part(merge({garbage, a, b, empty}), merge({a, b}));
}

TEST(Merge, NoPartsGiveZeroAndMinusInfinity) {
  std::vector<float> out(kMergedDim, 5), lse(1, 5);
  merge_partials(nullptr, nullptr, 0, 1, kMergedDim, out.data(), lse.data());
  EXPECT_EQ(out, std::vector<float>(kMergedDim, 0.0f));
  EXPECT_EQ(lse[0], -kInfinity);
}

TEST(Merge, PartsFarApart) {
  Part small{std::vector<float>(kMergedDim, 1), {-1e30f}}, large{std::vector<float>(kMergedDim, 2), {1e30f}};
  expect_same(merge({small, large}), large, 0);
  Part equal{std::vector<float>(kMergedDim, 4), {1e30f}};
  expect_near(merge({large, equal}).o, std::vector<float>(kMergedDim, 3.0f), 1e-6);
}

TEST(Merge, TheOutputMayBeAPart) {
  Random random(3);
  Part a = random_part(random, 5);
  const Part b = random_part(random, 5), expected = merge({a, b});
  const float* o[] = {a.o.data(), b.o.data()};
  const float* lse[] = {a.lse.data(), b.lse.data()};
  merge_partials(o, lse, 2, 5, kMergedDim, a.o.data(), a.lse.data());
  EXPECT_TRUE(same_bits(a.o, expected.o));
  EXPECT_TRUE(same_bits(a.lse, expected.lse));
}

TEST(Merge, PartialResultsJoinToTheWhole) {
  Random random(4);
  const std::uint32_t tokens = 200, group = 4;
  const auto k = random.normals(tokens * kMergedDim, 3), v = random.normals(tokens * kMergedDim),
             q = random.normals(group * kMergedDim);
  const auto attend = [&](std::uint32_t from, std::uint32_t to) {
    Part part = empty_part(group);
    const KvSpan span{k.data() + from * kMergedDim, v.data() + from * kMergedDim, to - from, 0xf};
    partial_attention_reference(q.data(), {&span, 1}, {group, kMergedDim}, part.o.data(), part.lse.data());
    return part;
  };
  expect_same(merge({attend(0, 31), attend(31, 31), attend(31, 190), attend(190, 200)}), attend(0, 200), 2e-6);
  Part out = empty_part(group);
  const Part whole = attend(0, 200);
  const float* o[] = {whole.o.data()};
  const float* lse[] = {whole.lse.data()};
  merge_partials(o, lse, 1, group, kMergedDim, out.o.data(), nullptr);
  EXPECT_EQ(out.o, whole.o);
}

}  // namespace
}  // namespace tandem
