#include "engine/runtime/engine.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/runtime/slow_model.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

double max_difference(std::span<const float> a, std::span<const double> b) {
  double worst = 0;
  for (std::size_t i = 0; i < b.size(); ++i) worst = std::max(worst, std::abs(double(a[i]) - b[i]));
  return worst;
}

class Architectures : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Engine, Architectures, ::testing::Values(true, false),
                         [](const auto& param) { return param.param ? "qwen3" : "llama"; });

TEST_P(Architectures, PrefillAndDecodeGiveTheSlowModelsLogits) {
  Bench bench(tiny_model(GetParam()));
  const std::vector<std::int32_t> prompt = random_prompt(75, 3);
  SlowModel slow(bench.model);
  std::vector<std::vector<double>> expected;
  for (const std::int32_t token : prompt) expected.push_back(slow.step(token));

  const std::vector<float> logits = bench.engine.prefill_logits(prompt);
  for (std::size_t t = 0; t < prompt.size(); ++t) {
    EXPECT_LT(max_difference(std::span(logits).subspan(t * 96, 96), expected[t]), 2e-4) << "position " << t;
  }

  std::vector<std::vector<float>> steps;
  const auto full = make_method("full");
  const DecodeResult result = bench.decode(*full, {prompt}, 6, {.logits = &steps});
  std::vector<double> next = expected.back();
  for (std::size_t n = 0; n < steps.size(); ++n) {
    EXPECT_LT(max_difference(steps[n], next), 2e-4) << "step " << n;
    if (n + 1 < steps.size()) next = slow.step(result.sequences[0].tokens[n]);
  }
}

TEST(Engine, AnyPrefillChunkGivesTheSameLogits) {
  const std::vector<std::int32_t> prompt = random_prompt(130, 5);
  std::vector<float> reference;
  for (const std::uint32_t chunk : {512u, 1u, 7u, 16u, 64u, 129u}) {
    EngineOptions options;
    options.prefill_chunk = chunk;
    Bench bench(tiny_model(), sim(), options);
    const std::vector<float> logits = bench.engine.prefill_logits(prompt);
    if (reference.empty()) reference = logits;
    double worst = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      worst = std::max(worst, std::abs(double(logits[i]) - double(reference[i])));
    EXPECT_LT(worst, 1e-4) << "chunk " << chunk;
  }
}

// What one method of a comparison needs of the prompts must not be another one's time.
TEST(Engine, ColumnSumsAreTimedApart) {
  const Model model = tiny_model();
  ThreadPool pool(2);
  for (const std::uint32_t chunk : {512u, 100u}) {
    std::unique_ptr<Prefix> prefixes[2];
    for (const bool sums : {false, true}) {
      const auto device = sim();
      EngineOptions options;
      options.prefill_chunk = chunk;
      options.column_sums = sums;
      options.kv.device_bytes = options.kv.host_bytes = std::size_t{64} << 20;
      Engine engine(model, *device, pool, options);
      prefixes[sums ? 1 : 0] = engine.prefill(random_prompt(403, 5));
    }
    const Prefix &without = *prefixes[0], &with = *prefixes[1];
    EXPECT_EQ(without.sums_ns, 0);
    EXPECT_GT(with.sums_ns, 0);
    EXPECT_EQ(with.prefill_ns_for({}), without.prefill_ns) << "chunks of " << chunk;
    EXPECT_EQ(with.prefill_ns_for({.lossless = false, .last_queries = 0, .column_sums = true}), with.prefill_ns);
  }
  Bench real(tiny_model(), make_emu_device());
  const auto measured = real.engine.prefill(random_prompt(403, 5));
  EXPECT_GT(measured->sums_ns, 0);
  EXPECT_LT(measured->sums_ns, measured->prefill_ns);
}

TEST(Engine, OnePrefixServesManyDecodesAndGivesItsPagesBack) {
  Bench bench(tiny_model());
  const auto prefix = bench.engine.prefill(random_prompt(500, 8));
  const std::size_t held = bench.engine.kv().bytes_in_use(Tier::device);
  const DecodeRequest request{prefix.get(), 12};
  std::vector<std::vector<std::int32_t>> first;
  for (int round = 0; round < 2; ++round) {
    std::size_t i = 0;
    for (const char* spec : {"full", "streaming", "hybrid-fixed:budget=0.5"}) {
      const auto method = make_method(spec);
      const DecodeResult result = bench.engine.decode(*method, {&request, 1});
      if (round == 0) {
        first.push_back(result.sequences[0].tokens);
      } else {
        EXPECT_EQ(result.sequences[0].tokens, first[i]) << spec;
      }
      ++i;
      EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), held) << spec;
      EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::host), 0u) << spec;
    }
  }
  bench.engine.release(*prefix);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
}

TEST(Engine, ARequestsOwnStopsEndItsSequenceFromTheSecondTokenOn) {
  Bench bench(tiny_model());
  const auto prefix = bench.engine.prefill(random_prompt(60, 21));
  const auto full = make_method("full");
  const auto tokens_of = [&](std::vector<std::int32_t> stops) {
    const std::vector<DecodeRequest> requests = {{prefix.get(), 12, std::move(stops)}, {prefix.get(), 12}};
    const DecodeResult result = bench.engine.decode(*full, requests);
    EXPECT_EQ(result.sequences[1].tokens.size(), 12u);  // the other one's are its own
    EXPECT_EQ(result.sequences[0].stopped, result.sequences[0].tokens.size() < 12);
    return result.sequences[0].tokens;
  };
  const std::vector<std::int32_t> all = tokens_of({});
  ASSERT_EQ(all.size(), 12u);
  const auto at = std::find_if(all.begin() + 1, all.end(), [&](std::int32_t token) { return token != all[0]; });
  ASSERT_NE(at, all.end());
  EXPECT_EQ(tokens_of({*at}), std::vector<std::int32_t>(all.begin(), at));
  const std::vector<std::int32_t> first = tokens_of({all[0]});
  ASSERT_GE(first.size(), 1u);
  EXPECT_EQ(first[0], all[0]);
}

TEST(Engine, AppendingIsPrefillingTheWhole) {
  const std::vector<std::int32_t> prompt = random_prompt(150, 9);
  const auto full = make_method("full"), hybrid = make_method("hybrid-fixed:budget=0.3,window=32");
  const auto tokens_of = [](const DecodeResult& result) { return result.sequences[0].tokens; };
  for (const std::uint32_t cut : {1u, 2u, 16u, 17u, 75u, 149u}) {
    Bench bench(tiny_model());
    const auto prefix = bench.engine.prefill(std::span(prompt).first(cut));
    const DecodeRequest request{prefix.get(), 5};
    bench.engine.decode(*hybrid, {&request, 1});  // a turn that is forked off and thrown away
    bench.engine.append(*prefix, std::span(prompt).subspan(cut, (150 - cut) / 2));
    bench.engine.append(*prefix, std::span(prompt).subspan(cut + (150 - cut) / 2));
    EXPECT_EQ(prefix->prompt, prompt);
    for (Method* method : {full.get(), hybrid.get()}) {
      const auto appended = tokens_of(bench.engine.decode(*method, {&request, 1}));
      EXPECT_EQ(appended, tokens_of(bench.decode(*method, {prompt}, 5))) << cut;
    }
    bench.engine.release(*prefix);
    EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
  }
}

TEST(Engine, AFailedAppendLeavesThePrefixAsItWas) {
  EngineOptions options;
  options.prefill_chunk = 16;
  Model model = tiny_model();
  const auto device = sim();
  ThreadPool pool(2);
  options.kv.host_bytes = std::size_t{64} << 20;
  options.kv.device_bytes = KvShape{2, 2, 16}.slot_bytes() * 2 * 20;  // 20 blocks in both layers
  Engine engine(model, *device, pool, options);
  const std::vector<std::int32_t> prompt = random_prompt(100, 3), more = random_prompt(400, 4);
  const auto prefix = engine.prefill(prompt);
  const auto full = make_method("full");
  const DecodeRequest request{prefix.get(), 3};
  const auto before = engine.decode(*full, {&request, 1}).sequences[0].tokens;
  const std::size_t bytes = engine.kv().bytes_in_use(Tier::device);
  EXPECT_THROW(engine.append(*prefix, more), InputError);
  EXPECT_EQ(prefix->prompt, prompt);
  EXPECT_EQ(engine.kv().bytes_in_use(Tier::device), bytes);
  EXPECT_EQ(engine.decode(*full, {&request, 1}).sequences[0].tokens, before);
  // A step that fails in the middle leaves an engine that works.
  const DecodeRequest long_request{prefix.get(), 1000};
  EXPECT_THROW(engine.decode(*full, {&long_request, 1}), InputError);
  EXPECT_EQ(engine.decode(*full, {&request, 1}).sequences[0].tokens, before);
}

// The last chunk's errors come when everything is waited for.
TEST(Engine, AnAppendWhoseLastChunkFailsLeavesThePrefixAsItWas) {
  class Fails final : public ForwardObserver {
   public:
    void qkv_done(const QkvRows& rows) override {
      if (rows.positions.back() == 149) throw std::runtime_error("the last chunk");
    }
  };
  for (const bool real : {false, true}) {
    EngineOptions options;
    options.prefill_chunk = 64;
    Bench bench(tiny_model(), real ? make_emu_device({}) : sim(), options);
    const std::vector<std::int32_t> prompt = random_prompt(100, 3), more = random_prompt(51, 4);
    const auto prefix = bench.engine.prefill(prompt);
    const auto full = make_method("full");
    const DecodeRequest request{prefix.get(), 3};
    const auto before = bench.engine.decode(*full, {&request, 1}).sequences[0].tokens;
    const std::size_t bytes = bench.engine.kv().bytes_in_use(Tier::device);
    {
      Fails observer;
      bench.engine.observe(&observer);
      EXPECT_THROW(bench.engine.append(*prefix, more), std::runtime_error);
      bench.engine.observe(nullptr);
    }
    EXPECT_EQ(prefix->prompt, prompt);
    EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), bytes);
    EXPECT_EQ(bench.engine.decode(*full, {&request, 1}).sequences[0].tokens, before);
    bench.engine.append(*prefix, more);
    EXPECT_EQ(prefix->prompt.size(), 151u);
  }
}

TEST(Engine, ACallbackMayThrow) {
  Bench bench(tiny_model());
  const auto full = make_method("full");
  DecodeOptions options;
  options.on_token = [](std::size_t request, std::int32_t) {
    if (request == 1) throw std::runtime_error("stop");
  };
  std::vector<std::unique_ptr<Prefix>> prefixes;
  std::vector<DecodeRequest> requests;
  for (const std::uint32_t seed : {1u, 2u}) {
    prefixes.push_back(bench.engine.prefill(random_prompt(40, seed)));
    requests.push_back({prefixes.back().get(), 4});
  }
  EXPECT_THROW(bench.engine.decode(*full, requests, options), std::runtime_error);
  EXPECT_EQ(bench.engine.decode(*full, requests).sequences[1].tokens.size(), 4u);
  for (const auto& prefix : prefixes) bench.engine.release(*prefix);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
}

TEST(Engine, AModelThatDoesNotFitTheDeviceIsRefused) {
  const Model model = tiny_model();
  const auto device = sim();
  EngineOptions options;
  options.kv.device_bytes = 80'000'000'000 - model.weights.bytes() / 2;
  ThreadPool pool(1);
  EXPECT_THROW(Engine(model, *device, pool, options), RunError);
}

TEST(Engine, AStopTokenEndsASequenceAndTheOthersGoOn) {
  Bench free_run(tiny_model());
  const auto method = make_method("full");
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(40, 1), random_prompt(90, 2),
                                                          random_prompt(33, 4)};
  const DecodeResult all = free_run.decode(*method, prompts, 10);
  Model model = tiny_model();
  model.config.stop_tokens = {all.sequences[1].tokens[3]};
  Bench bench(std::move(model));
  const DecodeResult result = bench.decode(*method, prompts, 10);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto& free_tokens = all.sequences[i].tokens;
    const auto stop = std::find(free_tokens.begin(), free_tokens.end(), all.sequences[1].tokens[3]);
    EXPECT_EQ(result.sequences[i].tokens, std::vector<std::int32_t>(free_tokens.begin(), stop)) << i;
    EXPECT_EQ(result.sequences[i].stopped, stop != free_tokens.end()) << i;
  }
  EXPECT_TRUE(result.sequences[1].stopped);
}

TEST(Engine, BadRequestsAreSentences) {
  Bench bench(tiny_model());
  const auto message = [&](auto&& call) -> std::string {
    try {
      call();
    } catch (const InputError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message([&] { bench.engine.prefill({}); }), ::testing::HasSubstr("prompt is empty"));
  EXPECT_THAT(message([&] {
                bench.engine.prefill(std::vector<std::int32_t>{1, 96});
              }),
              ::testing::HasSubstr("Token 1 of the prompt is 96"));
  EXPECT_THAT(message([&] { bench.engine.prefill(std::vector<std::int32_t>(4097, 1)); }),
              ::testing::HasSubstr("4096 positions"));
  const auto method = make_method("full");
  EXPECT_THAT(message([&] { bench.decode(*method, {random_prompt(4090, 1)}, 10); }),
              ::testing::HasSubstr("do not fit"));
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device) % bench.engine.kv().shape().slot_bytes(), 0u);
}

TEST(Engine, AFullKvStoreIsASentenceAndLeavesNothingBehind) {
  Model model = tiny_model();
  const auto device = sim();
  ThreadPool pool(1);
  EngineOptions options;
  options.kv.device_bytes = 40 * 2 * 2 * 16 * 16 * 2 * sizeof(float);  // 40 blocks of both layers
  Engine engine(model, *device, pool, options);
  EXPECT_THROW(engine.prefill(random_prompt(700, 1)), InputError);
  EXPECT_EQ(engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_NE(engine.prefill(random_prompt(300, 1)), nullptr);
}

TEST(Engine, AnInterruptEndsTheCallAndTheEngineStaysUsable) {
  bool stop = false;
  EngineOptions options;
  options.interrupted = [&stop] { return stop; };
  Bench bench(tiny_model(), sim(), options);
  const auto prefix = bench.engine.prefill(random_prompt(60, 1));
  const DecodeRequest request{prefix.get(), 20};
  const auto method = make_method("hybrid-fixed:sinks=0,window=16");
  DecodeOptions at_third;
  int tokens = 0;
  at_third.on_token = [&](std::size_t, std::int32_t) { stop = ++tokens == 3; };
  EXPECT_THROW(bench.engine.decode(*method, {&request, 1}, at_third), Interrupted);
  stop = false;
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::host), 0u);
  EXPECT_EQ(bench.engine.decode(*method, {&request, 1}).sequences[0].tokens.size(), 20u);
}

TEST(TeacherForcing, GivesTheLogProbabilitiesOfItsTokens) {
  Bench bench(tiny_model());
  const auto method = make_method("full");
  const std::vector<std::vector<std::int32_t>> prompts = {random_prompt(50, 1), random_prompt(9, 2)};
  const std::vector<std::vector<std::int32_t>> forced = {random_prompt(7, 3), random_prompt(7, 4)};
  std::vector<std::vector<float>> logits;
  const DecodeResult result = bench.decode(*method, prompts, 7, {.logits = &logits, .forced = forced});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_EQ(result.sequences[i].log_probabilities.size(), 7u);
    for (std::size_t step = 0; step < 7; ++step) {
      double sum = 0;
      for (std::size_t t = 0; t < 96; ++t) sum += std::exp(double{logits[step][i * 96 + t]});
      const double expected = double{logits[step][i * 96 + std::size_t(forced[i][step])]} - std::log(sum);
      EXPECT_NEAR(result.sequences[i].log_probabilities[step], expected, 1e-12);
    }
  }
}

}  // namespace
}  // namespace tandem::testing
