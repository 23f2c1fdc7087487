// Decode attention on devices whose blocks have less shared memory than an A100's (sm_86, sm_89, sm_120: 99 KiB), and
// how launches ask for what a block has.
#include <algorithm>
#include <gmock/gmock.h>

#include "engine/kernels/cuda/launch.cuh"
#include "tests/engine/kernels/cuda_emulator/emulator.h"
#include "tests/engine/kernels/paged_batch.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

/// The emulated device's limit, for as long as this lives.
class SharedLimit {
 public:
  explicit SharedLimit(std::size_t bytes) { cuda_emulator::set_max_shared(bytes); }
  ~SharedLimit() { cuda_emulator::set_max_shared(cuda_emulator::kMaxShared); }
  SharedLimit(const SharedLimit&) = delete;
  SharedLimit& operator=(const SharedLimit&) = delete;
};

/// o, then lse, of 20 rows over 2 KV heads of 3 query heads each: more pieces of work than there are warps, the first
/// row's in two splits.
std::vector<float> attend(DType type, std::uint32_t dim) {
  constexpr std::uint32_t kRows = 20, kHeads = 2, kGroup = 3, kCapacity = 40;
  Random random(dim);
  const std::size_t heads = std::size_t{kRows} * kHeads * kGroup;
  std::vector<std::uint32_t> counts(kRows, 2);
  counts[0] = kCapacity;
  std::vector<PageEntry> list(std::size_t{kRows} * kCapacity);
  for (PageEntry& entry : list) entry = {random.below(kCapacity), 0, static_cast<std::uint16_t>(random.below(17)), ~0u};
  const auto values = random.normals(std::size_t{kCapacity} * kHeads * 32 * dim);
  std::vector<char> stored(values.size() * size_of(type));
  from_f32(values.data(), type, values.size(), stored.data());
  const AttentionPlan plan = plan_paged_attention(counts, kRows, kHeads, false);
  EXPECT_GT(plan.merges.size(), 0u);

  const OnDevice<char> pages(stored);
  const OnDevice<PageEntry> entries(list);
  const OnDevice<std::uint32_t> lengths(counts);
  Attended result = attend(plan, kRows, kGroup, OnDevice<float>(random.normals(heads * dim)),
                           {pages.data(), type, kHeads, dim}, {entries.data(), lengths.data(), kCapacity, false});
  result.o.insert(result.o.end(), result.lse.begin(), result.lse.end());
  return result.o;
}

TEST(SharedMemoryLimit, DecodeAttentionTakesFewerWarpsForTheSameBits) {
  for (const std::uint32_t dim : {64u, 96u, 128u, 256u}) {
    const auto whole = attend(DType::bf16, dim);
    EXPECT_TRUE(std::none_of(whole.begin(), whole.end(), [](float value) { return std::isnan(value); }));
    for (const std::size_t limit : {99u * 1024, 60u * 1024}) {
      const SharedLimit less(limit);
      EXPECT_TRUE(same_bits(attend(DType::bf16, dim), whole)) << "D " << dim << ", " << limit << " bytes";
    }
  }
}

TEST(SharedMemoryLimit, LessThanAWarpNeedsIsRefused) {
  const SharedLimit tiny(20 * 1024);
  EXPECT_THAT([] { attend(DType::f16, 64); }, ThrowsMessage<InputError>(HasSubstr("27648 bytes of shared memory")));
}

TEST(SharedMemoryLimit, AKernelAsksForMoreAndNeverForLess) {
  gpu::AskedShared asked;
  const int first = 0, second = 0;
  std::vector<std::size_t> asks;
  const auto launch = [&](const int& kernel, std::size_t bytes) {
    asked.at_least(&kernel, bytes, [&] { asks.push_back(bytes); });
  };
  for (const std::size_t bytes : {50u, 40u, 50u, 60u}) launch(first, bytes);
  launch(second, 40);
  EXPECT_EQ(asks, (std::vector<std::size_t>{50, 60, 40}));
  EXPECT_THROW(asked.at_least(&first, 70, [] { throw std::bad_alloc(); }), std::bad_alloc);
  launch(first, 70);
  EXPECT_EQ(asks.back(), 70u) << "what was refused is asked for again";
}

}  // namespace
}  // namespace tandem
