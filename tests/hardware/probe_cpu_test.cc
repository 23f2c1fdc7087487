#include <algorithm>
#include <atomic>
#include <cmath>
#include <gtest/gtest.h>
#include <random>
#include <set>

#include "engine/common/cgroup.h"
#include "hardware/probe/cpu_kernels.h"
#include "hardware/probe/cpu_sections.h"
#include "hardware/probe/machine.h"
#include "hardware/probe/thread_team.h"

namespace tandem::probe {
namespace {

TEST(ProbeCpuKernels, SumsOfEveryLength) {
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> words(300);
  for (auto& word : words) word = random();
  for (const Isa isa : available_isas()) {
    for (std::size_t offset = 0; offset < 3; ++offset) {
      std::uint64_t expected = 0;
      for (std::size_t count = 0; offset + count < words.size(); ++count) {
        EXPECT_EQ(sum_words(isa, words.data() + offset, count), expected) << to_string(isa) << " " << count;
        expected += words[offset + count];
      }
    }
  }
}

class ProbeAttention : public ::testing::TestWithParam<int> {};

TEST_P(ProbeAttention, EqualsThePlainVersion) {
  const int page_tokens = GetParam();
  constexpr std::uint32_t kPages = 12;
  std::mt19937 random(2);
  const auto bf16 = [&] { return static_cast<std::uint16_t>(0x3F00u | (random() & 0x80FFu)); };
  std::vector<std::uint16_t> k(kPages * static_cast<std::size_t>(page_tokens) * kHeadDim), v(k.size());
  for (auto& bits : k) bits = bf16();
  for (auto& bits : v) bits = bf16();
  std::vector<float> q(kGroup * kHeadDim);
  for (float& value : q) value = bf16_to_float(bf16());
  const KvPool pool{k.data(), v.data(), page_tokens};
  for (const std::vector<std::uint32_t>& pages :
       {std::vector<std::uint32_t>{}, {11}, {3, 0, 7, 7, 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}}) {
    std::vector<double> expected(q.size());
    attend_pages_reference(pool, pages, q.data(), expected.data());
    const double scale = 1e-6 + std::abs(*std::max_element(expected.begin(), expected.end(), [](double a, double b) {
                           return std::abs(a) < std::abs(b);
                         }));
    for (const Isa isa : available_isas()) {
      for (const bool prefetch : {false, true}) {
        std::vector<float> out(q.size());
        attend_pages(isa, pool, pages, q.data(), out.data(), prefetch);
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_NEAR(out[i], expected[i], 1e-4 * scale) << to_string(isa) << " element " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(PageSizes, ProbeAttention, ::testing::Values(4, 16, 32, 64));

TEST(ProbeThreads, CountsAscendFromOneToAll) {
  for (const bool quick : {false, true}) {
    for (int most = 1; most <= 200; ++most) {
      const std::vector<int> counts = thread_counts(most, quick);
      EXPECT_EQ(counts.front(), 1);
      EXPECT_EQ(counts.back(), most);
      EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end()));
      EXPECT_EQ(std::set<int>(counts.begin(), counts.end()).size(), counts.size());
    }
  }
  EXPECT_EQ(thread_counts(16, false), (std::vector<int>{1, 2, 3, 4, 6, 8, 12, 16}));
}

TEST(ProbeThreads, TeamRunsEveryThreadOnceEachTime) {
  for (const int size : {1, 2, 5}) {
    ThreadTeam team(size);
    for (int round = 1; round <= 20; ++round) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(size));
      const double seconds = team.run([&](int thread) { ++calls[static_cast<std::size_t>(thread)]; });
      EXPECT_GE(seconds, 0);
      for (const auto& count : calls) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ProbeThreads, TeamTimesTheSlowestThread) {
  ThreadTeam team(2);
  const double seconds = team.run([](int thread) {
    const auto start = Clock::now();
    while (seconds_since(start) < (thread == 0 ? 0.02 : 0.001)) {
    }
  });
  EXPECT_GE(seconds, 0.02);
}

TEST(ProbeMachine, ReadsThisMachine) {
  EXPECT_GE(allowed_cpus().size(), 1u);
  EXPECT_GE(usable_threads(), 1);
  EXPECT_LE(usable_threads(), static_cast<int>(allowed_cpus().size()));
  EXPECT_LT(usable_threads(), cgroup_cpus() + 1) << "the quota that the engine keeps to";
  EXPECT_LE(available_memory(), cgroup_memory().limit);
  EXPECT_GT(available_memory(), std::size_t{1} << 20);
}

}  // namespace
}  // namespace tandem::probe
