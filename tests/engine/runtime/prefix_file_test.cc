// Prefilled prompts that went through a file are what they were: decoding behind them gives the same bits and times.
#include <chrono>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <thread>

#include "engine/common/error.h"
#include "methods/registry.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/tiny.h"
#include "tests/eval/report/file_size_limit.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIdentity = "engine 1, weights 2";

/// Tokens, logits, bytes and times of a decode behind a prefix.
struct Decoded {
  std::vector<std::int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<Nanos> windows;
  CostTotals cost;
  std::size_t peaks[2];
  bool operator==(const Decoded&) const = default;
};

Decoded decode(Engine& engine, const Prefix& prefix, const std::string& spec) {
  const auto method = make_method(spec);
  Decoded out;
  const DecodeRequest request{&prefix, 6};
  const DecodeResult result = engine.decode(*method, {&request, 1}, {.logits = &out.logits});
  out.tokens = result.sequences[0].tokens;
  for (const StepIdle& step : result.idle.steps) out.windows.push_back(step.window);
  out.cost = result.idle.total;
  std::copy_n(result.sequences[0].peak_kv_bytes, 2, out.peaks);
  return out;
}

class PrefixFile : public ::testing::Test {
 protected:
  fs::path file() const { return root_.path() / "a.prefix"; }
  TemporaryFolder root_;
};

TEST_F(PrefixFile, EveryMethodDecodesBehindItAsBehindThePrefill) {
  for (const MethodInfo& info : method_registry()) {
    const std::vector<std::int32_t> prompt = random_prompt(700, 3);
    EngineOptions options;
    options.prefill_chunk = 256;
    Bench first(tiny_model_for(info.name), sim(), options), second(tiny_model_for(info.name), sim(), options);
    const auto prefilled = first.engine.prefill(prompt);
    first.engine.save(*prefilled, file(), kIdentity);
    const auto loaded = second.engine.load(prompt, file(), kIdentity);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->prompt, prompt);
    EXPECT_EQ(loaded->prefill_ns, prefilled->prefill_ns);
    EXPECT_EQ(loaded->sums_ns, prefilled->sums_ns);
    EXPECT_GT(loaded->sums_ns, 0);
    EXPECT_EQ(decode(first.engine, *prefilled, info.name), decode(second.engine, *loaded, info.name)) << info.name;
    first.engine.release(*prefilled);
    second.engine.release(*loaded);
    EXPECT_EQ(second.engine.kv().bytes_in_use(Tier::device), 0u);
  }
}

// What one method of a run needs of prompts does not keep them from a run without it, and is not in its times.
TEST_F(PrefixFile, SumsThatNobodyNeedsAreLeftOut) {
  const std::vector<std::int32_t> prompt = random_prompt(700, 3);
  const Model model = tiny_model();
  ThreadPool pool(2);
  EngineOptions plain;
  plain.kv.device_bytes = plain.kv.host_bytes = std::size_t{64} << 20;
  plain.prefill_chunk = 256;
  const auto first_device = sim(), second_device = sim(), sums_device = sim();
  Engine first(model, *first_device, pool, plain), second(model, *second_device, pool, plain);
  EngineOptions kept = plain;
  kept.column_sums = true;
  Engine sums(model, *sums_device, pool, kept);
  const auto more = sums.prefill(prompt), expected = first.prefill(prompt);
  EXPECT_GT(more->sums_ns, 0);
  sums.save(*more, file(), kIdentity);
  const auto loaded = second.load(prompt, file(), kIdentity);
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->sums.room, 0u);
  EXPECT_EQ(loaded->sums_ns, 0);
  EXPECT_EQ(loaded->prefill_ns, expected->prefill_ns);
  for (const char* method : {"full", "hybrid-fixed:budget=0.5"})
    EXPECT_EQ(decode(first, *expected, method), decode(second, *loaded, method)) << method;
  EXPECT_TRUE(sums.load(prompt, file(), kIdentity));
  // The reverse is not enough.
  second.save(*loaded, file(), kIdentity);
  EXPECT_FALSE(sums.load(prompt, file(), kIdentity));
  EXPECT_TRUE(first.load(prompt, file(), kIdentity));
}

TEST_F(PrefixFile, ItMayBeOneTokenAndGoOn) {
  Bench bench(tiny_model());
  for (const std::uint32_t tokens : {1u, 2u, 16u, 17u, 18u}) {
    const std::vector<std::int32_t> prompt = random_prompt(tokens, 4);
    const auto prefilled = bench.engine.prefill(prompt);
    bench.engine.save(*prefilled, file(), kIdentity);
    const auto loaded = bench.engine.load(prompt, file(), kIdentity);
    ASSERT_TRUE(loaded) << tokens;
    EXPECT_EQ(decode(bench.engine, *prefilled, "full").logits, decode(bench.engine, *loaded, "full").logits);
    // The next turn of a conversation.
    const std::vector<std::int32_t> more = random_prompt(20, 5);
    bench.engine.append(*prefilled, more);
    bench.engine.append(*loaded, more);
    EXPECT_EQ(decode(bench.engine, *prefilled, "h2o").logits, decode(bench.engine, *loaded, "h2o").logits);
    bench.engine.release(*prefilled);
    bench.engine.release(*loaded);
  }
}

TEST_F(PrefixFile, IsTakenForWhatItIsOnly) {
  const std::vector<std::int32_t> prompt = random_prompt(100, 3);
  Bench bench(tiny_model());
  const auto prefilled = bench.engine.prefill(prompt);
  bench.engine.save(*prefilled, file(), kIdentity);
  EXPECT_FALSE(bench.engine.load(prompt, file(), "engine 1, weights 3"));
  EXPECT_FALSE(bench.engine.load(prompt, file(), "engine 1"));
  EXPECT_FALSE(bench.engine.load(random_prompt(100, 4), file(), kIdentity));
  EXPECT_FALSE(bench.engine.load(random_prompt(99, 3), file(), kIdentity));
  EXPECT_FALSE(bench.engine.load(prompt, root_.path() / "other.prefix", kIdentity));
  EXPECT_FALSE(bench.engine.load(prompt, root_.path(), kIdentity)) << "a folder";
  EngineOptions fewer;
  fewer.keep_queries = 8;
  Bench other(tiny_model(), sim(), fewer);
  EXPECT_FALSE(other.engine.load(prompt, file(), kIdentity)) << "with other queries kept";
  Bench deeper(tiny_model(true, 3));
  EXPECT_FALSE(deeper.engine.load(prompt, file(), kIdentity)) << "of a model of another shape";
  EXPECT_TRUE(bench.engine.load(prompt, file(), kIdentity));
}

TEST_F(PrefixFile, DamagedOnesAreNotTaken) {
  const std::vector<std::int32_t> prompt = random_prompt(40, 3);
  Bench bench(tiny_model());
  const auto prefilled = bench.engine.prefill(prompt);
  bench.engine.save(*prefilled, file(), kIdentity);
  const std::string bytes = read_bytes(file());
  const auto load = [&](const std::string& changed) {
    write_bytes(file(), changed);
    return bench.engine.load(prompt, file(), kIdentity);
  };
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 16) EXPECT_FALSE(load(bytes.substr(0, size)));
  EXPECT_FALSE(load(bytes + "x"));
  for (std::size_t at = 0; at < bytes.size(); at += 1 + at / 16) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    EXPECT_FALSE(load(changed)) << "byte " << at;
  }
  EXPECT_TRUE(load(bytes));
}

TEST_F(PrefixFile, OneThatChangesWhileItIsReadIsNotTaken) {
  const std::vector<std::int32_t> prompt = random_prompt(2000, 3);
  std::function<void()> meanwhile;  // between two layers' copies, the hash having been found right
  EngineOptions options;
  options.interrupted = [&meanwhile] {
    if (meanwhile) meanwhile();
    return false;
  };
  Bench bench(tiny_model(), sim(), options);
  const auto prefilled = bench.engine.prefill(prompt);
  bench.engine.save(*prefilled, file(), kIdentity);
  const std::string bytes = read_bytes(file());
  const std::size_t in_use = bench.engine.kv().bytes_in_use(Tier::device);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // a file's time is that of the last timer interrupt
  const auto load = [&](const std::function<void()>& change) {
    meanwhile = change;
    const auto loaded = bench.engine.load(prompt, file(), kIdentity);
    meanwhile = {};
    return loaded != nullptr;
  };
  EXPECT_FALSE(load([&] { fs::resize_file(file(), bytes.size() / 2); }));
  EXPECT_FALSE(load([] {})) << "it is half a file now";
  write_bytes(file(), bytes);
  EXPECT_FALSE(load([&] { fs::resize_file(file(), 0); }));
  write_bytes(file(), bytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(load([&] { std::fstream(file(), std::ios::in | std::ios::out | std::ios::binary) << "changed"; }));
  write_bytes(file(), bytes);
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), in_use) << "nothing is left of what was not taken";
  EXPECT_TRUE(load([&] { fs::remove(file()); })) << "what was opened is still there";
}

TEST_F(PrefixFile, WhereThereIsNoRoomNothingIsLost) {
  const std::vector<std::int32_t> prompt = random_prompt(2000, 3);
  Bench bench(tiny_model());
  const auto prefilled = bench.engine.prefill(prompt);
  bench.engine.save(*prefilled, file(), kIdentity);
  EngineOptions small;
  small.kv.device_bytes = small.kv.host_bytes = std::size_t{256} << 10;
  small.column_sums = true;
  Engine tight(bench.model, *bench.device, bench.pool, small);
  EXPECT_THROW(tight.load(prompt, file(), kIdentity), InputError);
  EXPECT_EQ(tight.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_THROW(bench.engine.save(*prefilled, root_.path() / "no" / "folder", kIdentity), RunError);
  {
    const eval::FileSizeLimit limit(std::size_t{64} << 10);
    EXPECT_THROW(bench.engine.save(*prefilled, root_.path() / "b.prefix", kIdentity), RunError);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(root_.path()), {}), 1) << "the first file";
  Bench other(tiny_model());
  const auto same = other.engine.prefill(prompt);
  EXPECT_EQ(decode(bench.engine, *prefilled, "full"), decode(other.engine, *same, "full")) << "what was copied is past";
}

}  // namespace
}  // namespace tandem::testing
