// Every kernel's small cases against their float64 oracles: the CPU twins with each instruction set, and the CUDA
// twins, which are real ones, absent ones or emulated ones by what this program is linked with.
#include "eval/kernels/case.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <ostream>

#include "engine/kernels/isa.h"

namespace tandem::eval {
namespace {

#ifdef TANDEM_ONLY_CUDA_CASES
constexpr bool kWithCpu = false;
#else
constexpr bool kWithCpu = true;
#endif

const int kPoisonedMemory = setenv("TANDEM_POISON", "1", 0);  // cuda/runtime.h; the environment may say otherwise

const std::vector<KernelCase>& cases() {
  static const std::vector<KernelCase> all = kernel_cases(CaseSize::test);
  return all;
}

/// What this program checks: a case on a target that has the kernel.
struct Check {
  std::size_t index;
  KernelTarget target;
};

void PrintTo(const Check& check, std::ostream* out) {
  const KernelCase& one = cases()[check.index];
  *out << to_string(check.target) << ' ' << one.kernel << ' ' << one.shape;
}

std::vector<Check> checks() {
  std::vector<Check> all;
  for (std::size_t i = 0; i < cases().size(); ++i)
    for (const KernelTarget target : cases()[i].targets)
      if (target == KernelTarget::cuda || kWithCpu) all.push_back({i, target});
  return all;
}

std::string readable(const ::testing::TestParamInfo<Check>& info) {
  const KernelCase& one = cases()[info.param.index];
  std::string name;
  for (const char c : to_string(info.param.target) + ("_" + one.kernel) + "_" + one.shape)
    name += std::isalnum(static_cast<unsigned char>(c)) ? std::string(1, c) : name.back() == '_' ? "" : "_";
  return name;
}

void check(const KernelCase& one, KernelTarget target, unsigned threads) {
  ThreadPool pool(threads);
  CaseMemory memory(target, pool);
  const PreparedCase prepared = one.prepare(memory);
  prepared.run();
  memory.wait();
  EXPECT_EQ(wrong_result(one, prepared.result(), prepared.expected()), "");
}

class KernelCaseTest : public ::testing::TestWithParam<Check> {};
#ifdef TANDEM_ONLY_CUDA_CASES
INSTANTIATE_TEST_SUITE_P(EmulatedKernels, KernelCaseTest, ::testing::ValuesIn(checks()), readable);
#else
INSTANTIATE_TEST_SUITE_P(Kernels, KernelCaseTest, ::testing::ValuesIn(checks()), readable);
#endif

TEST_P(KernelCaseTest, AgreesWithItsOracle) {
  const KernelCase& one = cases()[GetParam().index];
  if (GetParam().target == KernelTarget::cuda) {
    if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
    check(one, KernelTarget::cuda, 1);
    return;
  }
  for (const Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    SCOPED_TRACE(to_string(isa));
    const ScopedIsa scope(isa);
    for (const unsigned threads : {1u, 3u})
      if (threads == 1 || one.threaded) check(one, KernelTarget::cpu, threads);
  }
}

TEST(KernelCases, MemoryOfTheDeviceBeginsAsNan) {
  if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  if (std::string(std::getenv("TANDEM_POISON")) != "1") GTEST_SKIP() << "TANDEM_POISON is not 1.";
  ThreadPool pool(1);
  CaseMemory memory(KernelTarget::cuda, pool);
  for (const float value : memory.read(memory.output<float>(1000), 1000)) ASSERT_TRUE(std::isnan(value));
}

TEST(KernelCases, NamesAreUnique) {
  for (const CaseSize size : {CaseSize::test, CaseSize::bench}) {
    std::vector<std::string> names;
    for (const KernelCase& each : kernel_cases(size)) names.push_back(each.kernel + " " + each.shape);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    EXPECT_EQ(twice, names.end()) << *twice;
  }
}

TEST(KernelCases, EveryMeasuredKernelIsCheckedAndSaysWhatItMoves) {
  for (const KernelCase& measured : kernel_cases(CaseSize::bench)) {
    EXPECT_GT(measured.bytes, 0) << measured.kernel;
    EXPECT_TRUE(std::any_of(cases().begin(), cases().end(), [&](const KernelCase& checked) {
      return checked.kernel == measured.kernel;
    })) << measured.kernel;
  }
}

// What changes its own input must find as much to do the next time, or a bench measures something else.
TEST(KernelCases, EveryRunHasAsMuchToDo) {
  ThreadPool pool(1);
  const auto prepared = [&](const char* kernel, CaseMemory& memory) {
    for (const KernelCase& one : kernel_cases(CaseSize::bench))
      if (one.kernel == kernel) return one.prepare(memory);
    return PreparedCase{};
  };
  CaseMemory memory(KernelTarget::cpu, pool);
  const PreparedCase swap = prepared("swap_residents", memory);
  swap.run();
  const std::vector<float> first = swap.result();
  for (int run = 0; run < 3; ++run) {
    swap.run();
    EXPECT_EQ(swap.result().size(), first.size()) << "as many moves of every list";
  }
  const PreparedCase update = prepared("update_heavy_alike", memory);
  for (int run = 0; run < 3100; ++run) update.run();  // more often than there are tokens outside the window
}

TEST(KernelCases, LargeResultsAreSampledAtTheirEndsAndBetween) {
  EXPECT_EQ(sampled(5, 3, 100), (std::vector<std::size_t>{0, 1, 2, 3, 4})) << "small ones whole";
  EXPECT_EQ(sampled(20, 2, 7), (std::vector<std::size_t>{0, 1, 7, 14, 18, 19}));
  const std::vector<float> rows = {0, 1, 10, 11, 20, 21};
  EXPECT_EQ(rows_of(rows, std::vector<std::size_t>{0, 2}, 2), (std::vector<float>{0, 1, 20, 21}));
}

// Sixteen products at a time are added to a sum in f32, and what that cannot hold is cut off: as tensor cores do it.
TEST(KernelCases, ADeepProductMayErrAsTensorCoresDo) {
  constexpr std::size_t kIn = 14336, kOutputs = 300;
  const auto x = case_normals(kIn, 21, 0.5f), w = case_normals(kIn * kOutputs, 22, 0.2f);
  std::vector<float> sums;
  std::vector<double> exact;
  for (std::size_t out = 0; out < kOutputs; ++out) {
    float sum = 0;
    double all = 0;
    for (std::size_t i = 0; i < kIn; i += 16) {
      double some = 0;
      for (std::size_t j = i; j < i + 16; ++j) some += double{x[j]} * double{w[out * kIn + j]};
      all += some;
      const double both = double{sum} + some;
      sum = static_cast<float>(both);
      if (std::fabs(double{sum}) > std::fabs(both)) sum = std::nextafter(sum, 0.0f);
    }
    sums.push_back(sum);
    exact.push_back(all);
  }
  std::size_t deep = 0;
  for (const KernelCase& one : kernel_cases(CaseSize::bench)) {
    if (one.shape.find("14336 to 4096, bf16, result f32") == std::string::npos) continue;
    EXPECT_EQ(wrong_result(one, sums, exact), "") << one.shape;
    ++deep;
  }
  EXPECT_GT(deep, 0u);
}

TEST(KernelCases, WrongResultsAreFound) {
  KernelCase one;
  one.tolerance = 1e-3;
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  const std::vector<double> expected = {1, 1000, double{nan}, -double{infinity}};
  EXPECT_EQ(wrong_result(one, std::vector<float>{1.0005f, 1000.5f, nan, -infinity}, expected), "");
  EXPECT_EQ(wrong_result(one, std::vector<float>{1}, expected), "There are 1 numbers instead of 4.");
  for (const std::vector<float>& wrong :
       {std::vector<float>{1.002f, 1000, nan, -infinity}, std::vector<float>{nan, 1000, nan, -infinity},
        std::vector<float>{1, 1002, nan, -infinity}, std::vector<float>{1, 1000, 0, -infinity},
        std::vector<float>{1, 1000, nan, infinity}})
    EXPECT_NE(wrong_result(one, wrong, expected), "");
}

}  // namespace
}  // namespace tandem::eval
