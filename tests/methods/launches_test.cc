// What a decode step puts into the streams of an emulated GPU, by layer: small operations take less time than to put
// them there, so that each one counts. bench/launches_bench.cc has the numbers of every method.
#include <cctype>
#include <gtest/gtest.h>
#include <string_view>
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

struct Case {
  const char* spec;
  DType weights = DType::f32;
  std::uint32_t prompt = 66, steps = 4;  // lists of more than four pages are cut
  std::uint32_t rows = 3, kv_heads = 2, head_dim = 16;
  bool one_prompt = false;  // of all rows
  std::size_t score_floats = EngineOptions{}.score_floats;
};

/// Every operation of a device lane, by what it said and did.
struct Launched {
  std::string name;
  Kind kind = Kind::compute;
  std::uint32_t declared = 0;
  std::uint64_t kernels = 0;
};

std::vector<Launched> launched_by(const Case& c) {
  std::vector<Launched> all;
  std::uint64_t before = cuda_emulator::calls().kernels;
  CudaOptions cuda;
  cuda.host_worker_threads = 2;
  cuda.upload_bytes = std::size_t{1} << 20;
  cuda.launched = [&](const Op& op) {
    const std::uint64_t now = cuda_emulator::calls().kernels;
    all.push_back({op.name, op.kind, op.cost.kernels, now - std::exchange(before, now)});
  };
  const std::string spec = c.spec;
  Model model = tiny_model_for(spec);
  model.config.kv_heads = c.kv_heads;
  model.config.q_heads = std::max(model.config.q_heads, c.kv_heads);
  model.config.head_dim = c.head_dim;
  model.weights = random_weights(model.config, c.weights, 11);
  EngineOptions options;
  options.score_floats = c.score_floats;
  keep_what_methods_need(options, {&spec, 1}, model);
  Bench bench(std::move(model), make_cuda_device(cuda), options);
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (std::uint32_t row = 0; row < c.rows; ++row) {
    if (row == 0 || !c.one_prompt) prefixes.push_back(bench.engine.prefill(random_prompt(c.prompt, row)));
    // The first row ends before the others.
    requests.push_back({prefixes.back().get(), row == 0 ? std::min(c.steps, 2u) : c.steps});
  }
  const auto method = make_method(spec);
  bench.engine.decode(*method, requests);
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  return all;
}

class LaunchesOf : public ::testing::TestWithParam<Case> {};

// What a simulated operation pays for launches, and the least that it takes in a graph, are those of the real one.
TEST_P(LaunchesOf, AreTheKernelsThatOperationsDeclare) {
  std::uint32_t steps = 0;
  for (const Launched& op : launched_by(GetParam())) {
    // New slots of page tables come before whoever is first to want them: a kernel for each sequence that has some. All
    // that these steps need are there after the first one.
    const bool tables = steps == 0 && (op.name == "device attention" || op.name == "choose tokens");
    if (op.kernels == 0) {
      EXPECT_EQ(op.declared, 1u) << op.name;
      // Heads that are fixed are copied to where others are estimated.
      EXPECT_TRUE(op.kind == Kind::copy || op.name == "estimate heads") << op.name << " launches nothing";
    } else if (tables && op.kernels > op.declared) {
      // A table that is written anew at once has what a device budget moved before, which is declared.
      const bool moves = std::string_view(GetParam().spec).find("device=") != std::string_view::npos;
      const std::uint32_t most = op.declared + GetParam().rows;
      EXPECT_TRUE(moves ? op.kernels <= most : op.kernels == most) << op.name << ": " << op.kernels << " of " << most;
    } else {
      EXPECT_EQ(op.kernels, op.declared) << op.name;
    }
    steps += op.name == "logits and arg max";
  }
  EXPECT_EQ(steps, GetParam().steps);
}

std::vector<Case> cases() {
  std::vector<Case> all = {{"full"},
                           {"full", DType::bf16},
                           {"full:device=0.5,block=16,window=1,look_ahead=0"},
                           {"full-offload"},
                           {"full-host"},
                           {"streaming:sinks=16,window=32"},
                           {"quest:budget=64"},
                           {"quest:budget=64,group_reduce=per_head"},
                           {"quest:budget=48,device=0.5"},
                           {"tova:budget=24"},
                           {"tova:budget=24,device=0.5,look_ahead=0"},
                           {"tova:budget=24,evict=yes"},
                           {"h2o:budget=32"},
                           {"hybrid-fixed:budget=0.3,block=32,sinks=16,window=32"},
                           {"gpu-fetch:budget=0.3,sinks=0,window=16"},
                           {"hgca:device_kv=48,block=16"},
                           {"scoutattention:budget=48,block=16,sinks=0,recall=1,scope=kv_head"},
                           {"scoutattention:budget=48,block=16,sinks=16,recall=2"},
                           {"freekv:budget=48,block=16,sinks=0,window=16,dense_layers=0"},
                           {"hisparse:budget=32,buffer=48"},
                           {"infinigen:budget=32"},
                           {"infinigen:budget=48,scope=layer"},
                           {"infinigen:budget=48,scope=query_head"},
                           {"asyncspade:budget=24,window=2"},
                           {"asyncspade:budget=24,place=host,pack=2,window=2,weights=alg1"},
                           {"fluxion:bgt=0.3,sinks=0,window=1"}};
  return all;
}
INSTANTIATE_TEST_SUITE_P(Methods, LaunchesOf, ::testing::ValuesIn(cases()), [](const auto& param) {
  std::string name = param.param.spec;
  name += param.param.weights == DType::bf16 ? "_bf16" : "";
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

// Each KV head of a row has a list of its own: more of them than one kernel takes.
TEST(Launches, OfManyListsAreAsDeclared) {
  std::uint32_t recalls = 0;
  for (const Launched& op : launched_by({.spec = "scoutattention:budget=32,block=16,sinks=0,recall=1,scope=kv_head",
                            .prompt = 35,
                            .steps = 1,
                            .rows = 4,
                            .kv_heads = 65,
                            .head_dim = 8,
                            .one_prompt = true})) {
    if (op.name != "recall blocks") continue;
    ++recalls;
    EXPECT_EQ(op.kernels, 3u);
    EXPECT_EQ(op.declared, 3u);
  }
  EXPECT_GT(recalls, 0u);
}

// Where scores of single tokens have no room together, what they are made into takes rows, or queries of a prompt, by
// turns.
TEST(Launches, OfScoresInRoundsAreAsDeclared) {
  const struct {
    const char *spec, *name;
    std::uint32_t prompt, kernels;                                                 // at most, of rounds of so many rows
  } cases[] = {{"tova:budget=24", "choose tokens", 66, 1 + 2 * 2},                 // 2 of 3
               {"hgca:device_kv=48,block=16,obs=8", "observe prompt", 66, 5 * 5},  // 2 of 8, which the ring cuts
               {"h2o:budget=32", "column sums", 20, 4 * 5},                        // 5 of 19
               {"infinigen:budget=32", "speculate tokens", 66, 2 * 3},             // 2 of 3
               {"asyncspade:budget=24,window=2", "select ahead", 66, 4 + 3 * 5}};  // 2 of 3 in each of 2 layers
  for (const auto& c : cases) {
    std::uint32_t most = 0;
    bool tables = c.name == std::string_view("choose tokens");  // new slots in them
    const Case run{.spec = c.spec, .prompt = c.prompt, .steps = 2, .score_floats = 700};
    for (const Launched& op : launched_by(run)) {
      if (op.name != c.name) continue;
      EXPECT_EQ(op.kernels, op.declared + (std::exchange(tables, false) ? run.rows : 0)) << c.spec;
      most = std::max(most, op.declared);
    }
    EXPECT_EQ(most, c.kernels) << c.spec;
  }
}

// Where pages and blocks end in several rows at once, digests are made of all of them together.
TEST(Launches, OfStepsInWhichPagesEndAreAsDeclared) {
  std::uint32_t digests = 0;
  for (const Launched& op : launched_by({"quest:budget=64", DType::f32, 77, 6})) {
    if (op.name != "build digests") continue;
    ++digests;
    EXPECT_EQ(op.kernels, 1u);
    EXPECT_EQ(op.declared, 1u);
  }
  EXPECT_EQ(digests, 3 * 2 + 2u) << "of each prompt and layer, and of each layer where two rows' pages end";
}

}  // namespace
}  // namespace tandem::testing
