// Parting by drift beside cosines in double precision, and where no query came before, on the CPU and on the GPU or its
// emulation.
#include <cmath>
#include <limits>
#include <random>

#include "engine/mechanisms/query_drift/kernels/drift.h"
#include "tests/engine/kernels/cuda_test.h"

namespace tandem {
namespace {

using Words = std::vector<std::uint32_t>;

class DriftCudaTest : public CudaTest {};

double cosine(const std::vector<float>& a, const std::vector<float>& b, std::uint32_t group, std::uint32_t dim) {
  double mean = 0;
  for (std::uint32_t g = 0; g < group; ++g) {
    double ab = 0, aa = 0, bb = 0;
    for (std::size_t d = std::size_t{g} * dim; d < (std::size_t{g} + 1) * dim; ++d) {
      ab += double(a[d]) * double(b[d]);
      aa += double(a[d]) * double(a[d]);
      bb += double(b[d]) * double(b[d]);
    }
    mean += aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) / group : 0;
  }
  return mean;
}

/// Parts one head on both sides; returns whether it is urgent.
bool part(const std::vector<float>& query, const std::vector<float>& previous, std::uint32_t group, std::uint32_t dim,
          float least, bool first) {
  const Words missing = {3, 2, 5, 9}, room = {7, 7, 7, 7, 7};
  std::vector<float> before = previous;
  Words now = room, later = room;
  part_by_drift({query.data(), before.data(), missing.data(), now.data(), later.data(), least, first ? 1u : 0u}, group,
                dim);
  EXPECT_EQ(before, query);
  const bool urgent = now[0] == 3;
  EXPECT_EQ(urgent ? now : later, (Words{3, 2, 5, 9, 7}));
  EXPECT_EQ((urgent ? later : now)[0], 0u);
  const OnDevice<float> q(query), p(previous);
  const OnDevice<std::uint32_t> m(missing), n(room), l(room);
  const OnDevice<HeadDrift> head(
      std::vector<HeadDrift>{{q.data(), p.data(), m.data(), n.data(), l.data(), least, first ? 1u : 0u}});
  part_by_drift_cuda(head.data(), 1, group, dim, {});
  EXPECT_EQ(n.values(), now);
  EXPECT_EQ(l.values(), later);
  EXPECT_EQ(p.values(), query);
  return urgent;
}

TEST_F(DriftCudaTest, AHeadIsUrgentBelowTheLeastCosine) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (const auto& [group, dim] : {std::pair{1u, 64u}, std::pair{4u, 128u}, std::pair{3u, 200u}}) {
    std::vector<float> query(std::size_t{group} * dim), previous(query.size());
    for (float& x : query) x = normal(random);
    for (std::size_t i = 0; i < query.size(); ++i) previous[i] = query[i] + normal(random);
    const double mean = cosine(query, previous, group, dim);
    EXPECT_TRUE(part(query, previous, group, dim, static_cast<float>(mean + 1e-3), false));
    EXPECT_FALSE(part(query, previous, group, dim, static_cast<float>(mean - 1e-3), false));
  }
}

TEST_F(DriftCudaTest, WithoutAQueryBeforeOrWithABrokenOneAHeadIsUrgent) {
  const std::vector<float> query(128, 1);
  for (const float before :
       {0.0f, 1.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
    EXPECT_TRUE(part(query, std::vector<float>(128, before), 1, 128, 0.5f, true)) << before;
  EXPECT_TRUE(part(query, std::vector<float>(128, 0), 1, 128, 0.5f, false));
  EXPECT_TRUE(part(query, std::vector<float>(128, std::numeric_limits<float>::infinity()), 1, 128, 0.5f, false));
  EXPECT_FALSE(part(query, query, 1, 128, 0.5f, false));
}

}  // namespace
}  // namespace tandem
