// What the cases of competitions for places leave out: nothing to choose from, equals, infinities and NaN; on the CPU
// by hand, and the CUDA twins against the CPU.

#include "engine/kernels/heavy.h"
#include "engine/kernels/residency.h"
#include "engine/kernels/skewed.h"
#include "engine/kernels/topk.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

/// A set in host memory, rows of four f32; a page with K = 1 and V = 2.
struct Set {
  std::vector<float> mass;
  Words positions;
  std::vector<float> scores, lse;
  std::vector<float> page = std::vector<float>(128, 1), keys = std::vector<float>(4 * 8), values = keys;
  std::uint32_t held = 0, group = 1;

  HeavyStep step() {
    std::fill(page.begin() + 64, page.end(), 2.0f);
    HeavyStep s;
    s.lse = lse.data();
    s.mass = mass.data();
    s.positions = positions.data();
    s.keys = keys.data();
    s.values = values.data();
    s.held = held;
    s.set_scores(scores.data());
    s.room = static_cast<std::uint32_t>(mass.size());
    s.position = 20;
    return s;
  }
  KvPages kv() const { return {page.data(), DType::f32, 1, 4}; }
};

TEST(HeavyStep, OfEqualsTheNewestGoesAndTheWindowStays) {
  Set set;
  set.mass = {1, 1, 3, 1, 0};
  set.positions = {5, 9, 2, 7, 19};
  set.held = 5;
  set.scores.assign(6, -kInfinity);
  set.scores[0] = 0;
  set.lse = {0};
  HeavyStep step = set.step();
  step.window_begin = 18;
  update_heavy(step, 1, set.kv());
  EXPECT_EQ(set.positions, (Words{5, 20, 2, 7, 19}));
  EXPECT_EQ(set.mass, (std::vector<float>{1, 1, 3, 1, 0}));
  EXPECT_EQ(set.keys[4], 1);
  EXPECT_EQ(set.values[7], 2);
}

TEST(HeavyStep, WithoutWeightsNothingGrowsAndNanIsHeaviest) {
  Set set;
  set.mass = {std::nanf(""), 2, 4};
  set.positions = {0, 1, 2};
  set.held = 3;
  set.scores.assign(8, 1.0f);
  set.lse = {-kInfinity, -kInfinity};
  HeavyStep step = set.step();
  step.window_begin = 10;
  update_heavy(step, 2, set.kv());
  EXPECT_EQ(set.positions, (Words{0, 20, 2}));
  EXPECT_EQ(set.mass[1], 0);
  EXPECT_EQ(set.mass[2], 4);
}

TEST(Residents, OfNothing) {
  const Words nothing = {0}, table = {4, 2};
  Words chosen(1, 9), missing(1, 9);
  split_residents({nothing.data(), table.data(), 2, chosen.data(), missing.data()});
  EXPECT_EQ(chosen, nothing);
  EXPECT_EQ(missing, nothing);
  const Words all = {3, 1, 2, 4};
  Words of_all(4), missing_of_all(4);
  split_residents({all.data(), nullptr, 0, of_all.data(), missing_of_all.data()});
  EXPECT_EQ(missing_of_all, all);
}

TEST(Skewed, CountsWhatIsNearTheBest) {
  const float scores[] = {5, 1, 4.5f, -kInfinity, 2, 2, std::nanf(""), 2};
  EXPECT_EQ(tokens_near_the_best(scores, 2, 4, 1), 3u);  // 2 and 3: the mean, rounded up
  EXPECT_EQ(tokens_near_the_best(scores, 2, 4, 0), 2u);
  EXPECT_EQ(tokens_near_the_best(scores, 1, 0, 4), 0u);
  const std::vector<float> nothing(4, -kInfinity);
  EXPECT_EQ(tokens_near_the_best(nothing.data(), 1, 4, 4), 4u);
  Words chosen(3);
  best_units(scores, 2, 4, 2, 9, chosen.data());
  EXPECT_EQ(chosen, (Words{2, 0, 1}));
  best_units(scores, 2, 4, 2, 1, chosen.data());
  EXPECT_EQ(chosen[1], 0u);
  Words of_each(5);
  best_units_of_each(scores, 2, 4, 1, 2, of_each.data());  // 0 and 2, of the other head 0 and 1
  EXPECT_EQ(Words(of_each.begin(), of_each.begin() + 4), (Words{3, 0, 1, 2}));
  best_units_of_each(scores, 2, 4, 1, 1, of_each.data());
  EXPECT_EQ(Words(of_each.begin(), of_each.begin() + 2), (Words{1, 0}));
}

TEST(Skewed, DirectionsAreOrthonormalAndFollowTheLargestShare) {
  Random random(1);
  const std::uint32_t dim = 12, columns = 5;
  // Keys mostly along (1, 1, 0 ...), queries mostly along (0, 0, 1, 0 ...).
  const std::uint32_t tokens = 208;
  std::vector<float> page(tokens * 2 * dim), query_rows(tokens * dim);
  for (std::uint32_t t = 0; t < tokens; ++t) {
    auto key = random.normals(dim, 0.1f), query = random.normals(dim, 0.1f);
    const float along = random.normal();
    key[0] += along;
    key[1] += along;
    query[2] += random.normal();
    std::copy(key.begin(), key.end(), &page[(t / 16 * 32 + t % 16) * dim]);
    std::copy(query.begin(), query.end(), &query_rows[t * dim]);
  }
  Words slots(tokens / 16);
  for (std::uint32_t p = 0; p < slots.size(); ++p) slots[p] = p;
  std::vector<double> keys(dim * dim), queries(dim * dim);
  skew_grams({slots.data(), tokens, 0, query_rows.data(), 2 * dim, tokens / 2, keys.data(), queries.data()}, 2,
             {page.data(), DType::f32, 1, dim});
  std::vector<float> skew(columns * dim);
  skew_directions(keys.data(), queries.data(), dim, columns, skew.data());
  const auto dot = [&](const float* a, const float* b) {
    double sum = 0;
    for (std::uint32_t d = 0; d < dim; ++d) sum += double{a[d]} * double{b[d]};
    return sum;
  };
  for (std::uint32_t a = 0; a < columns; ++a)
    for (std::uint32_t b = 0; b < columns; ++b) EXPECT_NEAR(dot(&skew[a * dim], &skew[b * dim]), a == b ? 1 : 0, 1e-6);
  std::vector<float> both(dim), third(dim);
  both[0] = both[1] = std::sqrt(0.5f);
  third[2] = 1;
  for (const auto& x : {both, third}) {
    const double first = dot(&skew[0], x.data()), second = dot(&skew[dim], x.data());
    EXPECT_GT(first * first + second * second, 0.98);
  }
}

class CompetitionCudaTest : public CudaTest {};

TEST_F(CompetitionCudaTest, EvictionsEqualTheCpus) {
  Random random(5);
  for (int round = 0; round < 12; ++round) {
    Set set;
    const std::uint32_t room = 3 + random.below(5);
    set.held = round % 3 == 0 ? room - 1 : room;
    for (std::uint32_t i = 0; i < room; ++i) {
      set.mass.push_back(static_cast<float>(random.below(3)));  // many equals
      set.positions.push_back((i * 5 + 3) % 19);
    }
    if (round % 4 == 1) set.mass[random.below(set.held)] = std::nanf("");
    set.scores.assign(2 * (set.held + 1), 0.0f);
    set.lse = {round % 2 == 0 ? -kInfinity : 0.0f, -kInfinity};  // a weight of 1 for all, or none
    HeavyStep step = set.step();
    step.window_begin = 16;
    const OnDevice<float> mass(set.mass), scores(set.scores), lse(set.lse), page(set.page), keys(set.keys),
        values(set.values);
    const OnDevice<std::uint32_t> positions(set.positions);
    HeavyStep on_device = step;
    on_device.set_scores(scores.data());
    on_device.lse = lse.data();
    on_device.mass = mass.data();
    on_device.positions = positions.data();
    on_device.keys = keys.data();
    on_device.values = values.data();
    update_heavy(step, 2, set.kv());
    const OnDevice<HeavyStep> list(std::vector<HeavyStep>{on_device});
    update_heavy_cuda(list.data(), 1, 2, {page.data(), DType::f32, 1, 4}, {});
    EXPECT_EQ(positions.values(), set.positions) << round;
    EXPECT_EQ(keys.values(), set.keys) << round;
    EXPECT_EQ(values.values(), set.values) << round;
    const auto after = mass.values();
    for (std::size_t i = 0; i < after.size(); ++i)
      EXPECT_TRUE(after[i] == set.mass[i] || (std::isnan(after[i]) && std::isnan(set.mass[i])));
  }
}

TEST_F(CompetitionCudaTest, EvictionsAlikeEqualTheCpusWithInfinitiesNanAndEquals) {
  Random random(8);
  const std::uint32_t layers = 3, heads = 2, group = 2;
  for (std::uint32_t round = 0; round < 12; ++round) {
    const std::uint32_t room = 3 + random.below(5), held = round % 3 == 0 ? room - 1 : room;
    std::vector<Set> sets(layers * heads);
    std::vector<HeavyStep> on_cpu, on_device;
    std::vector<OnDevice<float>> floats;
    std::vector<OnDevice<std::uint32_t>> positions;
    const auto place = [&floats](const std::vector<float>& values) {
      floats.emplace_back(values);
      return floats.back().data();
    };
    for (Set& set : sets) {
      set.held = held;
      set.mass.assign(held, std::nanf(""));  // of a step before: it does not count
      set.mass.resize(room, 5);
      for (std::uint32_t i = 0; i < room; ++i) set.positions.push_back((i * 5 + 3) % 19);
      for (std::uint32_t i = 0; i < group * (held + 1); ++i)
        set.scores.push_back(random.below(3) == 0 ? -kInfinity : 0.0f);  // weights of 0 and 1
      set.lse = {0, round % 4 == 3 ? -kInfinity : 0};
      HeavyStep step = set.step();
      step.window_begin = 16;
      on_cpu.push_back(step);
      step.set_scores(place(set.scores));
      step.lse = place(set.lse);
      step.mass = place(set.mass);
      step.keys = place(set.keys);
      step.values = place(set.values);
      positions.emplace_back(set.positions);
      step.positions = positions.back().data();
      on_device.push_back(step);
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      update_heavy_alike({&on_cpu[layer * heads], heads}, group, sets[0].kv());
    const OnDevice<float> page(sets[0].page);
    const OnDevice<HeavyStep> list(on_device);
    update_heavy_alike_cuda(list.data(), layers, heads, held, group, {page.data(), DType::f32, 1, 4}, {});
    for (std::size_t s = 0; s < sets.size(); ++s) {
      EXPECT_EQ(positions[s].values(), sets[s].positions) << round;
      EXPECT_EQ(floats[s * 5 + 2].values(), sets[s].mass) << round;
      EXPECT_EQ(floats[s * 5 + 3].values(), sets[s].keys) << round;
      EXPECT_EQ(floats[s * 5 + 4].values(), sets[s].values) << round;
    }
  }
}

TEST_F(CompetitionCudaTest, NothingResidentAndNothingChosen) {
  const OnDevice<std::uint32_t> nothing(Words{0}), all(Words{2, 5, 8}), chosen(3), missing(3), none(1), none_missing(1),
      table(Words{1, 2}), moves(1), from(2), to(2), pages(Words{7, 7, 7});
  const OnDevice<ResidentSplit> splits(
      std::vector<ResidentSplit>{{all.data(), nullptr, 0, chosen.data(), missing.data()},
                                 {nothing.data(), table.data(), 2, none.data(), none_missing.data()}});
  split_residents_cuda(splits.data(), 2, {});
  EXPECT_EQ(missing.values(), (Words{2, 5, 8}));
  EXPECT_EQ(chosen.values(), (Words{2, 5, 8}));
  EXPECT_EQ(none_missing.values(), Words{0});
  const OnDevice<ResidentSwap> swaps(std::vector<ResidentSwap>{
      {nothing.data(), nothing.data(), table.data(), 2, pages.data(), 1, from.data(), to.data(), moves.data()}});
  swap_residents_cuda(swaps.data(), 1, {});
  EXPECT_EQ(moves.values(), Words{0});
  EXPECT_EQ(table.values(), (Words{1, 2}));
}

TEST_F(CompetitionCudaTest, ChoicesOfInfinitiesAndNanEqualTheCpus) {
  Random random(6);
  for (const std::uint32_t n : {0u, 1u, 60u}) {
    std::vector<float> scores = random.normals(4 * std::size_t{n});
    for (std::size_t i = 0; i < scores.size(); i += 3) scores[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
    for (const double alpha : {0.0, 1.0, 1e300}) {
      const std::uint32_t keep = std::min(20u, tokens_near_the_best(scores.data(), 4, n, alpha));
      const OnDevice<float> device(scores);
      const OnDevice<std::uint32_t> chosen(Words(2 * 21)), near(4);
      const OnDevice<SkewedChoice> choice(
          std::vector<SkewedChoice>{{device.data(), n, 1, 20, alpha, chosen.data(), 20, near.data()}});
      choose_skewed_cuda(choice.data(), 1, 2, 2, {});
      const Words got = chosen.values();
      for (std::uint32_t head = 0; head < 2; ++head) {
        Words expected(21);
        best_units(scores.data() + std::size_t{head} * 2 * n, 2, n, 1, keep, expected.data());
        for (std::uint32_t i = 0; i <= expected[0]; ++i)
          EXPECT_EQ(got[head * 21 + i], expected[i]) << n << " " << alpha;
      }
      const OnDevice<std::uint32_t> of_each(Words(2 * 41)), marks(2 * n);
      const OnDevice<SkewedChoice> apart(std::vector<SkewedChoice>{
          {device.data(), n, 1, 20, alpha, of_each.data(), 40, near.data(), nullptr, marks.data()}});
      choose_skewed_of_each_cuda(apart.data(), 1, 2, 2, {});
      const Words got_of_each = of_each.values();
      for (std::uint32_t head = 0; head < 2; ++head) {
        Words expected(41);
        best_units_of_each(scores.data() + std::size_t{head} * 2 * n, 2, n, 1, keep, expected.data());
        EXPECT_EQ(Words(got_of_each.begin() + head * 41, got_of_each.begin() + head * 41 + 1 + expected[0]),
                  Words(expected.begin(), expected.begin() + 1 + expected[0]))
            << n << " " << alpha;
      }
    }
  }
}

TEST_F(CompetitionCudaTest, ChoicesOfAllHeadsEqualTheCpusWithInfinitiesNanAndEquals) {
  Random random(9);
  const std::uint32_t heads = 2, group = 2, most = 20;
  for (const std::uint32_t n : {0u, 1u, 60u, 400u}) {
    std::vector<float> scores = random.normals(std::size_t{heads} * group * n);
    for (float& score : scores) score = std::round(score);  // many equals
    for (std::size_t i = 0; i < scores.size(); i += 3) scores[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
    if (n > 1) {
      for (std::uint32_t h = 0; h < heads * group; ++h) scores[h * n + 7] = -kInfinity;
      scores[7] = scores[n + 20] = kInfinity;  // with -infinity of the other head it is NaN; infinity alone
      for (std::uint32_t h = 0; h < heads * group; ++h) scores[h * n + 31] = std::nanf("");
    }
    for (const std::uint32_t unit : {1u, 4u}) {
      for (const double alpha : {0.0, 1.0, 1e300}) {
        const std::uint32_t tokens = tokens_near_the_best(scores.data(), heads * group, n, alpha);
        Words expected(heads * (1 + most));
        best_units_of_all(scores.data(), heads, group, n, unit, std::min(most, (tokens + unit - 1) / unit),
                          expected.data(), 1 + most);
        const OnDevice<float> device(scores), sums(n / unit);
        const OnDevice<std::uint32_t> chosen(Words(heads * (1 + most))), near(heads * group);
        const OnDevice<SkewedChoice> choice(std::vector<SkewedChoice>{
            {device.data(), n, unit, most, alpha, chosen.data(), most, near.data(), sums.data()}});
        choose_skewed_of_all_cuda(choice.data(), 1, n / unit, heads, group, {});
        EXPECT_EQ(chosen.values(), expected) << n << " " << unit << " " << alpha;
      }
    }
  }
}

TEST_F(CompetitionCudaTest, TheFirstAreChosenWhateverTheirScore) {
  Random random(7);
  auto scores = random.normals(700);
  for (std::size_t i = 0; i < 10; ++i) scores[i] = i % 2 == 0 ? -kInfinity : std::nanf("");
  const OnDevice<float> device(scores);
  for (const std::uint32_t first : {0u, 3u, 10u, 40u}) {
    Words expected(41, 40);
    top_k(scores.data(), 700, 40, expected.data() + 1, first);
    for (std::uint32_t i = 0; i < first; ++i) EXPECT_EQ(expected[1 + i], i);
    const OnDevice<std::uint32_t> out(41);
    const OnDevice<TopKRow> row(std::vector<TopKRow>{{device.data(), 700, 40, out.data(), first}});
    top_k_cuda(row.data(), 1, 1, {});
    EXPECT_EQ(out.values(), expected) << first;
  }
}

}  // namespace
}  // namespace tandem
