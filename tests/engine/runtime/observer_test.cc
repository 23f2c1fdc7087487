// What an observer of the forward pass is shown, and that it changes nothing.
#include "engine/runtime/observer.h"

#include <gtest/gtest.h>

#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

TEST(Observer, SeesEveryRowOfEveryLayerAndChangesNothing) {
  struct Count : ForwardObserver {
    void qkv_done(const QkvRows& rows) override { seen += rows.positions.size(); }
    std::size_t seen = 0;
  } count;
  const std::vector<std::int32_t> prompt = random_prompt(120, 3);
  Bench bench(tiny_model());
  const auto method = make_method("full");
  const std::vector<std::int32_t> before = bench.decode(*method, {prompt}, 12).sequences[0].tokens;
  bench.engine.observe(&count);
  EXPECT_EQ(bench.decode(*method, {prompt}, 12).sequences[0].tokens, before);
  EXPECT_EQ(count.seen, bench.model.config.layers * (prompt.size() - 1 + before.size()));
  bench.engine.observe(nullptr);
  const std::size_t seen = count.seen;
  bench.decode(*method, {prompt}, 2);
  EXPECT_EQ(count.seen, seen);
}

/// Compares what it is shown of one position with the slow model.
struct Compare : ForwardObserver {
  void qkv_done(const QkvRows& rows) override {
    for (std::size_t row = 0; row < rows.positions.size(); ++row) {
      if (rows.positions[row] != position) continue;
      near(rows.x + row * x[rows.layer].size(), x[rows.layer]);
      near(rows.q + row * q[rows.layer].size(), q[rows.layer]);
      near(rows.k + row * k[rows.layer].size(), k[rows.layer]);
      near(rows.v + row * v[rows.layer].size(), v[rows.layer]);
      ++compared;
    }
  }
  static void near(const float* got, const SlowModel::Vector& expected) {
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 1e-4);
  }
  std::uint32_t position = 0, compared = 0;
  std::vector<SlowModel::Vector> x, q, k, v;  // by layer
};

TEST(Observer, IsShownInputsQueriesKeysAndValues) {
  for (const bool qk_norm : {false, true}) {
    Bench bench(tiny_model(qk_norm, 3));
    const std::vector<std::int32_t> prompt = random_prompt(60, 8);
    Compare compare;
    compare.position = 40;
    SlowModel slow(bench.model);
    for (std::uint32_t t = 0; t <= compare.position; ++t) {
      slow.step(prompt[t], {}, [&](std::uint32_t, const auto& x, const auto& q, const auto& keys, const auto& values) {
        if (t != compare.position) return;
        compare.x.push_back(x);
        compare.q.push_back(q);
        const auto newest = [](const std::vector<std::vector<SlowModel::Vector>>& heads) {
          SlowModel::Vector all;
          for (const auto& head : heads) all.insert(all.end(), head.back().begin(), head.back().end());
          return all;
        };
        compare.k.push_back(newest(keys));
        compare.v.push_back(newest(values));
      });
    }
    bench.engine.observe(&compare);
    bench.engine.release(*bench.engine.prefill(prompt));
    EXPECT_EQ(compare.compared, 3u);
  }
}

}  // namespace
}  // namespace tandem::testing
