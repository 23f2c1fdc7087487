// What the cases of predictions leave out: queries that are zero or all the same, nothing chosen, and bits of a row
// that do not depend on its batch; the CUDA twins against the CPU.
#include <algorithm>
#include <limits>

#include "engine/common/error.h"
#include "engine/kernels/ahead_selection.h"
#include "engine/kernels/fetch_list.h"
#include "engine/kernels/head_network.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

class PredictionCudaTest : public CudaTest {};

TEST_F(PredictionCudaTest, DegenerateWindowsEqualTheCpus) {
  Random random(1);
  const std::uint32_t heads = 3, dim = 8, count = 6;
  for (const LagWeights weights : {LagWeights::ridge_softmax, LagWeights::eq2, LagWeights::alg1, LagWeights::raw}) {
    for (const bool all_windows : {true, false}) {
      PredictionRule rule;
      rule.weights = weights;
      rule.window = 5;
      rule.all_windows = all_windows;
      std::vector<float> window(heads * rule.room() *
                                dim);  // zeros; the same query; one that is orthogonal to the rest
      for (std::uint32_t i = 0; i < rule.room(); ++i) {
        window[(rule.room() + i) * dim + 1] = 3;
        window[(2 * rule.room() + i) * dim + i] = 2;
      }
      std::vector<float> expected(heads * dim);
      predict_next(rule, RopeTable(dim, 1e4), window.data(), heads, dim, count, 11, expected.data());
      const OnDevice<float> queries(window), out(heads * dim);
      const OnDevice<double> scratch(std::max<std::size_t>(prediction_scratch(rule, 1, heads), 1));
      const OnDevice<QueryWindow> list(std::vector<QueryWindow>{{queries.data(), count, 11, out.data()}});
      predict_next_cuda(rule, {}, list.data(), 1, heads, dim, scratch.data(), {});
      expect_near(out.values(), expected, 1e-6);
    }
  }
  PredictionRule wide;
  wide.window = kMaxWindow + 1;
  EXPECT_THROW(predict_next_cuda(wide, {}, nullptr, 1, 1, dim, nullptr, {}), LogicError);
  PredictionRule eq2;
  eq2.weights = LagWeights::eq2;
  EXPECT_THROW(predict_next_cuda(eq2, {}, nullptr, 1, 1, dim, nullptr, {}), LogicError);
}

TEST_F(PredictionCudaTest, AHeadsPropertiesDoNotDependOnTheBatch) {
  Random random(2);
  const std::uint32_t inputs = 41, hidden = 37, n = 70;  // enough for the larger blocks
  std::vector<NetworkLayer> layers;
  std::vector<OnDevice<float>> held;
  const auto place = [&](std::size_t count) {
    held.emplace_back(random.normals(count, 0.3f));
    return held.back().data();
  };
  for (const auto& [in, out] : {std::pair{inputs, hidden}, {hidden, kHeadOutputs}})
    layers.push_back({place(std::size_t{in} * out), place(out), in, out});
  const OnDevice<NetworkLayer> device_layers(layers);
  HeadNetwork network{place(inputs), place(inputs), device_layers.data(), 2, inputs, inputs};
  const auto features = random.normals(n * inputs);
  const OnDevice<float> all(features), together(n * kHeadOutputs), alone(kHeadOutputs);
  predict_heads_cuda(network, all.data(), n, together.data(), {});
  const auto said = together.values();
  for (std::uint32_t row = 0; row < n; row += 23) {
    predict_heads_cuda(network, all.data() + row * inputs, 1, alone.data(), {});
    const auto first = said.begin() + row * kHeadOutputs;
    EXPECT_TRUE(same_bits(alone.values(), {first, first + kHeadOutputs})) << row;
  }
  network.widest = 1u << 20;
  EXPECT_THROW(predict_heads_cuda(network, all.data(), 1, alone.data(), {}), InputError);
}

TEST_F(PredictionCudaTest, NothingIsChosenAndNothingFetched) {
  const std::uint32_t dim = 8;
  const OnDevice<float> page(std::vector<float>(32 * dim, 1)), q(std::vector<float>(dim, 1)), scores(16);
  const OnDevice<PageEntry> entry(std::vector<PageEntry>{{0, 0, 16, ~0u}});
  const OnDevice<std::uint32_t> count(Words{1}), slots(Words{0}), chosen(Words{9, 9}), pieces(Words{7, 7}), listed(1);
  const KvPages kv{page.data(), DType::f32, 1, dim};
  const OnDevice<TokenChoiceRow> choice(std::vector<TokenChoiceRow>{{16, 0, chosen.data(), 1}});
  choose_tokens_cuda(q.data(), choice.data(), 1, 1, kv, {entry.data(), count.data(), 1, false}, scores.data(), {});
  EXPECT_EQ(chosen.values(), (Words{0, 9}));
  const OnDevice<float> packed(std::vector<float>(2 * dim, 5));
  const OnDevice<TokenPack> pack(std::vector<TokenPack>{{chosen.data(), 1, slots.data(), packed.data()}});
  pack_tokens_cuda(pack.data(), 1, 1, kv, {});
  EXPECT_EQ(packed.values(), std::vector<float>(2 * dim, 5));
  const OnDevice<UnitFetch> fetch(std::vector<UnitFetch>{{chosen.data(), 1, slots.data(), 0}});
  list_units_cuda(fetch.data(), 1, 1, 16, {pieces.data(), pieces.data(), listed.data()}, {});
  EXPECT_EQ(listed.values(), Words{0});
  EXPECT_EQ(pieces.values(), (Words{7, 7}));
}

}  // namespace
}  // namespace tandem
