// Drawing tokens in a decode: seeds, batches, sessions.
#include <gtest/gtest.h>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "methods/registry.h"
#include "tests/engine/runtime/tiny.h"

namespace tandem::testing {
namespace {

using Tokens = std::vector<std::int32_t>;

Sampling drawn(std::uint64_t seed) {
  return {.temperature = 1.5f, .top_k = 60, .top_p = 0.98f, .min_p = 0.001f, .seed = seed};
}

std::vector<Tokens> decode(Bench& bench, const std::vector<Tokens>& prompts, const std::vector<Sampling>& sampling,
                           const char* method = "full") {
  DecodeOptions options;
  options.sampling = sampling;
  std::vector<Tokens> out;
  for (DecodedSequence& s : bench.decode(*make_method(method), prompts, 20, options).sequences)
    out.push_back(std::move(s.tokens));
  return out;
}

TEST(SampledDecode, DependsOnTheOwnSeedOnly) {
  Bench bench(tiny_model());
  const Tokens a = random_prompt(40, 1), b = random_prompt(90, 2);
  for (const char* method : {"full", "h2o:budget=32", "hybrid-fixed:budget=0.3,block=32,sinks=16,window=32"}) {
    const auto alone = decode(bench, {a}, {drawn(7)}, method);
    EXPECT_EQ(alone[0].size(), 20u);
    const auto together = decode(bench, {b, a, a}, {drawn(1), drawn(7), drawn(8)}, method);
    EXPECT_EQ(together[1], alone[0]) << method;
    EXPECT_NE(together[2], alone[0]) << method;
  }
  Bench real_threads(tiny_model(), make_emu_device({}));
  EXPECT_EQ(decode(real_threads, {a}, {drawn(7)}), decode(bench, {a}, {drawn(7)}));
}

TEST(SampledDecode, TemperatureZeroIsGreedyBesideRowsThatAreDrawn) {
  Bench bench(tiny_model());
  const Tokens a = random_prompt(40, 1), b = random_prompt(50, 2);
  const auto greedy = decode(bench, {a, b}, {});
  EXPECT_EQ(decode(bench, {a, b}, {Sampling{}, Sampling{}}), greedy);
  const auto mixed = decode(bench, {a, b}, {Sampling{}, drawn(3)});
  EXPECT_EQ(mixed[0], greedy[0]);
  EXPECT_NE(mixed[1], greedy[1]);
}

TEST(SampledDecode, GoesOnWithNewNumbers) {
  Bench bench(tiny_model());
  const auto method = make_method("full");
  const auto prefix = bench.engine.prefill(random_prompt(40, 1));
  const DecodeRequest request{prefix.get(), 12};
  const std::vector<Sampling> how = {drawn(5)};
  DecodeOptions options;
  options.sampling = how;
  const auto session = bench.engine.open_session(*method, {&request, 1});
  Tokens halves = session->decode(options).sequences[0].tokens;
  const Tokens second = session->decode(options).sequences[0].tokens;
  halves.insert(halves.end(), second.begin(), second.end());
  const DecodeRequest longer{prefix.get(), 24};
  EXPECT_EQ(bench.engine.decode(*method, {&longer, 1}, options).sequences[0].tokens, halves);
  bench.engine.release(*prefix);
}

TEST(SampledDecode, ADrawCostsItsPassesOverTheLogits) {
  Bench bench(tiny_model());
  const auto read = [&](const std::vector<Sampling>& how) {
    DecodeOptions options;
    options.sampling = how;
    const auto method = make_method("full");
    std::uint64_t bytes = 0;
    const DecodeResult result = bench.decode(*method, {random_prompt(40, 1)}, 1, options);
    for (const TraceRecord& r : result.trace.records)
      if (std::string(r.name) == "logits and arg max") bytes += r.cost.hbm;
    return bytes;
  };
  const std::uint64_t vocab = bench.model.config.vocab, greedy = read({});
  EXPECT_GT(greedy, 0u);
  EXPECT_EQ(read({drawn(1)}), greedy + 14 * vocab * 4);  // the best, top_k, top_p, and two walks
  EXPECT_EQ(read({{.temperature = 1}}), greedy + 6 * vocab * 4);
}

TEST(SampledDecode, RefusesWhatIsOutOfRange) {
  Bench bench(tiny_model());
  Sampling wrong = drawn(1);
  wrong.top_p = 0;
  EXPECT_THROW(decode(bench, {random_prompt(20, 1)}, {wrong}), InputError);
  EXPECT_THROW(decode(bench, {random_prompt(20, 1)}, {drawn(1), drawn(2)}), LogicError);
  EXPECT_EQ(decode(bench, {random_prompt(20, 1)}, {drawn(1)})[0].size(), 20u);
}

}  // namespace
}  // namespace tandem::testing
