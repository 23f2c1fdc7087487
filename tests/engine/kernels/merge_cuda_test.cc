// Merges of partial attention on the GPU or its emulation, also of parts in pinned memory.
#include <algorithm>
#include <cmath>

#include "engine/kernels/attention.h"
#include "tests/engine/kernels/paged_batch.h"

namespace tandem {
namespace {

class MergeCudaTest : public CudaTest {};

TEST_F(MergeCudaTest, AgreesWithTheCpu) {
  Random random(12);
  const struct {
    std::uint32_t parts, rows, dim;
  } cases[] = {{0, 2, 64}, {1, 3, 128}, {2, 4, 72}, {7, 3, 256}, {40, 2, 300}, {700, 1, 33}};
  for (const auto& c : cases) {
    std::vector<OnDevice<float>> o, lse;
    std::vector<std::vector<float>> host_o, host_lse;
    std::vector<const float*> o_at, lse_at, host_o_at, host_lse_at;
    for (std::uint32_t p = 0; p < c.parts; ++p) {
      host_o.push_back(random.normals(std::size_t{c.rows} * c.dim));
      host_lse.push_back(random.normals(c.rows, p % 3 == 0 ? 5 : 1e4f));
      for (std::uint32_t r = 0; r < c.rows; ++r) {
        if (r != 0 && random.below(4) != 0) continue;  // row 0 is empty in all
        host_lse.back()[r] = -kInfinity;
        std::fill_n(host_o.back().begin() + static_cast<std::ptrdiff_t>(std::size_t{r} * c.dim), c.dim, std::nanf(""));
      }
    }
    for (std::uint32_t p = 0; p < c.parts; ++p) {
      o.emplace_back(host_o[p]);
      lse.emplace_back(host_lse[p]);
      o_at.push_back(o.back().data());
      lse_at.push_back(lse.back().data());
      host_o_at.push_back(host_o[p].data());
      host_lse_at.push_back(host_lse[p].data());
    }
    const OnDevice<const float*> o_list(o_at), lse_list(lse_at);
    const OnDevice<float> out(std::size_t{c.rows} * c.dim), out_lse(c.rows);
    Attended oracle{std::vector<float>(std::size_t{c.rows} * c.dim), std::vector<float>(c.rows)};
    merge_partials(host_o_at.data(), host_lse_at.data(), c.parts, c.rows, c.dim, oracle.o.data(), oracle.lse.data());
    merge_partials_cuda(o_list.data(), lse_list.data(), c.parts, c.rows, c.dim, out.data(), out_lse.data(), {});
    expect_agrees({out.values(), out_lse.values()}, oracle, 1e-5);
    if (c.parts == 0) continue;
    float* const first = o[0].data();  // the output may be a part
    merge_partials_cuda(o_list.data(), lse_list.data(), c.parts, c.rows, c.dim, first, nullptr, {});
    expect_near(o[0].values(), oracle.o, 1e-5);
  }
}

TEST_F(MergeCudaTest, TheLastPartCountsWhereItsBitSays) {
  Random random(13);
  const std::uint32_t dim = 40, groups = 70, per_bit = 3, rows = groups * per_bit;
  const auto a = random.normals(rows * dim), a_lse = random.normals(rows), b_lse = random.normals(rows);
  auto b = random.normals(rows * dim);
  std::vector<std::uint32_t> bits((groups + 31) / 32);
  Attended oracle{std::vector<float>(rows * dim), std::vector<float>(rows)}, alone{b, b_lse};
  for (std::uint32_t row = 0; row < rows; ++row) {
    const std::uint32_t group = row / per_bit;
    const bool counts = group % 5 == 0 || group == 31 || group == 32;
    bits[group / 32] |= std::uint32_t{counts} << group % 32;
    const float *o[] = {&a[row * dim], &b[row * dim]}, *lse[] = {&a_lse[row], &b_lse[row]};
    merge_partials(o, lse, counts ? 2 : 1, 1, dim, &oracle.o[row * dim], &oracle.lse[row]);
    if (counts) continue;
    std::fill_n(&b[row * dim], dim, std::nanf(""));
    std::fill_n(&alone.o[row * dim], dim, 0.0f);
    alone.lse[row] = -kInfinity;
  }
  const OnDevice<float> a_at(a), b_at(b), a_lse_at(a_lse), b_lse_at(b_lse), out(rows * dim), out_lse(rows);
  const OnDevice<const float*> o_list({a_at.data(), b_at.data()}), lse_list({a_lse_at.data(), b_lse_at.data()});
  const LastPart last{LaunchArray<std::uint32_t>(std::span<const std::uint32_t>(bits)), per_bit};
  merge_partials_cuda(o_list.data(), lse_list.data(), 2, rows, dim, out.data(), out_lse.data(), {}, last);
  expect_agrees({out.values(), out_lse.values()}, oracle, 1e-5);
  // Of one part nothing is left where it does not count.
  merge_partials_cuda(o_list.data() + 1, lse_list.data() + 1, 1, rows, dim, out.data(), out_lse.data(), {}, last);
  expect_agrees({out.values(), out_lse.values()}, alone, 1e-5);
}

TEST_F(MergeCudaTest, EmptyIsTheIdentityBitForBit) {
  Random random(14);
  const std::uint32_t rows = 3, dim = 300;
  auto o = random.normals(rows * dim);
  const std::vector<float> odd = {-0.0f, 3e38f, kInfinity, 0.0f};
  std::copy(odd.begin(), odd.end(), o.begin());
  const std::vector<float> lse = {-87.3f, 12.5f, 0.1f};
  const OnDevice<float> some(o), some_lse(lse), none(std::vector<float>(rows * dim, std::nanf(""))),
      none_lse(std::vector<float>(rows, -kInfinity)), out(rows * dim), out_lse(rows);
  for (std::uint32_t parts = 1; parts <= 7; ++parts)
    for (std::uint32_t place = 0; place <= parts; ++place) {  // parts: nowhere
      std::vector<const float*> o_at(parts, none.data()), lse_at(parts, none_lse.data());
      if (place < parts) {
        o_at[place] = some.data();
        lse_at[place] = some_lse.data();
      }
      const OnDevice<const float*> o_list(o_at), lse_list(lse_at);
      merge_partials_cuda(o_list.data(), lse_list.data(), parts, rows, dim, out.data(), out_lse.data(), {});
      EXPECT_TRUE(same_bits(out.values(), place < parts ? o : std::vector<float>(rows * dim, 0.0f)));
      EXPECT_TRUE(same_bits(out_lse.values(), place < parts ? lse : std::vector<float>(rows, -kInfinity)));
    }
}

TEST_F(MergeCudaTest, PartsFarApartAndPinnedMemory) {
  const std::uint32_t dim = 128;
  PinnedMemory pinned((dim + 1) * sizeof(float));
  std::fill_n(pinned.as<float>(), dim, 2.0f);
  pinned.as<float>()[dim] = 1e30f;
  const OnDevice<float> o(std::vector<float>(dim, 1.0f)), lse(std::vector<float>{-1e30f});
  const OnDevice<const float*> o_list({o.data(), pinned.as<float>()}), lse_list({lse.data(), pinned.as<float>() + dim});
  const OnDevice<float> out(dim), out_lse(1);
  merge_partials_cuda(o_list.data(), lse_list.data(), 2, 1, dim, out.data(), out_lse.data(), {});
  EXPECT_EQ(out.values(), std::vector<float>(dim, 2.0f));
  EXPECT_EQ(out_lse.values()[0], 1e30f);
}

}  // namespace
}  // namespace tandem
