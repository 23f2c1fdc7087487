// Competitions for places with equals, infinities and NaN: on the CPU by hand, and the CUDA twin against the CPU.
#include <algorithm>
#include <cmath>

#include "engine/mechanisms/survivors/kernels/heavy.h"
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

class HeavyCudaTest : public CudaTest {};

TEST_F(HeavyCudaTest, EvictionsEqualTheCpus) {
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

TEST_F(HeavyCudaTest, EvictionsAlikeEqualTheCpusWithInfinitiesNanAndEquals) {
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

}  // namespace
}  // namespace tandem
