// Residents where nothing is resident or nothing is chosen, on the CPU and on the GPU or its emulation.
#include "engine/mechanisms/residency/kernels/residency.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

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

class ResidencyCudaTest : public CudaTest {};

TEST_F(ResidencyCudaTest, NothingResidentAndNothingChosen) {
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

}  // namespace
}  // namespace tandem
