// Sessions that take a new prompt on a GPU or an emulated one, beside the simulated device.
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

class SessionOnGpu : public Gpu, public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Methods, SessionOnGpu,
    ::testing::Values("full", "full:device=0.5,block=16,look_ahead=0,evict=lru", "full-offload", "full-host",
                      "streaming:sinks=5,window=19", "quest:budget=64", "quest:budget=64,digest=mean",
                      "quest:budget=64,device=0.5", "hybrid-fixed:budget=0.3,block=16,sinks=16,window=16",
                      "hgca:device_kv=48,block=16,beta=0.7", "gpu-fetch:budget=0.3,block=16,sinks=16,window=16",
                      "tova:budget=48", "tova:budget=0.3", "infinigen:budget=48,fetch=token,dense_layers=1",
                      "infinigen:budget=150,dense_layers=0", "scoutattention:budget=64,block=16,sinks=16,recall=2",
                      "scoutattention:budget=48,block=16,sinks=0,recall=1,scope=kv_head",
                      "hisparse:budget=48,buffer=64", "hisparse:budget=48,buffer=96,start=prefix,scope=layer",
                      "fluxion:bgt=0.2,sinks=16,window=32", "fluxion:bgt=0.1,sinks=16,window=1,spill=1",
                      "quest:budget=64,page=32", "asyncspade:budget=48,window=4",
                      "asyncspade:budget=0.3,pack=1,window=4", "asyncspade:budget=48,place=host,window=4"),
    [](const auto& param) {
      std::string name = param.param;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

using Steps = std::vector<std::vector<float>>;

std::unique_ptr<DecodeSession> open(Bench& bench, Method& method, const std::vector<std::vector<std::int32_t>>& prompts,
                                    std::uint32_t steps) {
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const auto& prompt : prompts) {
    prefixes.push_back(bench.engine.prefill(prompt));
    requests.push_back({prefixes.back().get(), steps});
  }
  auto session = bench.engine.open_session(method, requests);
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  return session;
}

/// Decodes forced tokens of as many rows as `seeds` and adds the steps' logits.
void decode(DecodeSession& session, std::uint32_t steps, const std::vector<std::uint32_t>& seeds, Steps& logits) {
  Steps own;
  std::vector<std::vector<std::int32_t>> forced;
  for (const std::uint32_t seed : seeds) forced.push_back(random_prompt(steps, seed));
  session.decode({.logits = &own, .forced = forced});
  logits.insert(logits.end(), own.begin(), own.end());
}

/// Two sequences, a new prompt of several chunks for the first after some steps and a short one for the other, more
/// steps of both, and a second new prompt: up to 121 tokens.
Steps three_turns(Bench& bench, const std::string& spec) {
  const auto method = make_method(spec);
  const auto session = open(bench, *method, {random_prompt(60, 1), random_prompt(20, 2)}, 4);
  Steps logits;
  decode(*session, 4, {11, 12}, logits);
  session->append(0, random_prompt(40, 3), 5);
  session->append(1, random_prompt(3, 4), 5);
  decode(*session, 5, {13, 14}, logits);
  session->append(0, random_prompt(10, 5), 2);
  session->append(1, random_prompt(10, 6), 2);
  decode(*session, 2, {15, 16}, logits);
  return logits;
}

EngineOptions in_chunks() {
  EngineOptions options;
  options.prefill_chunk = 32;
  return options;
}

TEST_P(SessionOnGpu, GoesOnAsOnTheSimulatedDevice) {
  Bench expected(tiny_model_for(GetParam()), sim(), in_chunks()), found(tiny_model_for(GetParam()), gpu(), in_chunks());
  EXPECT_TRUE(logits_agree(three_turns(found, GetParam()), three_turns(expected, GetParam()), 2, 1e-4));
}

// Most KV leaves the device and comes back, before and behind further prompts, of two forks of one prefix.
TEST_F(Gpu, ATenthOfAllKvOnTheDeviceIsEnough) {
  const auto forks_and_turns = [](const char* spec, std::unique_ptr<Device> device) {
    Bench bench(tiny_model(true, 20), std::move(device), in_chunks());
    const auto prefix = bench.engine.prefill(random_prompt(50, 1));
    const DecodeRequest requests[] = {{prefix.get(), 1}, {prefix.get(), 1}};
    const auto method = make_method(spec);
    const auto session = bench.engine.open_session(*method, requests);
    bench.engine.release(*prefix);
    Steps logits;
    decode(*session, 1, {11, 12}, logits);
    session->append(0, random_prompt(14, 3), 1);
    decode(*session, 1, {13, 14}, logits);  // the other one goes on
    return logits;
  };
  const Steps expected = forks_and_turns("full", sim());
  for (const char* policy : {"fixed", "lru", "attention"}) {
    const std::string spec = std::string("full:device=0.1,block=16,window=1,evict=") + policy;
    EXPECT_TRUE(logits_agree(forks_and_turns(spec.c_str(), gpu()), expected, 2, 1e-4)) << policy;
  }
}

// Heads of 64 run on tensor cores, behind pages that have left the device and beside what the host attends.
TEST_F(Gpu, FurtherPromptsRunOnTensorCores) {
  const auto wide = [] {
    Model model = tiny_model();
    model.config.head_dim = 64;
    model.weights = random_weights(model.config, DType::f32, 12);
    return model;
  };
  EngineOptions options = in_chunks();
  for (const DType kv : {DType::f16, DType::bf16}) {
    options.precision = kv;
    for (const char* spec : {"full", "full-host", "streaming:sinks=5,window=19"}) {
      Bench expected(wide(), sim(), options), found(wide(), gpu(), options);
      EXPECT_TRUE(
          logits_agree(three_turns(found, spec), three_turns(expected, spec), 2, kv == DType::f16 ? 2e-3 : 4e-2))
          << spec;
    }
  }
}

// Chunks behind reused pages are launched as in a prefill without the prefix cache.
TEST_F(Gpu, PromptsReusePagesOfOthersBitForBit) {
  EngineOptions options;
  options.prefill_chunk = 16;
  options.keep_queries = 4;
  EngineOptions caching = options;
  caching.prefix_cache.bytes = std::size_t{4} << 20;
  Bench fresh(tiny_model(), gpu(), options), cached(tiny_model(), gpu(), caching);
  const std::vector<std::int32_t> first = random_prompt(38, 1), other = random_prompt(5, 2);
  std::vector<std::int32_t> second(first.begin(), first.begin() + 34);
  second.insert(second.end(), other.begin(), other.end());
  const auto logits_behind = [](Bench& bench, const std::vector<std::int32_t>& prompt, std::uint32_t reused) {
    const auto prefix = bench.engine.prefill(prompt);
    EXPECT_EQ(prefix->reused, reused);
    const auto method = make_method("full");
    const DecodeRequest request{prefix.get(), 1};
    Steps logits;
    bench.engine.decode(*method, {&request, 1}, {.logits = &logits});
    bench.engine.release(*prefix);
    return logits;
  };
  logits_behind(cached, first, 0);
  const Steps expected = logits_behind(fresh, second, 0);
  EXPECT_EQ(logits_behind(cached, second, 32), expected);
  EXPECT_EQ(logits_behind(cached, second, 38), expected) << "all of it";
}

// What a method keeps grows with a longer context: its numbers are copied, and nothing observes a prompt again.
TEST_F(Gpu, ADecodeGoesOnWithoutANewPrompt) {
  for (const char* spec : {"hgca:device_kv=0.4,block=16,beta=0.7", "hgca:device_kv=64,block=16,beta=0.7",
                           "scoutattention:budget=512,block=16,sinks=16,recall=2",
                           "scoutattention:budget=512,block=16,sinks=16,recall=2,scope=kv_head", "quest:budget=96"}) {
    Steps logits[2];
    for (const bool on_gpu : {false, true}) {
      Bench bench(tiny_model(), on_gpu ? gpu() : sim(), in_chunks());
      const auto method = make_method(spec);
      const auto session = open(bench, *method, {random_prompt(100, 1)}, 9);
      for (const std::uint32_t seed : {11u, 12u, 13u}) decode(*session, 9, {seed}, logits[on_gpu]);
    }
    EXPECT_TRUE(logits_agree(logits[1], logits[0], 1, 1e-4)) << spec;
  }
}

// Budgets that the context grows into: what the refused prompt asked for must not be left behind.
TEST_F(Gpu, WhereTokensSurvivedOneByOneAFurtherPromptIsRefused) {
  for (const char* spec : {"h2o:budget=40", "h2o:budget=1000", "tova:budget=24,evict=yes", "tova:budget=1000,evict=yes",
                           "tova:budget=0.5,evict=yes"}) {
    Steps logits[2];
    for (const bool refused : {false, true}) {
      EngineOptions options;
      options.column_sums = true;
      Bench bench(tiny_model(), refused ? gpu() : sim(), options);
      const auto method = make_method(spec);
      const auto session = open(bench, *method, {random_prompt(61, 1)}, 4);
      decode(*session, 4, {11}, logits[refused]);
      if (refused) {
        EXPECT_THAT([&] { session->append(0, random_prompt(30, 3), 4); },
                    ThrowsMessage<InputError>(HasSubstr("keeps tokens one by one")))
            << spec;
      }
      decode(*session, 4, {12}, logits[refused]);  // goes on as if nobody had asked
    }
    EXPECT_TRUE(logits_agree(logits[1], logits[0], 1, 1e-4)) << spec;
  }
}

}  // namespace
}  // namespace tandem::testing
