// What a run of cases leaves where one of them fails, or where the run is ended.
#include "eval/kernels/bench.h"

#include <algorithm>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/paths.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void nothing() {}

KernelCase case_of(const char* shape, double expected, std::function<void()> run = nothing) {
  KernelCase one;
  one.kernel = "kernel";
  one.shape = shape;
  one.bytes = 1;
  one.bound = Bound::f32;  // whose limit is measured sooner than memory's
  one.set_up = [expected, run = std::move(run)](CaseMemory&, PreparedCase& prepared) {
    prepared = {run, [] { return std::vector<float>{1}; }, [expected] { return std::vector{expected}; }};
  };
  return one;
}

[[noreturn]] void refuse() {
  throw RunError("The launch was refused.");
}

KernelBenchOptions quick() {
  KernelBenchOptions options;
  options.threads = 1;
  options.rounds = 1;
  options.round_seconds = 0;
  return options;
}

TEST(KernelBenches, ACaseThatFailsLosesOnlyItself) {
  const std::vector<KernelCase> cases = {case_of("a", 1), case_of("b", 1, refuse), case_of("c", 1)};
  std::vector<std::string> so_far;
  const KernelBench bench =
      measure_kernels(cases, quick(), [&](const KernelBench& one) { so_far.push_back(kernel_bench_json(one)); });
  ASSERT_EQ(bench.rows.size(), 3u);
  EXPECT_EQ(bench.rows[1].error, "The launch was refused.");
  EXPECT_THAT(kernel_bench_text(bench), HasSubstr("not measured: The launch was refused."));
  EXPECT_THAT(kernel_bench_text(bench), Not(HasSubstr("Unfinished")));
  ASSERT_EQ(so_far.size(), 3u);
  EXPECT_EQ(parse_json(so_far[0], "JSON").at("unfinished"), "1 of 3 cases");
  const Json all = parse_json(so_far[2], "JSON");
  EXPECT_FALSE(all.contains("unfinished"));
  EXPECT_EQ(all.at("kernels")[1].at("error"), "The launch was refused.");
  EXPECT_FALSE(all.at("kernels")[1].contains("us"));
  EXPECT_EQ(all.at("kernels")[2].at("shape"), "c");
  EXPECT_TRUE(all.at("kernels")[2].contains("us"));
}

// Every later case would fail, too, and no error of theirs would say which kernel it was.
TEST(KernelBenches, ACaseThatCostsTheDeviceIsTheLast) {
  if (cuda_missing().empty()) GTEST_SKIP() << "There is a GPU, and it goes on answering.";
  const std::vector<KernelCase> cases = {case_of("a", 1), case_of("b", 1, [] { throw CudaError("It was lost."); }),
                                         case_of("c", 1)};
  const auto says = HasSubstr("After kernel (b) the device answers no more: ");
  const KernelBench bench = measure_kernels(cases, quick(), {});
  ASSERT_EQ(bench.rows.size(), 2u);
  EXPECT_EQ(bench.rows[0].error, "");
  EXPECT_EQ(bench.rows[1].error, "It was lost.");
  EXPECT_THAT(bench.stopped, says);
  EXPECT_THAT(kernel_bench_text(bench), AllOf(says, HasSubstr("Unfinished: 2 of 3 cases.")));
  EXPECT_THAT(parse_json(kernel_bench_json(bench), "JSON").at("stopped").get<std::string>(), says);
  KernelBenchOptions options = quick();
  options.threads = 3;  // all would be run before the first is compared
  const KernelChecks checks = check_kernels(cases, options, {});
  ASSERT_EQ(checks.rows.size(), 2u) << "the first is compared all the same";
  EXPECT_EQ(checks.rows[0].error + checks.rows[0].wrong, "");
  EXPECT_EQ(checks.rows[1].error, "It was lost.");
  EXPECT_THAT(kernel_check_text(checks), says);
}

TEST(KernelBenches, AnErrorThatTheDeviceSurvivesCostsACase) {
  if (!cuda_missing().empty()) GTEST_SKIP() << cuda_missing();
  const std::vector<KernelCase> cases = {case_of("a", 1, [] { throw CudaError("No room."); }), case_of("b", 1)};
  EXPECT_EQ(measure_kernels(cases, quick(), {}).rows.size(), 2u);
  EXPECT_EQ(check_kernels(cases, quick(), {}).stopped, "");
}

TEST(KernelBenches, AnInterruptKeepsWhatIsFinished) {
  bool ends = false;
  KernelBenchOptions options = quick();
  options.interrupted = [&] { return ends; };
  const std::vector<KernelCase> cases = {case_of("a", 1), case_of("b", 1)};
  const KernelBench bench = measure_kernels(cases, options, [&](const KernelBench&) { ends = true; });
  ASSERT_EQ(bench.rows.size(), 1u);
  EXPECT_THAT(kernel_bench_text(bench), HasSubstr("Unfinished: 1 of 2 cases."));
  ends = false;
  const KernelChecks checks = check_kernels(cases, options, [&](const KernelChecks&) { ends = true; });
  ASSERT_EQ(checks.rows.size(), 1u);
  EXPECT_THAT(kernel_check_text(checks), HasSubstr("Unfinished: 1 of 2 cases."));
}

TEST(KernelBenches, ACheckThatFailsIsNeitherRightNorWrong) {
  const std::vector<KernelCase> cases = {case_of("a", 1), case_of("b", 1, refuse), case_of("c", 2)};
  KernelBenchOptions options = quick();
  options.threads = 3;
  std::size_t calls = 0;
  const KernelChecks checks =
      check_kernels(cases, options, [&](const KernelChecks& one) { EXPECT_EQ(one.rows.size(), ++calls); });
  ASSERT_EQ(checks.rows.size(), 3u);
  const Json json = parse_json(kernel_check_json(checks), "JSON").at("kernels");
  EXPECT_EQ(json[0], (Json{{"kernel", "kernel"}, {"shape", "a"}, {"wrong", ""}}));
  EXPECT_EQ(json[1], (Json{{"kernel", "kernel"}, {"shape", "b"}, {"error", "The launch was refused."}}));
  EXPECT_THAT(json[2].at("wrong").get<std::string>(), HasSubstr("1 of 1 numbers are wrong"));
  EXPECT_THAT(kernel_check_text(checks), HasSubstr("not checked: The launch was refused."));
}

TEST(KernelBenches, ATimeWithoutAShareSaysWhy) {
  KernelBench bench;
  bench.cases = 1;
  KernelTime& time = bench.rows.emplace_back();
  time.kernel = "linear";
  time.median_us = 3;
  time.no_share = "There is no cuBLASLt.";
  EXPECT_THAT(kernel_bench_text(bench), HasSubstr("+: no share: There is no cuBLASLt.\n"));
  const Json row = parse_json(kernel_bench_json(bench), "JSON").at("kernels")[0];
  EXPECT_EQ(row.at("us"), 3);
  EXPECT_EQ(row.at("no_share"), "There is no cuBLASLt.");
  EXPECT_FALSE(row.contains("share"));
}

// The footer lists them by hand: a name there that no case has, or a kernel that is left out, would be read as a fact.
TEST(KernelBenches, TheFooterNamesTheKernelsThatCrossTheLink) {
  KernelBench bench;
  bench.target = KernelTarget::cuda;
  const std::string text = kernel_bench_text(bench), before = "for what crosses the\nlink (";
  const std::size_t begin = text.find(before);
  ASSERT_NE(begin, std::string::npos) << text;
  std::istringstream list(text.substr(begin + before.size(), text.find(')', begin) - begin - before.size()));
  std::set<std::string> named, crossing;
  for (std::string name; std::getline(list >> std::ws, name, ',');) named.insert(name);
  for (const KernelCase& one : kernel_cases(CaseSize::bench))
    if (one.link != Link::none) crossing.insert(one.kernel);
  EXPECT_EQ(named, crossing);
}

TEST(KernelBenches, WithoutMemoryThereIsASentence) {
  const std::vector<KernelCase> cases = {case_of("a", 1, [] { throw std::bad_alloc(); })};
  EXPECT_EQ(measure_kernels(cases, quick(), {}).rows[0].error, "There is not enough memory for it.");
  EXPECT_EQ(check_kernels(cases, quick(), {}).rows[0].error, "There is not enough memory for it.");
}

// A wrong name would show only on a GPU, whose time costs.
TEST(KernelBenches, TheCasesThatTheGpuScriptNamesAreThere) {
  std::ifstream script(source_folder() / "scripts/kernels_on_gpu.sh");
  if (!script) GTEST_SKIP() << "The sources are gone.";
  const std::vector<KernelCase> cases = kernel_cases(CaseSize::bench);
  std::size_t named = 0;
  const auto expect_there = [&](const std::string& name) {
    EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [&](const KernelCase& one) {
      return one.kernel + ":" + one.shape == name &&
             std::find(one.targets.begin(), one.targets.end(), KernelTarget::cuda) != one.targets.end();
    })) << name;
    ++named;
  };
  const std::string before = "--case '";
  bool inside = false;
  for (std::string line; std::getline(script, line);) {
    if (line == "CASES") inside = false;
    if (inside) expect_there(line);
    inside = inside || line.find("<<'CASES'") != std::string::npos;
    for (std::size_t at = 0; (at = line.find(before, at)) != std::string::npos;) {
      at += before.size();
      expect_there(line.substr(at, line.find('\'', at) - at));
    }
  }
  EXPECT_EQ(named, 14u + 3 + 2);
}

TEST(KernelBenches, NamedCasesComeInTheirOrder) {
  KernelBenchOptions options;
  const auto names = [&] {
    std::vector<std::string> all;
    for (const KernelCase& one : bench_cases(options)) all.push_back(one.kernel + ":" + one.shape);
    return all;
  };
  // The second is the beginning of another shape's name, and means itself.
  options.cases = {"top_k:256 rows", "linear:n 8, 14336 to 4096, bf16, result f32"};
  EXPECT_EQ(names(), (std::vector<std::string>{"top_k:256 rows, 64 of 2048", options.cases[1]}));
  options.cases = {"linear:n 1,"};
  EXPECT_EQ(names().size(), 3u);
  options.cases = {"top_k:n 77"};
  EXPECT_THROW(names(), InputError);
  options.cases = {"top_k"};
  EXPECT_THROW(names(), InputError);
  options.cases = {"top_k:256 rows"};
  options.kernel = "top_k";
  EXPECT_THROW(names(), InputError);
}

}  // namespace
}  // namespace tandem::eval
