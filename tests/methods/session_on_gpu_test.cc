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
    ::testing::Values("full", "full-offload", "full-host", "streaming:sinks=5,window=19", "quest:budget=96",
                      "quest:budget=96,digest=mean", "hybrid-fixed:budget=0.3,block=32,sinks=16,window=32",
                      "hgca:device_kv=64,block=16,beta=0.7", "gpu-fetch:budget=0.3,block=32,sinks=16,window=32",
                      "tova:budget=96", "tova:budget=0.3", "infinigen:budget=96,fetch=token,dense_layers=1",
                      "infinigen:budget=250,dense_layers=0", "scoutattention:budget=128,block=16,sinks=16,recall=2",
                      "scoutattention:budget=96,block=32,sinks=0,recall=1,scope=kv_head",
                      "fluxion:bgt=0.2,sinks=16,window=32", "asyncspade:budget=96,window=4",
                      "asyncspade:budget=0.3,pack=1,window=4", "asyncspade:budget=96,place=host,window=4"),
    [](const auto& param) {
      std::string name = param.param;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
      return name;
    });

/// Two sequences, a new prompt of several chunks for the first after some steps, and more steps of both.
std::vector<std::vector<float>> two_turns(Bench& bench, const std::string& spec) {
  const auto method = make_method(spec);
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const auto& prompt : {random_prompt(130, 1), random_prompt(40, 2)}) {
    prefixes.push_back(bench.engine.prefill(prompt));
    requests.push_back({prefixes.back().get(), 6});
  }
  const auto session = bench.engine.open_session(*method, requests);
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  std::vector<std::vector<float>> logits, later;
  const std::vector<std::vector<std::int32_t>> first = {random_prompt(6, 11), random_prompt(6, 12)},
                                               second = {random_prompt(8, 13), random_prompt(8, 14)};
  session->decode({.logits = &logits, .forced = first});
  session->append(0, random_prompt(75, 3), 8);
  session->append(1, random_prompt(3, 4), 8);
  session->decode({.logits = &later, .forced = second});
  logits.insert(logits.end(), later.begin(), later.end());
  return logits;
}

TEST_P(SessionOnGpu, GoesOnAsOnTheSimulatedDevice) {
  EngineOptions options;
  options.prefill_chunk = 32;
  Bench expected(tiny_model_for(GetParam()), sim(), options), found(tiny_model_for(GetParam()), gpu(), options);
  EXPECT_TRUE(logits_agree(two_turns(found, GetParam()), two_turns(expected, GetParam()), 2, 1e-4));
}

TEST_F(Gpu, WhereTokensSurvivedOneByOneAFurtherPromptIsRefused) {
  for (const char* spec : {"h2o:budget=96", "tova:budget=48,evict=yes"}) {
    EngineOptions sums;
    sums.column_sums = true;
    Bench expected_bench(tiny_model()), bench(tiny_model(), gpu(), sums);
    std::vector<std::vector<float>> logits[2];
    for (const bool refused : {false, true}) {
      Bench& own = refused ? bench : expected_bench;
      const auto method = make_method(spec);
      const auto prefix = own.engine.prefill(random_prompt(130, 1));
      const DecodeRequest request{prefix.get(), 4};
      const auto session = own.engine.open_session(*method, {&request, 1});
      const std::vector<std::vector<std::int32_t>> forced = {random_prompt(4, 11)};
      session->decode({.forced = forced});
      if (refused) {
        EXPECT_THAT([&] { session->append(0, random_prompt(30, 3), 4); },
                    ThrowsMessage<InputError>(HasSubstr("has no CUDA code yet")))
            << spec;
      }
      session->decode({.logits = &logits[refused], .forced = forced});  // goes on as if nobody had asked
    }
    EXPECT_TRUE(logits_agree(logits[1], logits[0], 1, 1e-4)) << spec;
  }
}

}  // namespace
}  // namespace tandem::testing
