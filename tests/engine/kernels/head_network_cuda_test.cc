// The network that reads heads' features: bits of a row that do not depend on its batch, and what does not fit.
#include <algorithm>

#include "engine/common/error.h"
#include "engine/kernels/head_network.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

class HeadNetworkCudaTest : public CudaTest {};

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

TEST_F(HeadNetworkCudaTest, AHeadsPropertiesDoNotDependOnTheBatch) {
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

TEST_F(HeadNetworkCudaTest, ANetworkThatDoesNotFitIsRefused) {
  Random random(4);
  Network network(random, 4, 4);
  network.description.widest = 1u << 20;
  EXPECT_THROW(network.said(OnDevice<float>(random.normals(4)), 0, 1), InputError);
}

}  // namespace
}  // namespace tandem
