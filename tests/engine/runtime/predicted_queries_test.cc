// A query predicted one layer ahead, against the formula in double precision, and what the prediction costs.
#include <gtest/gtest.h>

#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

/// Predicts every next layer's queries while it attends to everything, and reads what came out.
class Predicting : public Method {
 public:
  explicit Predicting(bool own_norm) : full_(make_method("full")), own_norm_(own_norm) {}
  std::string spelled_out() const override { return "predicting"; }
  Needs needs(const ModelShape&) const override { return {}; }
  void before_layer(const LayerContext& context, Ops& ops) override {
    if (context.layer + 1 == context.shape.layers) return;
    const std::uint32_t layer = context.layer + 1;
    ops.predict_query(context, layer, own_norm_ ? context.layer : layer);
  }
  AttendPlan plan_attend(const LayerContext& context, Ops& ops) override { return full_->plan_attend(context, ops); }

 private:
  std::unique_ptr<Method> full_;
  bool own_norm_;
};

/// What the compute lane predicted, in the order of the operations.
class Predicted : public ForwardObserver {
 public:
  void qkv_done(const QkvRows&) override {}
  void query_predicted(const PredictedRows& rows) override {
    layers.push_back(rows.layer);
    values.emplace_back(rows.q, rows.q + rows.positions.size() * 64);
    positions.push_back(rows.positions[0]);
  }
  std::vector<std::uint32_t> layers, positions;
  std::vector<std::vector<float>> values;
};

Model with_query_bias(std::uint32_t layers) {
  Model model = tiny_model(false, layers);
  model.config.architecture = "qwen2";
  model.config.qkv_bias = true;
  model.weights = random_weights(model.config, DType::f32, 12);
  return model;
}

void expect_formula(Model model, bool own_norm) {
  Bench bench(std::move(model));
  Predicting method(own_norm);
  Predicted seen;
  const std::vector<std::int32_t> prompt = random_prompt(40, 8);
  const auto prefix = bench.engine.prefill(prompt);
  bench.engine.observe(&seen);
  const DecodeRequest request{prefix.get(), 3};
  const DecodeResult result = bench.engine.decode(method, {&request, 1});
  bench.engine.observe(nullptr);
  bench.engine.release(*prefix);
  SlowModel slow(bench.model);
  std::vector<SlowModel::Vector> expected;
  const std::uint32_t layers = bench.model.config.layers;
  for (std::size_t t = 0; t + 1 < prompt.size(); ++t) slow.step(prompt[t]);
  for (std::size_t n = 0; n < 3; ++n) {
    slow.step(n == 0 ? prompt.back() : result.sequences[0].tokens[n - 1], {},
              [&](std::uint32_t layer, const SlowModel::Vector& x, const auto&, const auto&, const auto&) {
                if (layer + 1 == layers) return;
                const std::uint32_t norm = own_norm ? layer : layer + 1;
                expected.push_back(slow.query(layer + 1, x, bench.model.weights.layers[norm].input_norm));
              });
  }
  ASSERT_EQ(seen.values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(seen.layers[i], 1 + i % (layers - 1));
    EXPECT_EQ(seen.positions[i], 39 + i / (layers - 1));
    ASSERT_EQ(seen.values[i].size(), expected[i].size());
    for (std::size_t d = 0; d < expected[i].size(); ++d) EXPECT_NEAR(seen.values[i][d], expected[i][d], 2e-5);
  }
}

TEST(PredictQuery, IsTheNextLayersProjectionOfThisLayersInput) {
  for (const bool own_norm : {false, true}) {
    expect_formula(tiny_model(true, 3), own_norm);
    expect_formula(tiny_model(false, 3), own_norm);
    expect_formula(with_query_bias(3), own_norm);
  }
}

TEST(PredictQuery, ReadsTheWeightsASecondTime) {
  Bench bench(tiny_model(true, 3));
  Predicting method(false);
  const DecodeResult result = bench.decode(method, {random_prompt(40, 8), random_prompt(20, 9)}, 2);
  std::size_t found = 0;
  for (const TraceRecord& r : result.trace.records) {
    if (std::string(r.name) != "predict query") continue;
    ++found;
    EXPECT_EQ(r.cost.hbm, (64 * 48 + 2 * (48 + 64)) * 4u);  // W_Q; x and q of two rows
    EXPECT_EQ(r.cost.flops, 2u * 2 * 64 * 48);
    EXPECT_EQ(r.cost.kernels, 3u);
  }
  EXPECT_EQ(found, 2u * 2);
}

}  // namespace
}  // namespace tandem::testing
