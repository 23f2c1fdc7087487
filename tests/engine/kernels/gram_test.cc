// Gram matrices against plain sums in the same order, which must have the same bits.
#include "engine/kernels/gram.h"

#include "tests/engine/kernels/kernel_test.h"

namespace tandem {
namespace {

class GramTest : public IsaTest {};
TANDEM_EACH_ISA(GramTest);

TEST_P(GramTest, IsTheSumRowAfterRow) {
  Random random(1);
  for (const std::uint32_t dim : {1u, 7u, 8u, 17u, 33u, 64u, 128u}) {
    for (const std::uint32_t rows : {0u, 1u, 31u, 32u, 33u, 100u}) {
      GramSums sums(dim);
      std::vector<double> expected(std::size_t{dim} * dim), gram(expected.size(), 9);
      for (std::uint32_t t = 0; t < rows; ++t) {
        const auto x = random.normals(dim);
        std::copy(x.begin(), x.end(), sums.next_row());
        for (std::uint32_t i = 0; i < dim; ++i) {
          for (std::uint32_t j = 0; j < dim; ++j) expected[i * dim + j] += double{x[i]} * double{x[j]};
        }
      }
      sums.finish(gram.data());
      EXPECT_EQ(gram, expected) << dim << " " << rows;
    }
  }
}

}  // namespace
}  // namespace tandem
