// What the cases of predictions leave out: queries that are zero or all the same, nothing chosen, and bits of a row
// that do not depend on its batch; the CUDA twins against the CPU.
#include <algorithm>
#include <cmath>
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

/// A network in device memory.
struct Network {
  Network(Random& random, std::uint32_t inputs, std::uint32_t hidden) : inputs_(inputs) {
    for (const auto& [in, out] : {std::pair{inputs, hidden}, {hidden, kHeadOutputs}})
      layers_.push_back({place(random, std::size_t{in} * out), place(random, out), in, out});
    device_layers_ = OnDevice<NetworkLayer>(layers_);
    description = {place(random, inputs),   place(random, inputs), device_layers_.data(), 2, inputs,
                   std::max(inputs, hidden)};
  }
  /// Of the first n rows of features behind `first`.
  std::vector<float> said(const OnDevice<float>& features, std::uint32_t first, std::uint32_t n) const {
    const OnDevice<float> out(std::size_t{n} * kHeadOutputs);
    predict_heads_cuda(description, features.data() + std::size_t{first} * inputs_, n, out.data(), {});
    return out.values();
  }
  HeadNetwork description;

 private:
  const float* place(Random& random, std::size_t count) {
    held_.emplace_back(random.normals(count, 0.3f));
    return held_.back().data();
  }
  std::uint32_t inputs_;
  std::vector<NetworkLayer> layers_;
  std::vector<OnDevice<float>> held_;
  OnDevice<NetworkLayer> device_layers_;
};

TEST_F(PredictionCudaTest, AHeadsPropertiesDoNotDependOnTheBatch) {
  Random random(2);
  // Enough rows for the larger blocks. 384 and 1536 are the widths whose activations alone fill 48 KiB of shared
  // memory: of 16 rows and of four.
  const std::uint32_t n = cuda_device().multiprocessors * 8 + 38;
  const struct { std::uint32_t inputs, hidden; } cases[] = {{41, 37}, {9, 384}, {3, 1536}};
  for (const auto& c : cases) {
    const Network network(random, c.inputs, c.hidden);
    const OnDevice<float> features(random.normals(std::size_t{n} * c.inputs));
    const auto together = network.said(features, 0, n);
    for (const std::uint32_t row : {0u, n / 3, n - 1}) {
      const auto first = together.begin() + row * kHeadOutputs;
      EXPECT_TRUE(same_bits(network.said(features, row, 1), {first, first + kHeadOutputs})) << c.hidden << " " << row;
    }
  }
}

TEST_F(PredictionCudaTest, ANetworkThatDoesNotFitIsRefused) {
  Random random(4);
  Network network(random, 4, 4);
  network.description.widest = 1u << 20;
  EXPECT_THROW(network.said(OnDevice<float>(random.normals(4)), 0, 1), InputError);
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
  list_units_cuda(fetch.data(), 1, 1, 16, 1, {pieces.data(), pieces.data(), listed.data(), 2}, {});
  EXPECT_EQ(listed.values(), Words{0});
  EXPECT_EQ(pieces.values(), (Words{7, 7}));
}

/// Ten tokens of one KV head with two query heads, (1, 0 ...) and (1, 1, 0 ...): token t's key is (t, 0 ...), but for
/// token 3, whose scores are NaN and infinity, and token 7, whose scores are NaN.
struct NanPage {
  explicit NanPage(std::uint32_t dim, DType type = DType::f32) : shape{2, dim, type}, q(2 * dim) {
    q[0] = q[dim] = q[dim + 1] = 1;
    std::vector<float> values(32 * dim);
    for (std::uint32_t t = 0; t < 16; ++t) values[t * dim] = static_cast<float>(t);
    for (std::uint32_t i = 0; i < 16 * dim; ++i) values[16 * dim + i] = static_cast<float>(i % 200);
    values[3 * dim + 1] = std::numeric_limits<float>::infinity();
    values[7 * dim] = std::nanf("");
    page.resize(values.size() * size_of(type));
    from_f32(values.data(), type, values.size(), page.data());
  }
  std::vector<KvSpan> spans() const { return {{page.data(), page.data() + page.size() / 2, 10, ~0u}}; }
  AttentionShape shape;
  std::vector<char> page;
  std::vector<float> q;
};

TEST_F(PredictionCudaTest, NanIsTheLargestScoreOnEachDevice) {
  for (const NanPage& tokens : {NanPage(5), NanPage(8), NanPage(64, DType::bf16)}) {
    const AttentionShape& shape = tokens.shape;
    const OnDevice<char> page(tokens.page);
    const OnDevice<float> q(tokens.q), scores(2 * 16);
    const OnDevice<PageEntry> entry(std::vector<PageEntry>{{0, 0, 10, ~0u}});
    const OnDevice<std::uint32_t> count(Words{1});
    for (const Words& expected : {Words{3}, {3, 7}, {3, 7, 9}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}}) {
      const auto keep = static_cast<std::uint32_t>(expected.size());
      Words on_cpu(keep);
      choose_tokens(tokens.q.data(), tokens.spans(), shape, keep, on_cpu.data());
      EXPECT_EQ(on_cpu, expected) << shape.dim;
      const OnDevice<std::uint32_t> chosen(1 + keep);
      const OnDevice<TokenChoiceRow> choice(std::vector<TokenChoiceRow>{{10, keep, chosen.data(), keep}});
      choose_tokens_cuda(q.data(), choice.data(), 1, 2, {page.data(), shape.kv, 1, shape.dim},
                         {entry.data(), count.data(), 1, false}, scores.data(), {});
      const Words on_device = chosen.values();
      EXPECT_EQ(on_device[0], keep);
      EXPECT_EQ(Words(on_device.begin() + 1, on_device.end()), expected) << shape.dim;
    }
  }
}

TEST(SelectAhead, TakesAllWhereThereAreFewerThanToKeep) {
  constexpr std::uint32_t kDim = 8;
  const NanPage tokens(kDim);
  PredictionRule rule;
  rule.window = 1;
  std::vector<float> window;  // of each head, its query twice
  for (std::uint32_t i = 0; i < 4 * kDim; ++i) window.push_back(tokens.q[i / (2 * kDim) * kDim + i % kDim]);
  const std::size_t bytes = 10 * kDim * sizeof(float);
  std::vector<char> k(2 * bytes, 'x'), v(k);
  select_ahead(rule, RopeTable(kDim, 1e4), {window.data(), 2, 5}, tokens.spans(), tokens.shape, 20, k.data(), v.data());
  std::vector<char> expected_k(2 * bytes, 'x'), expected_v(expected_k);
  std::copy_n(tokens.page.begin(), bytes, expected_k.begin());
  std::copy_n(tokens.page.begin() + 16 * kDim * sizeof(float), bytes, expected_v.begin());
  EXPECT_EQ(k, expected_k);
  EXPECT_EQ(v, expected_v);
}

}  // namespace
}  // namespace tandem
