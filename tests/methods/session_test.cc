// Sessions: a decode in two halves is the same decode, and a new prompt is attended exactly, wherever KV lies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

class Sessions : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(
    Methods, Sessions,
    ::testing::Values(
        "full", "full:device=0.5,block=16,look_ahead=0", "streaming", "streaming:sinks=5,window=19", "hybrid-fixed",
        "hybrid-fixed:budget=0.3,block=32,sinks=16,window=32", "hgca", "hgca:device_kv=64,block=16,beta=0.7",
        "hgca:beta=0,device_kv=32,block=16", "quest:budget=96", "quest:budget=96,digest=mean",
        "gpu-fetch:budget=0.3,block=32,sinks=16,window=32", "full-offload", "full-host", "h2o:budget=96",
        "h2o:budget=250,heavy=0.2", "infinigen:budget=96,fetch=token,dense_layers=1",
        "infinigen:budget=60,fetch=token,dense_layers=0,scope=query_head", "infinigen:budget=250",
        "infinigen:budget=250,dense_layers=0", "fluxion:bgt=0.2,sinks=16,window=32",
        "fluxion:bgt=0.1,sinks=16,window=1,spill=1", "hgca:device_kv=250,block=16",
        "scoutattention:budget=256,block=16,sinks=16,recall=3", "scoutattention:budget=128,block=16,sinks=16,recall=2",
        "scoutattention:budget=96,block=32,sinks=0,recall=1,scope=kv_head", "tova:budget=96", "tova:budget=0.3",
        "tova:budget=96,evict=yes", "tova:budget=250,evict=yes", "asyncspade:budget=96,window=6",
        "asyncspade:budget=0.3,pack=1", "asyncspade:budget=96,place=host,theta=20"));

std::unique_ptr<DecodeSession> open(Bench& bench, Method& method, const std::vector<Tokens>& prompts,
                                    std::uint32_t new_tokens) {
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const Tokens& prompt : prompts) {
    prefixes.push_back(bench.engine.prefill(prompt));
    requests.push_back({prefixes.back().get(), new_tokens});
  }
  auto session = bench.engine.open_session(method, requests);
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  return session;
}

TEST_P(Sessions, TwoHalvesAreTheWhole) {
  const std::vector<Tokens> prompts = {random_prompt(230, 1), random_prompt(77, 2)};
  const std::string spec = GetParam();
  const std::uint32_t half = 40;  // more than the smallest window: all of it leaves in the second half
  Bench bench(tiny_model_for(GetParam()));
  std::vector<std::vector<float>> expected, first, second;
  const DecodeResult whole =
      open(bench, *make_method(spec), prompts, spec == "hgca" ? half : 2 * half)->decode({.logits = &expected});
  const auto method = make_method(spec);
  auto session = open(bench, *method, prompts, half);
  const DecodeResult begun = session->decode({.logits = &first}), ended = session->decode({.logits = &second});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(begun.sequences[i].tokens.size(), half);
    EXPECT_EQ(ended.sequences[i].tokens.size(), half);
  }
  first.insert(first.end(), second.begin(), second.end());
  // hgca's default window is a share of the announced length, which is another one for the whole: its first half only.
  if (spec == "hgca") {
    ASSERT_EQ(expected.size(), half);
    first.resize(half);
  }
  ASSERT_EQ(first.size(), expected.size());
  for (std::size_t step = 0; step < first.size(); ++step)
    ASSERT_TRUE(first[step] == expected[step]) << "other bits in step " << step;
  for (std::size_t i = 0; i < prompts.size() && spec != "hgca"; ++i) {
    Tokens both = begun.sequences[i].tokens;
    both.insert(both.end(), ended.sequences[i].tokens.begin(), ended.sequences[i].tokens.end());
    EXPECT_EQ(both, whole.sequences[i].tokens);
    for (const int side : {0, 1}) {  // each half rounds its mean over layers and heads
      const std::uint64_t halves = begun.sequences[i].attended[side] + ended.sequences[i].attended[side];
      EXPECT_NEAR(double(halves), double(whole.sequences[i].attended[side]), 1);
    }
  }
}

TEST_P(Sessions, AnAppendGivesTheSameInAnyChunksBatchesAndOnRealThreads) {
  const std::vector<Tokens> prompts = {random_prompt(230, 1), random_prompt(77, 2)};
  const Tokens turn = random_prompt(45, 3);
  const auto run = [&](std::unique_ptr<Device> device, std::uint32_t chunk, bool together) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    std::vector<Tokens> out;
    Bench bench(tiny_model_for(GetParam()), std::move(device), options);
    for (std::size_t first = 0; first < prompts.size(); first += together ? prompts.size() : 1) {
      const auto method = make_method(GetParam());
      const std::vector<Tokens> batch(prompts.begin() + first, together ? prompts.end() : prompts.begin() + first + 1);
      auto session = open(bench, *method, batch, 20);
      session->decode({});
      for (std::size_t i = 0; i < batch.size(); ++i) EXPECT_GT(session->append(i, turn, 20), 0);
      for (const DecodedSequence& s : session->decode({}).sequences) out.push_back(s.tokens);
    }
    return out;
  };
  const std::vector<Tokens> expected = run(sim(), 512, true);
  EXPECT_EQ(run(sim(), 512, false), expected);
  EXPECT_EQ(run(sim(), 16, true), expected);
  EXPECT_EQ(run(make_emu_device({}), 512, true), expected);
}

TEST(Session, AnAppendToLosslessMethodsEqualsOnePrompt) {
  Bench bench(tiny_model());
  const Tokens prompt = random_prompt(300, 5), turn = random_prompt(60, 6);
  for (const char* spec :
       {"full", "h2o:budget=1", "h2o:budget=1K,heavy=0.9", "quest:budget=1", "hybrid-fixed:budget=1",
        "gpu-fetch:budget=1,sinks=0,window=32", "full-offload", "full-host", "hgca:beta=0,device_kv=64,block=16",
        "streaming:window=4K", "scoutattention", "tova:budget=1", "tova:budget=1,evict=yes", "asyncspade:budget=1",
        "asyncspade:budget=1,place=host"}) {
    const auto method = make_method(spec);
    auto session = open(bench, *method, {prompt}, 10);
    const DecodeResult first = session->decode({});
    session->append(0, turn, 12);
    std::vector<std::vector<float>> actual, expected;
    const DecodeResult second = session->decode({.logits = &actual});
    Tokens all = prompt;
    all.insert(all.end(), first.sequences[0].tokens.begin(), first.sequences[0].tokens.end());
    all.insert(all.end(), turn.begin(), turn.end());
    const DecodeResult whole = bench.decode(*make_method("full"), {all}, 12, {.logits = &expected});
    EXPECT_EQ(second.sequences[0].tokens, whole.sequences[0].tokens) << spec;
    for (std::size_t step = 0; step < expected.size(); ++step) {
      for (std::size_t i = 0; i < expected[step].size(); ++i)
        ASSERT_NEAR(actual[step][i], expected[step][i], 2e-4) << spec << " step " << step;
    }
  }
}

TEST(Session, LosslessMethodsStaySoWhereADecodeGoesOn) {
  Bench bench(tiny_model());
  const Tokens prompt = random_prompt(60, 5);
  std::vector<std::vector<float>> expected;
  bench.decode(*make_method("full"), {prompt}, 80, {.logits = &expected});
  for (const char* spec :
       {"h2o:budget=1", "h2o:budget=1,heavy=0.9", "quest:budget=1", "hybrid-fixed:budget=1",
        "gpu-fetch:budget=1,sinks=0,window=32", "full-offload", "hgca:beta=0", "tova:budget=1,evict=yes"}) {
    const auto method = make_method(spec);
    ASSERT_TRUE(method->needs(bench.engine.shape()).lossless) << spec;
    auto session = open(bench, *method, {prompt}, 40);
    std::vector<std::vector<float>> actual;
    session->decode({.logits = &actual});
    session->decode({.logits = &actual});
    ASSERT_EQ(actual.size(), expected.size()) << spec;
    for (std::size_t step = 0; step < expected.size(); ++step) {
      for (std::size_t i = 0; i < expected[step].size(); ++i)
        ASSERT_NEAR(actual[step][i], expected[step][i], 2e-4) << spec << " step " << step;
    }
  }
}

// Also behind a new prompt, for which the caps of before are too low.
TEST(Session, BudgetsFarAboveTheContextAreFullAndTakeNoMoreMemory) {
  const Tokens prompt = random_prompt(300, 5), turn = random_prompt(200, 6);
  for (const char* spec :
       {"h2o:budget=1000000000", "quest:budget=1000000000",
        "infinigen:budget=1000000000,alpha=1000000000,dense_layers=0",
        "infinigen:budget=1000000000,alpha=1000000000,fetch=token,dense_layers=1", "scoutattention:budget=1000000000",
        "scoutattention:budget=1000000000,sinks=0,block=128", "hgca:device_kv=1000000000", "hgca:device_kv=1",
        "streaming:window=1000000000", "hybrid-fixed:window=1000000000", "gpu-fetch:sinks=1000000000",
        "tova:budget=1000000000", "tova:budget=1000000000,evict=yes", "asyncspade:budget=1000000000",
        "asyncspade:budget=1000000000,place=host"}) {
    Bench bench(tiny_model());
    const auto method = make_method(spec), full = make_method("full");
    auto session = open(bench, *method, {prompt}, 20), reference = open(bench, *full, {prompt}, 20);
    for (const bool appended : {false, true}) {
      if (appended) {
        session->append(0, turn, 20);
        reference->append(0, turn, 20);
      }
      std::vector<std::vector<float>> actual, expected;
      const DecodeResult own = session->decode({.logits = &actual}), other = reference->decode({.logits = &expected});
      EXPECT_EQ(own.sequences[0].tokens, other.sequences[0].tokens) << spec;
      ASSERT_EQ(actual.size(), expected.size());
      for (std::size_t step = 0; step < expected.size(); ++step) {
        for (std::size_t i = 0; i < expected[step].size(); ++i)
          ASSERT_NEAR(actual[step][i], expected[step][i], 2e-4) << spec << " step " << step;
      }
      // Two layers' worth of everything and the index, at most.
      EXPECT_LT(own.sequences[0].peak_kv_bytes[0], 4 * other.sequences[0].peak_kv_bytes[0]) << spec;
    }
  }
}

TEST(Session, AShareIsOfTheContextWithTheNewPrompt) {
  const Tokens prompt = random_prompt(60, 5), turn = random_prompt(500, 6);
  Bench bench(tiny_model());
  const auto method = make_method("hgca:device_kv=0.5,block=16");
  auto session = open(bench, *method, {prompt}, 20);
  session->decode({});
  session->append(0, turn, 20);
  // Half of 60 + 20 + 500 + 20 tokens.
  const std::vector<std::uint64_t> attended = {session->decode({}).sequences[0].attended[0]};
  EXPECT_NEAR(double(attended[0]) / 20, 300, 16);
}

TEST(Session, WhatIsHeldOnTheDeviceDoesNotGrowWithTheTurns) {
  const Tokens turn = random_prompt(160, 6);
  for (const char* spec : {"streaming:sinks=16,window=64", "tova:budget=96"}) {
    Bench bench(tiny_model());
    const auto method = make_method(spec), full = make_method("full");
    auto session = open(bench, *method, {random_prompt(300, 5)}, 21);
    auto reference = open(bench, *full, {random_prompt(300, 5)}, 21);
    const std::size_t token = bench.engine.kv().shape().token_bytes();
    for (int round = 0; round < 4; ++round) {
      const std::size_t own = session->decode({}).sequences[0].peak_kv_bytes[0];
      const std::size_t all = reference->decode({}).sequences[0].peak_kv_bytes[0];
      if (method->spelled_out().starts_with("tova")) {
        EXPECT_EQ(own - all, 2u * (1 + 96) * sizeof(std::uint32_t)) << round;  // lists of two KV heads
      } else {
        EXPECT_LE(own, (16 + 64 + 2 * kPageTokens) * token) << round;
      }
      session->append(0, turn, 21);
      reference->append(0, turn, 21);
    }
  }
}

TEST(Session, AnAppendIsChargedThePairsThatItAttends) {
  HardwareProfile slow = load_profile("fluxion-a100");
  slow.device.gemm_tflops = slow.device.prefill_attention_tflops = 1e-5;  // so that arithmetic is all that takes time
  Bench bench(tiny_model(), make_sim_device(slow, {}));
  const Tokens turn = random_prompt(500, 6);
  const auto prefix = bench.engine.prefill(random_prompt(21, 5));  // 20 are held, as below
  bench.engine.append(*prefix, turn);
  double flops = 0;
  for (const TraceRecord& r : prefix->trace.records)
    if (std::string(r.name) != "column sums") flops += double(r.cost.flops);
  bench.engine.release(*prefix);
  const auto method = make_method("full");
  auto session = open(bench, *method, {random_prompt(20, 5)}, 1);
  session->decode({});
  const double expected = flops / (slow.device.gemm_tflops * 1e12) * 1e9;
  EXPECT_NEAR(double(session->append(0, turn, 1)), expected, 0.02 * expected);
}

// 16 rows of two query heads each read what lies on the host once.
TEST(Session, AnAppendIsChargedWhatItReadsOfTheHost) {
  HardwareProfile slow = load_profile("fluxion-a100");
  slow.host.dram_gbps = slow.host.attention_gbps_per_thread = 1e-3;  // so that reading there is all that takes time
  slow.host.attention_efficiency = 1;
  const auto time = [&](std::uint32_t rows) {
    Bench bench(tiny_model(), make_sim_device(slow, {}));
    const auto method = make_method("full-host");
    auto session = open(bench, *method, {random_prompt(801, 5)}, 1);
    session->decode({});
    // What each row's query and result take, 64 values each, is no reading of KV.
    return double(session->append(0, random_prompt(rows, 6), 1)) - 2 * rows * 64 * 2 * sizeof(float) / 1e-3;
  };
  const double once = 2 * 800 * 2 * 2 * 64 / 1e-3;  // layers, tokens, KV heads, K and V, of 16 f32
  for (const std::uint32_t rows : {10u, 16u, 17u, 48u}) {
    const std::uint32_t blocks_of_rows = (rows + 15) / 16;
    const double expected = blocks_of_rows * once;  // and the new KV's way to the host
    EXPECT_NEAR(time(rows), expected, 0.08 * expected) << rows << " rows";
  }
}

TEST(Session, MistakesAreSentencesAndChangeNothing) {
  Bench bench(tiny_model());
  const auto method = make_method("full");
  auto session = open(bench, *method, {random_prompt(50, 5)}, 4);
  session->decode({});
  const Tokens unknown = {5, 96}, far(4096, 1);
  EXPECT_THROW(session->append(0, unknown, 4), InputError);
  EXPECT_THROW(session->append(0, far, 4), InputError);
  EXPECT_THROW(session->append(0, {}, 4), InputError);
  const Tokens turn = random_prompt(5, 1);
  session->append(0, turn, 4);
  EXPECT_EQ(session->decode({}).sequences[0].tokens.size(), 4u);
  session.reset();
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::host), 0u);
}

// On real threads, where a chunk may be at work when the next one is refused.
TEST(Session, AnAppendThatEndsInTheMiddleLeavesTheSequenceAsItWas) {
  const Tokens prompt = random_prompt(50, 5), turn = random_prompt(400, 6), other = random_prompt(20, 7);
  for (const bool interrupted : {false, true}) {
    int polls = 0;
    EngineOptions options;
    options.prefill_chunk = 16;
    options.interrupted = [&] { return interrupted && ++polls > 8; };
    Model model = tiny_model();
    ThreadPool pool(2);
    const auto device = make_emu_device({});
    options.kv.host_bytes = std::size_t{1} << 20;
    // Both layers of 14 pages of 16 tokens: enough for the first prompt and half of the turn.
    options.kv.device_bytes = interrupted ? std::size_t{64} << 20 : 28 * 16 * 2 * 2 * 16 * sizeof(float);
    Engine engine(model, *device, pool, options);
    const auto method = make_method("full");
    const auto prefix = engine.prefill(prompt);
    const DecodeRequest request{prefix.get(), 4};
    auto session = engine.open_session(*method, {&request, 1});
    engine.release(*prefix);
    polls = 0;
    Tokens tokens = prompt;
    const DecodeResult first = session->decode({});
    tokens.insert(tokens.end(), first.sequences[0].tokens.begin(), first.sequences[0].tokens.end());
    polls = 0;
    if (interrupted) {
      EXPECT_THROW(session->append(0, turn, 4), Interrupted);
    } else {
      EXPECT_THROW(session->append(0, turn, 4), InputError);
    }
    polls = -1000;
    session->append(0, other, 4);
    const DecodeResult after = session->decode({});
    tokens.insert(tokens.end(), other.begin(), other.end());
    Bench whole(tiny_model());
    EXPECT_EQ(after.sequences[0].tokens, whole.decode(*make_method("full"), {tokens}, 4).sequences[0].tokens);
  }
}

TEST(Session, NoNewTokensIsASentence) {
  Bench bench(tiny_model());
  const auto method = make_method("full");
  EXPECT_THROW(bench.decode(*method, {random_prompt(50, 5)}, 0), InputError);
  auto session = open(bench, *method, {random_prompt(50, 5)}, 4);
  session->decode({});
  EXPECT_THROW(session->append(0, random_prompt(5, 1), 0), InputError);
}

TEST(Session, ADecodeThatGoesOnBeyondThePositionsIsASentence) {
  Model model = tiny_model();
  model.config.max_positions = 71;  // 50 + 20 fit, and 20 more do not
  Bench bench(std::move(model));
  const auto method = make_method("full");
  auto session = open(bench, *method, {random_prompt(50, 5), random_prompt(20, 6)}, 20);
  session->decode({});
  EXPECT_THROW(session->decode({}), InputError);
  EXPECT_THROW(session->decode({}), InputError);  // and so it stays
  session->append(0, random_prompt(1, 1), 1);     // one position is left
  EXPECT_THROW(session->append(0, random_prompt(1, 1), 2), InputError);
  EXPECT_EQ(session->decode({}).sequences[1].tokens.size(), 20u);
}

// Turns and answers of whole blocks: every round has the window that the one before had.
TEST(Session, RoundsOfEqualSizesTakeNoMoreOfTheDevice) {
  Bench bench(tiny_model());
  const auto method = make_method("hgca:device_kv=64,block=16"), goes_on = make_method("hgca:device_kv=64,block=16");
  const Tokens turn = random_prompt(16, 3);
  auto session = open(bench, *method, {random_prompt(161, 5)}, 16), other = open(bench, *goes_on, {turn}, 16);
  std::vector<std::size_t> appended, went_on;
  for (int round = 0; round < 9; ++round) {
    appended.push_back(session->decode({}).sequences[0].peak_kv_bytes[0]);
    went_on.push_back(other->decode({}).sequences[0].peak_kv_bytes[0]);
    session->append(0, turn, 16);
  }
  EXPECT_EQ(appended[8], appended[2]);
  EXPECT_EQ(went_on[8], went_on[5]);
}

}  // namespace
}  // namespace tandem::testing
