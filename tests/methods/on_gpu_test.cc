// Every method on a GPU or an emulated one: the same plans on the kernels that a GPU runs,
// beside the simulated device, whose kernels are the CPU's. The two differ by the rounding of sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/methods/gpu.h"
#include "tests/methods/logits_difference.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct Out {
  std::vector<std::vector<float>> logits;  // [step][rows * vocab]
  DecodeResult result;
};

Out decode(Bench& bench, const std::string& spec, const std::vector<std::vector<std::int32_t>>& prompts,
           std::span<const std::vector<std::int32_t>> forced, std::uint32_t trace_steps = 512) {
  Out out;
  const auto method = make_method(spec);
  out.result = bench.decode(*method, prompts, static_cast<std::uint32_t>(forced[0].size()),
                            {.logits = &out.logits, .forced = forced, .trace_steps = trace_steps});
  return out;
}

/// A model whose attention runs on tensor cores, with biases and bf16 weights.
Model wide_model(DType weights) {
  Model model = tiny_model(false);
  ModelConfig& c = model.config;
  c.architecture = "qwen2";
  c.qkv_bias = true;
  c.hidden = 64;
  c.head_dim = 64;
  c.q_heads = 6;
  c.kv_heads = 2;
  model.weights = random_weights(c, weights, 12);
  return model;
}

const std::vector<std::vector<std::int32_t>> kPrompts = {random_prompt(75, 1), random_prompt(27, 2),
                                                         random_prompt(44, 3)};
constexpr std::uint32_t kSteps = 8;  // past the end of a page in each row

std::vector<std::vector<std::int32_t>> forced_tokens() {
  return {random_prompt(kSteps, 11), random_prompt(kSteps, 12), random_prompt(kSteps, 13)};
}

std::vector<std::string> specs_on_gpu() {
  std::vector<std::string> specs;
  // Equation 2 with sixteen windows takes the emulator half a minute.
  for (const MethodInfo& info : method_registry())
    specs.push_back(info.name == "asyncspade" ? "asyncspade:window=4" : info.name);
  for (const char* spec :
       {"full:device=0.5,block=16,window=1,look_ahead=0",
        "full-offload:look_ahead=0",
        "streaming:sinks=5,window=19",
        "quest:budget=48",
        "quest:budget=0.3,page=32,sinks=20,group_reduce=mean,dense_layers=1",
        "quest:budget=64,group_reduce=per_head",
        "quest:budget=48,page=32,digest=mean",
        "quest:budget=48,device=0.5,group_reduce=layer",
        "tova:budget=24,device=0.5,look_ahead=0",
        "gpu-fetch:budget=0.3,sinks=0,window=16,digest=mean",
        "scoutattention:budget=48,block=16,sinks=16,recall=3,digest=mean",
        "hybrid-fixed:budget=0.3,block=32,sinks=16,window=32,union=attended",
        "hybrid-fixed:budget=0.2,sinks=0,window=1",
        "gpu-fetch:budget=0.3,sinks=0,window=16",
        "gpu-fetch:budget=0.4,block=32,sinks=16,window=1,union=attended",
        "hgca:device_kv=32,block=16,beta=0.7",
        "hgca:device_kv=48,block=16,pad=attended,obs=8,alpha=0.5",
        "scoutattention:budget=48,block=16,sinks=16,recall=3",
        "scoutattention:budget=48,block=16,sinks=0,recall=1,scope=kv_head,device_scope=selected",
        "scoutattention:budget=48,block=16,sinks=16,recall=2,layer0=resident,pred_norm=own",
        "scoutattention:budget=64,block=32,sinks=0,recall=2,ahead=none",
        "scoutattention:budget=48,block=16,sinks=16,recall=2,true_layers=2",
        "freekv:budget=64,block=16,sinks=16,window=16",
        "freekv:budget=48,block=16,sinks=0,window=16,tau=0.99,reduce=mean,dense_layers=0",
        "hisparse:budget=32,buffer=48",
        "hisparse:budget=48,buffer=48,start=prefix,scope=layer",
        "hisparse:budget=32,buffer=256,digest=mean",
        "tova:budget=24",
        "tova:budget=24,evict=yes",
        "h2o:budget=32",
        "h2o:budget=40,heavy=0.9",
        "h2o:budget=6",
        "tova:budget=0.4",
        "asyncspade:budget=24,window=2",
        "asyncspade:budget=24,place=host",
        "asyncspade:budget=0.5,pack=1,window=3,weights=raw",
        "asyncspade:budget=30,pack=2,windows=W,rope=post,theta=4,weights=ridge_softmax",
        "asyncspade:budget=32,place=host,pack=2,window=5,weights=alg1",
        "infinigen:budget=32,dense_layers=0",
        "infinigen:budget=48,dense_layers=1,scope=layer",
        "infinigen:budget=16,dense_layers=0,fetch=token,alpha=2",
        "infinigen:budget=40,dense_layers=0,fetch=token,scope=layer,partial=1",
        "infinigen:budget=20,dense_layers=0,fetch=token,scope=query_head,alpha=2",
        "fluxion:bgt=0.3,sinks=0,window=1",
        "fluxion:bgt=0.5,slope=-0.05,streaming=0.5,sinks=16,window=16,guard=yes,workers=1",
        "fluxion:bgt=0.4,stage=fixed32,sinks=0,window=1,policy=cpu-only",
        "fluxion:bgt=0.2,stage=fixed32,sinks=0,window=1,policy=uniform,cpu_share=0.01,union=attended",
        "fluxion:bgt=0.2,stage=fixed16,sinks=0,window=1,policy=length,cpu_share=0.4",
        "fluxion:bgt=0.6,stage=dynamic,sinks=0,window=1,policy=uniform,cpu_share=0.01"})
    specs.emplace_back(spec);
  return specs;
}

class OnGpu : public Gpu, public ::testing::WithParamInterface<std::string> {};
INSTANTIATE_TEST_SUITE_P(Methods, OnGpu, ::testing::ValuesIn(specs_on_gpu()), [](const auto& param) {
  std::string name = param.param;
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
});

EngineOptions options_of(const std::string& spec) {
  EngineOptions options;
  keep_what_methods_need(options, {&spec, 1}, tiny_model());
  return options;
}

/// Bytes over the link to the device, of operations of a name.
std::uint64_t brought(const Trace& trace, std::string_view name) {
  std::uint64_t bytes = 0;
  for (const TraceRecord& record : trace.records) {
    if (name != record.name) continue;
    bytes += record.cost.h2d;
    EXPECT_FALSE(record.cost.upper_bound) << name;
  }
  return bytes;
}

// What only the GPU knows it counts: the bytes are not the most that they could have been.
TEST_F(Gpu, BytesOfRecallsAndFetchesAreThoseThatMoved) {
  const auto forced = forced_tokens();
  const std::pair<const char*, const char*> cases[] = {
      {"scoutattention:budget=48,block=16,sinks=16,recall=2", "recall blocks"},
      {"scoutattention:budget=48,block=16,sinks=0,recall=1,scope=kv_head", "recall blocks"},
      {"gpu-fetch:budget=0.3,sinks=0,window=16", "fetch kv"},
      {"infinigen:budget=32,dense_layers=0", "fetch speculated kv"},
      {"infinigen:budget=16,dense_layers=0,fetch=token,alpha=2", "fetch speculated kv"}};
  for (const auto& [spec, name] : cases) {
    Bench expected_bench(tiny_model()), bench(tiny_model(), gpu());
    const Out expected = decode(expected_bench, spec, kPrompts, forced);
    const Out found = decode(bench, spec, kPrompts, forced);
    EXPECT_GT(brought(expected.result.trace, name), 0u) << spec;
    EXPECT_EQ(brought(found.result.trace, name), brought(expected.result.trace, name)) << spec;
  }
}

/// Who attends to what is in host memory is settled while it runs.
bool sides_compete(const std::string& spec) {
  return spec.starts_with("fluxion") && spec.find("policy=") == std::string::npos;
}

// On a GPU nobody can look twice: what a failure says must tell a near-tie from a bug.
TEST(LogitsAgree, OrSayWhereTheyPart) {
  const std::vector<std::vector<float>> expected(3, {0, 1, 2, 3, 4, 5});  // two rows
  std::vector<std::vector<float>> found = expected;
  EXPECT_TRUE(logits_agree(found, expected, 2, 0));
  found[0][1] += 0.25F;
  EXPECT_TRUE(logits_agree(found, expected, 2, 0.5));
  found[1][4] = 7;
  found[2][0] = 2;
  EXPECT_THAT(
      logits_agree(found, expected, 2, 0.5).message(),
      HasSubstr("part at step 1, row 1: by 3, more than 0.5 (token 1: 7 instead of 4). Steps before it: at most "
                "0.25. In this step: row 0: 0. In later steps: 2"));
  found[0][5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(logits_agree(found, expected, 2, 0.5).message(), HasSubstr("part at step 0, row 1: by inf"));
}

TEST_P(OnGpu, LogitsAndCountersAreThoseOfTheSimulatedDevice) {
  const auto forced = forced_tokens();
  Bench expected_bench(tiny_model()), bench(tiny_model(), gpu(), options_of(GetParam()));
  const Out expected = decode(expected_bench, GetParam(), kPrompts, forced);
  const Out found = decode(bench, GetParam(), kPrompts, forced, 5);  // drained between steps
  ASSERT_EQ(found.logits.size(), kSteps);
  EXPECT_TRUE(logits_agree(found.logits, expected.logits, kPrompts.size(), 1e-4));
  for (std::size_t i = 0; i < kPrompts.size(); ++i) {
    const DecodedSequence &f = found.result.sequences[i], &e = expected.result.sequences[i];
    EXPECT_EQ(f.tokens, e.tokens);
    ASSERT_EQ(f.log_probabilities.size(), e.log_probabilities.size());
    for (std::size_t t = 0; t < f.log_probabilities.size(); ++t)
      EXPECT_NEAR(f.log_probabilities[t], e.log_probabilities[t], 1e-4);
    for (int side = 0; side < 2; ++side) {
      if (!sides_compete(GetParam())) {
        EXPECT_EQ(f.attended[side], e.attended[side]);
      }
      EXPECT_EQ(f.peak_kv_bytes[side], e.peak_kv_bytes[side]);
    }
    EXPECT_EQ(f.attended[0] + f.attended[1], e.attended[0] + e.attended[1]);
  }
  EXPECT_EQ(found.result.idle.steps.size(), kSteps + 1);
  EXPECT_EQ(found.result.trace.clock, gpu()->clock_name());
}

TEST_F(Gpu, ScoresThatHaveNoRoomTogetherAreTheSame) {
  constexpr std::uint32_t kFew = 3;  // steps
  const std::vector<std::vector<std::int32_t>> prompts = {kPrompts[1], kPrompts[2]},
                                               forced(prompts.size(), random_prompt(kFew, 11));
  for (const char* spec : {"tova:budget=24", "hgca:device_kv=32,block=16,beta=0.7,obs=8", "h2o:budget=32",
                           "infinigen:budget=32,dense_layers=0", "infinigen:budget=48,dense_layers=1,scope=layer",
                           "asyncspade:budget=24,window=2"}) {
    EngineOptions options = options_of(spec);
    Bench expected_bench(tiny_model(), gpu(), options);
    options.score_floats = 200;  // of one row
    Bench bench(tiny_model(), gpu(), options);
    const Out expected = decode(expected_bench, spec, prompts, forced);
    const Out found = decode(bench, spec, prompts, forced);
    ASSERT_EQ(found.logits.size(), kFew);
    EXPECT_TRUE(logits_agree(found.logits, expected.logits, prompts.size(), 0)) << spec;
  }
}

void expect_greedy_tokens(const std::string& spec) {
  std::vector<std::vector<std::int32_t>> tokens[2];
  for (const bool on_gpu : {false, true}) {
    Bench bench(tiny_model(), on_gpu ? gpu() : sim(), options_of(spec));
    const auto method = make_method(spec);
    std::vector<std::unique_ptr<Prefix>> prefixes;
    std::vector<DecodeRequest> requests;
    for (std::uint32_t i = 0; i < kPrompts.size(); ++i) {  // the first row ends first: the others move up
      prefixes.push_back(bench.engine.prefill(kPrompts[i]));
      requests.push_back({prefixes.back().get(), 2 + 3 * i});
    }
    for (const DecodedSequence& s : bench.engine.decode(*method, requests).sequences)
      tokens[on_gpu ? 1 : 0].push_back(s.tokens);
  }
  EXPECT_EQ(tokens[1], tokens[0]) << spec;
}

TEST_F(Gpu, GreedyTokensAreThoseOfTheSimulatedDevice) {
  for (const char* spec :
       {"hybrid-fixed:budget=0.2,sinks=0,window=1", "scoutattention:budget=48,block=16,sinks=16,recall=3",
        "tova:budget=24", "h2o:budget=32", "asyncspade:budget=24,place=host", "infinigen:budget=32,dense_layers=0",
        "fluxion:bgt=0.3,sinks=0,window=1"})
    expect_greedy_tokens(spec);
}

struct Stored {
  DType weights, precision;
  double tolerance;
};
class GpuPrecision : public Gpu, public ::testing::WithParamInterface<Stored> {};
// Weights in bf16 have the inputs of products rounded to bf16 too, which the CPU's decode step does not do.
INSTANTIATE_TEST_SUITE_P(Types, GpuPrecision,
                         ::testing::Values(Stored{DType::f32, DType::f32, 1e-4}, Stored{DType::f32, DType::f16, 2e-3},
                                           Stored{DType::f32, DType::bf16, 4e-2},
                                           Stored{DType::bf16, DType::bf16, 8e-2}),
                         [](const auto& param) {
                           return std::string(to_string(param.param.weights)) + "_" + to_string(param.param.precision);
                         });

TEST_P(GpuPrecision, TensorCoresAndBiasesAgreeWithinTheRounding) {
  const Stored& c = GetParam();
  EngineOptions options;
  options.precision = c.precision;
  // The second is too short for blocks that are fetched, resident or on the host.
  const std::vector<std::vector<std::int32_t>> prompts = {kPrompts[0], random_prompt(10, 2)},
                                               forced = {random_prompt(4, 11), random_prompt(4, 12)};
  std::vector<std::string> specs = {"full", "full-offload", "hybrid-fixed:budget=1,sinks=16,window=32"};
  // In f32 two choose for a group of heads; OnGpu has all methods with narrow heads. Keys that are rounded to bf16
  // before or behind another rounding make other choices.
  if (c.precision == DType::f32) specs.insert(specs.end(), {"quest:budget=0.5", "hgca:device_kv=32,block=16,beta=0.7"});
  if (c.precision == DType::f16)
    specs.insert(specs.end(),
                 {"quest:budget=0.5", "gpu-fetch:budget=0.3,sinks=0,window=16", "hgca:device_kv=32,block=16,beta=0.7",
                  "scoutattention:budget=48,block=16,sinks=16,recall=3", "tova:budget=24", "h2o:budget=32",
                  "asyncspade:budget=24,place=host", "infinigen:budget=32,dense_layers=0",
                  "fluxion:bgt=0.3,sinks=16,window=1,policy=uniform,cpu_share=0.5"});
  for (const std::string& spec : specs) {
    options.column_sums = options_of(spec).column_sums;
    Bench expected_bench(wide_model(c.weights), sim(), options), bench(wide_model(c.weights), gpu(), options);
    const Out expected = decode(expected_bench, spec, prompts, forced);
    const Out found = decode(bench, spec, prompts, forced);
    double worst = 0;
    for (std::size_t step = 0; step < found.logits.size(); ++step)
      worst = std::max(worst, largest_difference(found.logits[step], expected.logits[step]));
    std::printf("%s: %.2g\n", spec.c_str(), worst);
    EXPECT_TRUE(logits_agree(found.logits, expected.logits, prompts.size(), c.tolerance)) << spec;
  }
}

TEST_F(Gpu, PrefillAndWhatIsAppendedGiveTheSameLogits) {
  std::vector<float> logits[2];
  std::vector<std::vector<float>> behind[2];
  for (const bool on_gpu : {false, true}) {
    EngineOptions options;
    options.prefill_chunk = 50;
    options.max_batch = 3;  // prefill's logits are made so many rows at a time
    Bench bench(tiny_model(), on_gpu ? gpu() : sim(), options);
    logits[on_gpu ? 1 : 0] = bench.engine.prefill_logits(kPrompts[0]);
    const auto prefix = bench.engine.prefill(kPrompts[2]);
    bench.engine.append(*prefix, kPrompts[1]);
    const DecodeRequest request{prefix.get(), 3};
    bench.engine.decode(*make_method("full"), {&request, 1}, {.logits = &behind[on_gpu ? 1 : 0]});
  }
  EXPECT_LT(largest_difference(logits[1], logits[0]), 1e-4);
  EXPECT_TRUE(logits_agree(behind[1], behind[0], 1, 1e-4));
}

// Sums of a prompt that came in parts, its last tokens' own included.
TEST_F(Gpu, MassOfAPromptInChunksIsThatOfTheSimulatedDevice) {
  std::vector<std::vector<float>> logits[2];
  for (const bool on_gpu : {false, true}) {
    EngineOptions options;
    options.prefill_chunk = 20;
    options.column_sums = true;
    Bench bench(tiny_model(), on_gpu ? gpu() : sim(), options);
    const auto prefix = bench.engine.prefill(kPrompts[2]);
    bench.engine.append(*prefix, kPrompts[1]);
    const DecodeRequest request{prefix.get(), 5};
    bench.engine.decode(*make_method("h2o:budget=20,heavy=0.9"), {&request, 1}, {.logits = &logits[on_gpu ? 1 : 0]});
  }
  EXPECT_TRUE(logits_agree(logits[1], logits[0], 1, 1e-4));
}

// The first step takes in its only token: sets and indices have nothing yet.
TEST_F(Gpu, PromptsOfOneTokenDecodeAloneAndBesideLongerOnes) {
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(1, 7), random_prompt(40, 8)},
                                               forced = {random_prompt(3, 11), random_prompt(3, 12)};
  for (const char* spec :
       {"h2o:budget=20", "tova:budget=20,evict=yes", "tova:budget=20", "infinigen:budget=32,dense_layers=0",
        "asyncspade:budget=20,window=2", "asyncspade:budget=20,place=host"}) {
    for (const std::size_t rows : {1, 2}) {
      const std::vector own(prompts.begin(), prompts.begin() + std::ptrdiff_t(rows));
      Bench expected_bench(tiny_model()), bench(tiny_model(), gpu(), options_of(spec));
      const Out expected = decode(expected_bench, spec, own, std::span(forced).first(rows));
      const Out found = decode(bench, spec, own, std::span(forced).first(rows));
      EXPECT_TRUE(logits_agree(found.logits, expected.logits, rows, 1e-4)) << spec;
    }
  }
}

TEST_F(Gpu, DrawsAreThoseOfTheSimulatedDevice) {
  const std::vector<Sampling> sampling = {{.temperature = 1.5f, .seed = 3},
                                          {.temperature = 0.7f, .top_k = 9, .seed = 4},
                                          {.temperature = 2, .top_p = 0.8f, .seed = 5}};
  std::vector<std::int32_t> tokens[2];
  for (const bool on_gpu : {false, true}) {
    Bench bench(tiny_model(), on_gpu ? gpu() : sim());
    for (const DecodedSequence& s : bench.decode(*make_method("full"), kPrompts, 12, {.sampling = sampling}).sequences)
      tokens[on_gpu ? 1 : 0].insert(tokens[on_gpu ? 1 : 0].end(), s.tokens.begin(), s.tokens.end());
  }
  EXPECT_EQ(tokens[1], tokens[0]);
}

TEST_F(Gpu, WorkOfAPeerIsRefusedBySentence) {
  Bench bench(tiny_model(), gpu());
  EXPECT_THAT([&] { bench.decode(*make_method("asyncspade:budget=24,place=peer"), {kPrompts[0]}, 3); },
              ThrowsMessage<InputError>(HasSubstr("has none")));
  // What it leaves behind does not hinder the next one.
  EXPECT_EQ(bench.decode(*make_method("full"), {kPrompts[1]}, 2).sequences[0].tokens.size(), 2u);
}

}  // namespace
}  // namespace tandem::testing
