// Choices of single tokens where nothing is chosen and where scores are NaN, on the CPU and on the GPU or its
// emulation.
#include "engine/kernels/fetch_list.h"
#include "engine/mechanisms/token_choice/kernels/token_choice.h"
#include "tests/engine/kernels/cuda_test.h"
#include "tests/engine/mechanisms/token_choice/kernels/nan_page.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

class TokenChoiceCudaTest : public CudaTest {};

TEST_F(TokenChoiceCudaTest, NothingIsChosenAndNothingFetched) {
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

TEST_F(TokenChoiceCudaTest, NanIsTheLargestScoreOnEachDevice) {
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

}  // namespace
}  // namespace tandem
