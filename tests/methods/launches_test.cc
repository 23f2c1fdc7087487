// What a decode step puts into the streams of an emulated GPU, by layer: small operations take less time than to put
// them there, so that each one counts. bench/launches_bench.cc has the numbers of every method.
#include <cctype>
#include <gtest/gtest.h>
#include <utility>

#include "engine/device/cuda_device.h"
#include "methods/registry.h"
#include "tests/engine/kernels/cuda_emulator/streams.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using cuda_emulator::Calls;

struct PerLayer {
  double kernels = 0, copies = 0, marks = 0, waits = 0;
};

/// Calls of a whole run.
Calls calls_of(const std::string& spec, std::uint32_t layers, std::uint32_t rows, std::uint32_t steps) {
  EngineOptions options;
  keep_what_methods_need(options, {&spec, 1}, tiny_model(true, layers));
  Bench bench(tiny_model(true, layers),
              make_cuda_device({.host_worker_threads = 2, .upload_bytes = std::size_t{1} << 20}), options);
  // No sequence reaches the end of a page.
  std::vector<std::vector<std::int32_t>> prompts;
  for (std::uint32_t row = 0; row < rows; ++row) prompts.push_back(random_prompt(20, row + 1));
  const auto method = make_method(spec);
  const Calls before = cuda_emulator::calls();
  bench.decode(*method, prompts, steps);
  const Calls after = cuda_emulator::calls();
  return {after.kernels - before.kernels, after.copies - before.copies, after.marks - before.marks,
          after.waits - before.waits};
}

/// What one more layer adds to what two more steps add: neither the prefill nor the first step nor the token's choice.
PerLayer per_layer(const std::string& spec, std::uint32_t rows) {
  constexpr std::uint32_t kFew = 2, kMany = 4, kLess = 2, kMore = 3;
  const Calls a = calls_of(spec, kLess, rows, kFew), b = calls_of(spec, kLess, rows, kMany),
              c = calls_of(spec, kMore, rows, kFew), d = calls_of(spec, kMore, rows, kMany);
  const auto difference = [&](std::uint64_t Calls::*what) {
    const auto more = static_cast<double>(d.*what) - static_cast<double>(c.*what);
    return (more - (static_cast<double>(b.*what) - static_cast<double>(a.*what))) / ((kMany - kFew) * (kMore - kLess));
  };
  return {difference(&Calls::kernels), difference(&Calls::copies), difference(&Calls::marks),
          difference(&Calls::waits)};
}

TEST(Launches, ALayerOfFullAttentionIsKernelsAlone) {
  const PerLayer full = per_layer("full", 2);
  // Norm, product, heads; pages, attention; product, norm, product, activation, product. Longer contexts take one more,
  // which merges their parts, and so do weights of other types than f32: what attention gives is rounded.
  EXPECT_EQ(full.kernels, 10);
  EXPECT_EQ(full.copies, 0);
  EXPECT_EQ(full.marks, 6);  // two around each of three operations
  EXPECT_EQ(full.waits, 0);
}

TEST(Launches, AHostThatAttendsWaitsForTheQueryAlone) {
  // Pages of each row came to the host by copies of their own, in the query's stream and before it.
  for (const std::uint32_t rows : {1u, 4u}) {
    const PerLayer host = per_layer("full-host", rows);
    EXPECT_EQ(host.marks, 13) << rows;  // two around each of six operations of the device, and the query's arrival
    EXPECT_EQ(host.waits, 3) << rows;   // of the query, for the host and for what the host gives
  }
}

class LaunchesOf : public ::testing::TestWithParam<const char*> {};

// What a simulated operation pays for launches, and the least that it takes in a graph, are those of the real one.
TEST_P(LaunchesOf, AreTheKernelsThatOperationsDeclare) {
  constexpr std::uint32_t kRows = 2;
  const std::string spec = GetParam();
  struct Launched {
    std::string name;
    std::uint32_t declared = 0;
    std::uint64_t kernels = 0;
  };
  std::vector<Launched> all;
  std::uint64_t before = cuda_emulator::calls().kernels;
  CudaOptions cuda;
  cuda.host_worker_threads = 2;
  cuda.upload_bytes = std::size_t{1} << 20;
  cuda.launched = [&](const Op& op) {
    const std::uint64_t now = cuda_emulator::calls().kernels;
    all.push_back({op.name, op.cost.kernels, now - std::exchange(before, now)});
  };
  EngineOptions options;
  keep_what_methods_need(options, {&spec, 1}, tiny_model_for(spec));
  Bench bench(tiny_model_for(spec), make_cuda_device(cuda), options);
  std::vector<std::vector<std::int32_t>> prompts;
  // Lists of more than four pages are cut. No sequence reaches the end of a page.
  for (std::uint32_t row = 0; row < kRows; ++row) prompts.push_back(random_prompt(66 + row, row));
  bench.decode(*make_method(spec), prompts, 4);
  int tables = 0;
  for (const Launched& op : all) {
    if (op.kernels == 0) {  // copies alone
      EXPECT_EQ(op.declared, 1u) << op.name;
    } else if (op.kernels == op.declared + kRows) {
      ++tables;  // the rows' page tables are filled by whoever is first to want them
    } else {
      EXPECT_EQ(op.kernels, op.declared) << op.name;
    }
  }
  EXPECT_LE(tables, 1);
}

INSTANTIATE_TEST_SUITE_P(Methods, LaunchesOf,
                         ::testing::Values("full", "full-offload", "full-host", "streaming:sinks=16,window=32",
                                           "quest:budget=64", "quest:budget=64,group_reduce=per_head", "tova:budget=24",
                                           "tova:budget=24,evict=yes", "h2o:budget=32",
                                           "hybrid-fixed:budget=0.3,block=32,sinks=16,window=32",
                                           "gpu-fetch:budget=0.3,sinks=0,window=16", "hgca:device_kv=48,block=16",
                                           "scoutattention:budget=48,block=16,sinks=0,recall=1,scope=kv_head",
                                           "infinigen:budget=32", "asyncspade:budget=24,window=2",
                                           "asyncspade:budget=24,place=host,pack=2,window=2,weights=alg1",
                                           "fluxion:bgt=0.3,sinks=0,window=1"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace tandem::testing
