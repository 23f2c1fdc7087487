// Prompts that reuse what earlier ones left in the KV store have the bits of prompts that are prefilled alone.
#include <gtest/gtest.h>
#include <numeric>

#include "engine/common/error.h"
#include "engine/runtime/decode_session.h"
#include "tests/engine/runtime/prefixes.h"

namespace tandem::testing {
namespace {

constexpr std::size_t kPlenty = std::size_t{48} << 20;

EngineOptions with_cache(EngineOptions options, std::size_t bytes = kPlenty) {
  options.prefix_cache.bytes = bytes;
  return options;
}

/// Prefills in both engines, and compares what comes of it. Returns the tokens that were reused.
std::uint32_t expect_same(Engine& cached, Engine& fresh, const std::vector<std::int32_t>& prompt,
                          const std::vector<std::string>& methods = {"full"}) {
  const auto reusing = cached.prefill(prompt), alone = fresh.prefill(prompt);
  EXPECT_EQ(reusing->prompt, prompt);
  EXPECT_EQ(kv_of(cached, reusing->sequence), kv_of(fresh, alone->sequence));
  if (cached.device().simulated()) {
    EXPECT_EQ(reusing->prefill_ns, alone->prefill_ns);
    EXPECT_EQ(reusing->sums_ns, alone->sums_ns);
  }
  for (const std::string& method : methods)
    EXPECT_TRUE(decode_behind(cached, *reusing, method).same_bits(decode_behind(fresh, *alone, method))) << method;
  const std::uint32_t reused = reusing->reused;
  cached.release(*reusing);
  fresh.release(*alone);
  return reused;
}

struct Setting {
  DType type = DType::f32;
  unsigned threads = 1;
  std::uint32_t chunk = 64;
  bool emulated = false;
};

class PrefixReuse : public ::testing::TestWithParam<Setting> {};

TEST_P(PrefixReuse, IsAFreshPrefillBitForBit) {
  const Setting& s = GetParam();
  EngineOptions options;
  options.precision = s.type;
  options.prefill_chunk = s.chunk;
  const auto device = [&] { return s.emulated ? make_emu_device({.host_worker_threads = 1}) : sim(); };
  PrefixBench cached(with_cache(options), device(), s.threads), fresh(options, device(), s.threads);
  const std::uint32_t block = std::lcm(s.chunk, kPageTokens), kept = options.keep_queries;
  const std::vector<std::int32_t> first = random_prompt(900, 3);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, first), 0u);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, behind(first, 700, 150, 4)), 700 / block * block);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, behind(first, 700, 5, 6)), (704 - kept) / block * block)
      << "the last queries are computed anew";
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, first), 899u) << "all of it";
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, {first.begin(), first.begin() + 2}), 0u);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, {first.begin(), first.begin() + 2}), 1u);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, {first.front()}), 0u) << "nothing to prefill";
}

INSTANTIATE_TEST_SUITE_P(, PrefixReuse,
                         ::testing::Values(Setting{}, Setting{.threads = 3}, Setting{.chunk = 100},
                                           Setting{.type = DType::bf16}, Setting{.type = DType::bf16, .threads = 3},
                                           Setting{.threads = 2, .emulated = true},
                                           Setting{.type = DType::bf16, .threads = 3, .chunk = 100, .emulated = true}));

TEST(PrefixCache, EveryMethodDecodesBehindReusedBlocks) {
  EngineOptions options;
  options.prefill_chunk = 64;
  for (const MethodInfo& info : method_registry()) {
    const bool sums = make_method(info.name)->needs(shape_of(tiny_model_for(info.name).config)).column_sums;
    options.column_sums = sums;
    PrefixBench cached(with_cache(options), sim(), 2, tiny_model_for(info.name)),
        fresh(options, sim(), 2, tiny_model_for(info.name));
    const std::vector<std::int32_t> first = random_prompt(250, 3);
    cached.engine.release(*cached.engine.prefill(first));
    EXPECT_EQ(expect_same(cached.engine, fresh.engine, behind(first, 150, 100, 4), {info.name}), sums ? 0u : 128u)
        << "column sums take in every query";
    EXPECT_EQ(expect_same(cached.engine, fresh.engine, first, {info.name}), 249u) << info.name;
  }
}

TEST(PrefixCache, KeepsToItsBudgetAndTheLeastRecentlyUsedGoes) {
  EngineOptions options;
  options.prefill_chunk = 64;
  options.keep_queries = 0;
  PrefixBench fresh(options);
  const std::size_t block = 64 * fresh.engine.kv().shape().token_bytes();
  PrefixBench cached(with_cache(options, 4 * block));
  const std::vector<std::int32_t> a = random_prompt(129, 3), b = random_prompt(129, 4), c = random_prompt(129, 5);
  const auto held = [&] { return cached.engine.kv().bytes_in_use(Tier::device); };
  for (const auto* prompt : {&a, &b, &a, &c}) {
    expect_same(cached.engine, fresh.engine, *prompt);
    EXPECT_LE(held(), 4 * block);
  }
  EXPECT_EQ(held(), 4 * block);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, a), 128u);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, b), 0u) << "evicted";
  // More than the budget: its beginning stays.
  const std::vector<std::int32_t> longer = random_prompt(64 * 7, 6);
  expect_same(cached.engine, fresh.engine, longer);
  EXPECT_EQ(held(), 4 * block);
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, longer), 4 * 64u);
}

TEST(PrefixCache, GivesUpItsPagesWhereTheStoreIsFull) {
  EngineOptions options;
  options.prefill_chunk = 64;
  PrefixBench fresh(options);
  options.kv.device_bytes = 512 * fresh.engine.kv().shape().token_bytes();
  PrefixBench cached(with_cache(options));
  // A decode that grows evicts, too, while it runs.
  for (const std::uint32_t seed : {3u, 4u, 5u, 3u}) {
    const std::vector<std::int32_t> prompt = random_prompt(330, seed);
    const auto reusing = cached.engine.prefill(prompt), alone = fresh.engine.prefill(prompt);
    EXPECT_TRUE(decode_behind(cached.engine, *reusing, "full", 120)
                    .same_bits(decode_behind(fresh.engine, *alone, "full", 120)));
    cached.engine.release(*reusing);
    fresh.engine.release(*alone);
  }
  // Blocks that a prompt uses are not evicted.
  const auto whole = cached.engine.prefill(random_prompt(490, 9));
  EXPECT_THROW(cached.engine.prefill(random_prompt(100, 10)), InputError);
  EXPECT_TRUE(decode_behind(cached.engine, *whole, "full", 2)
                  .same_bits(decode_behind(fresh.engine, *fresh.engine.prefill(random_prompt(490, 9)), "full", 2)));
  cached.engine.release(*whole);
}

TEST(PrefixCache, AppendingCopiesTheSharedPageAndDecodingWritesNone) {
  EngineOptions options;
  options.prefill_chunk = 64;
  PrefixBench cached(with_cache(options)), fresh(options);
  const std::vector<std::int32_t> prompt = random_prompt(205, 3), more = random_prompt(40, 4);
  for (int turn = 0; turn < 2; ++turn) {
    const auto reusing = cached.engine.prefill(prompt), alone = fresh.engine.prefill(prompt);
    EXPECT_EQ(reusing->reused, turn == 0 ? 0u : 204u);
    cached.engine.append(*reusing, more);
    fresh.engine.append(*alone, more);
    EXPECT_EQ(kv_of(cached.engine, reusing->sequence), kv_of(fresh.engine, alone->sequence));
    for (const char* method : {"full", "streaming:window=32"})
      EXPECT_TRUE(
          decode_behind(cached.engine, *reusing, method).same_bits(decode_behind(fresh.engine, *alone, method)));
    cached.engine.release(*reusing);
    fresh.engine.release(*alone);
  }
  EXPECT_EQ(expect_same(cached.engine, fresh.engine, prompt), 204u) << "as it was";
}

// Lossy KV: what a session evicts, generates and appends with attention over what is left.
TEST(PrefixCache, NothingThatAMethodMadeIsPublished) {
  for (const char* spec : {"streaming:sinks=4,window=32", "hybrid-fixed:budget=0.1", "full-offload"}) {
    EngineOptions options;
    options.prefill_chunk = 64;
    PrefixBench cached(with_cache(options)), fresh(options);
    const std::vector<std::int32_t> prompt = random_prompt(205, 3), more = random_prompt(150, 4);
    std::vector<std::int32_t> said = prompt;
    {
      const auto method = make_method(spec);
      const auto prefix = cached.engine.prefill(prompt);
      const std::size_t published = cached.engine.kv().bytes_in_use(Tier::device);
      const DecodeRequest request{prefix.get(), 70};
      auto session = cached.engine.open_session(*method, {&request, 1});
      cached.engine.release(*prefix);
      const DecodeResult decoded = session->decode({});
      said.insert(said.end(), decoded.sequences[0].tokens.begin(), decoded.sequences[0].tokens.end());
      session->append(0, more, 2);
      session->decode({});
      session.reset();
      EXPECT_EQ(cached.engine.kv().bytes_in_use(Tier::device), published) << "the prompt alone";
    }
    said.insert(said.end(), more.begin(), more.end());
    EXPECT_EQ(expect_same(cached.engine, fresh.engine, said), 128u) << spec;
  }
}

}  // namespace
}  // namespace tandem::testing
