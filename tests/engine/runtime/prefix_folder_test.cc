// Prompts whose beginnings lie in a folder are what they were: decoding behind them gives the same bits and times.
#include <chrono>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "engine/common/error.h"
#include "tests/engine/model/model_folder.h"
#include "tests/engine/runtime/prefixes.h"
#include "tests/eval/report/file_size_limit.h"

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t kChunk = 64;

class PrefixFolder : public ::testing::Test {
 protected:
  EngineOptions options(bool caches = true) const {
    EngineOptions options;
    options.prefill_chunk = kChunk;
    options.prefix_cache.folder = folder();
    options.prefix_cache.identity = "engine 1, weights 2";
    if (caches) options.prefix_cache.bytes = std::size_t{1} << 30;
    return options;
  }
  fs::path folder() const { return root_.path() / "kept"; }
  std::map<fs::path, std::string> files() const {
    std::map<fs::path, std::string> found;
    for (const auto& entry : fs::directory_iterator(folder())) found[entry.path()] = read_bytes(entry.path());
    return found;
  }
  /// Tokens that another engine with these options takes from the folder.
  static std::uint32_t reused(const EngineOptions& options, const std::vector<std::int32_t>& prompt) {
    PrefixBench bench(options);
    return bench.engine.prefill(prompt)->reused;
  }
  TemporaryFolder root_;
};

TEST_F(PrefixFolder, EveryMethodDecodesBehindItAsBehindThePrefill) {
  for (const MethodInfo& info : method_registry()) {
    const std::vector<std::int32_t> prompt = random_prompt(200, 3);
    EngineOptions kept = options();
    kept.column_sums = true;
    kept.prefix_cache.identity = info.name;
    PrefixBench first(kept, sim(), 2, tiny_model_for(info.name)), second(kept, sim(), 2, tiny_model_for(info.name));
    const auto prefilled = first.engine.prefill(prompt);
    EXPECT_EQ(prefilled->reused, 0u);
    const auto loaded = second.engine.prefill(prompt);
    EXPECT_EQ(loaded->reused, 199u);
    EXPECT_EQ(loaded->prompt, prompt);
    EXPECT_EQ(loaded->prefill_ns, prefilled->prefill_ns);
    EXPECT_EQ(loaded->sums_ns, prefilled->sums_ns);
    EXPECT_GT(loaded->sums_ns, 0);
    EXPECT_EQ(decode_behind(first.engine, *prefilled, info.name), decode_behind(second.engine, *loaded, info.name))
        << info.name;
    first.engine.release(*prefilled);
    second.engine.release(*loaded);
    EXPECT_EQ(second.engine.kv().bytes_in_use(Tier::device), 0u);
  }
}

TEST_F(PrefixFolder, TheLongestBeginningIsTakenWithItsBitsAndTimes) {
  const std::vector<std::int32_t> prompt = random_prompt(500, 3);
  for (const DType type : {DType::f32, DType::bf16}) {
    for (const std::uint32_t chunk : {64u, 100u}) {
      EngineOptions kept = options();
      kept.precision = type;
      kept.prefill_chunk = chunk;
      reused(kept, prompt);
      EngineOptions alone = kept;
      alone.prefix_cache.bytes = 0;
      PrefixBench cached(kept), fresh(alone);
      for (const auto& [shared, tokens] :
           {std::pair{450u, chunk == 64 ? 384u : 400u}, {130u, chunk == 64 ? 128u : 0u}, {20u, 0u}}) {
        const std::vector<std::int32_t> other = behind(prompt, shared, 120, shared);
        const auto reusing = cached.engine.prefill(other), expected = fresh.engine.prefill(other);
        EXPECT_EQ(reusing->reused, tokens);
        EXPECT_EQ(reusing->prefill_ns, expected->prefill_ns);
        EXPECT_EQ(kv_of(cached.engine, reusing->sequence), kv_of(fresh.engine, expected->sequence));
        for (const char* method : {"full", "hybrid-fixed:budget=0.5"})
          EXPECT_EQ(decode_behind(cached.engine, *reusing, method), decode_behind(fresh.engine, *expected, method))
              << method;
        cached.engine.release(*reusing);
        fresh.engine.release(*expected);
      }
    }
  }
}

// A run with column sums leaves files that a run without them takes, without the time of the sums.
TEST_F(PrefixFolder, SumsServeRunsWithoutThemAndNotTheOtherWayRound) {
  const std::vector<std::int32_t> prompt = random_prompt(200, 3), other = behind(prompt, 150, 100, 4);
  EngineOptions with_sums = options();
  with_sums.column_sums = true;
  PrefixBench fresh(options(false));
  const auto expected = fresh.engine.prefill(prompt), expected_other = fresh.engine.prefill(other);
  EXPECT_EQ(reused(options(), prompt), 0u);
  EXPECT_EQ(reused(with_sums, prompt), 0u) << "prefilled anew";
  EXPECT_EQ(reused(with_sums, prompt), 199u);
  EXPECT_EQ(reused(with_sums, other), 0u);
  for (const auto& entry : fs::directory_iterator(folder())) fs::remove(entry);
  reused(with_sums, prompt);
  PrefixBench cached(options());
  for (const auto& [tokens, alone] : {std::pair{&prompt, &expected}, {&other, &expected_other}}) {
    const auto reusing = cached.engine.prefill(*tokens);
    EXPECT_EQ(reusing->reused, tokens == &prompt ? 199u : 128u);
    EXPECT_EQ(reusing->sums.room, 0u);
    EXPECT_EQ(reusing->sums_ns, 0);
    EXPECT_EQ(reusing->prefill_ns, (*alone)->prefill_ns);
    EXPECT_EQ(decode_behind(cached.engine, *reusing, "full").logits,
              decode_behind(fresh.engine, **alone, "full").logits);
    cached.engine.release(*reusing);
  }
}

TEST_F(PrefixFolder, ItMayBeOneTokenAndGoOn) {
  PrefixBench fresh(options(false));
  for (const std::uint32_t tokens : {1u, 2u, 17u, 18u, kChunk + 1}) {
    const std::vector<std::int32_t> prompt = random_prompt(tokens, 4), more = random_prompt(20, 5);
    reused(options(), prompt);
    PrefixBench cached(options());
    const auto loaded = cached.engine.prefill(prompt), alone = fresh.engine.prefill(prompt);
    EXPECT_EQ(loaded->reused, tokens - 1);
    EXPECT_EQ(decode_behind(cached.engine, *loaded, "full").logits, decode_behind(fresh.engine, *alone, "full").logits);
    // The next turn of a conversation.
    cached.engine.append(*loaded, more);
    fresh.engine.append(*alone, more);
    EXPECT_EQ(decode_behind(cached.engine, *loaded, "quest").logits,
              decode_behind(fresh.engine, *alone, "quest").logits);
  }
}

TEST_F(PrefixFolder, FilesAreTakenForWhatTheyAreOnly) {
  const std::vector<std::int32_t> prompt = random_prompt(200, 3);
  reused(options(), prompt);
  EngineOptions other = options();
  other.prefix_cache.identity = "engine 1, weights 3";
  EXPECT_EQ(reused(other, prompt), 0u);
  other = options();
  other.keep_queries = 8;
  EXPECT_EQ(reused(other, prompt), 0u);
  other = options();
  other.precision = DType::bf16;
  EXPECT_EQ(reused(other, prompt), 0u);
  PrefixBench deeper(options(), sim(), 2, tiny_model(true, 3));
  EXPECT_EQ(deeper.engine.prefill(prompt)->reused, 0u) << "of a model of another shape";
  EXPECT_EQ(reused(options(), prompt), 0u) << "whose files had these names";
  EXPECT_EQ(reused(options(), prompt), 199u);
}

// As if the hashes of all blocks were the same.
TEST_F(PrefixFolder, AFileUnderAnothersNameIsNotTaken) {
  const std::vector<std::int32_t> prompt = random_prompt(200, 3), other = random_prompt(200, 4);
  reused(options(), prompt);
  const auto first = files();
  reused(options(), other);
  const auto both = files();
  ASSERT_EQ(both.size(), 2 * first.size());
  std::map<std::string, fs::path> own;  // by the tokens in the name
  const auto tokens_in = [](const fs::path& file) { return file.filename().string().substr(17); };
  for (const auto& [file, bytes] : both)
    if (!first.contains(file)) own[tokens_in(file)] = file;
  for (const auto& [file, bytes] : first) write_bytes(own.at(tokens_in(file)), bytes);
  PrefixBench cached(options()), fresh(options(false));
  const auto reusing = cached.engine.prefill(other), alone = fresh.engine.prefill(other);
  EXPECT_EQ(reusing->reused, 0u);
  EXPECT_EQ(kv_of(cached.engine, reusing->sequence), kv_of(fresh.engine, alone->sequence));
  EXPECT_EQ(files(), both) << "written over";
}

TEST_F(PrefixFolder, DamagedFilesAreWrittenAnew) {
  const std::vector<std::int32_t> prompt = random_prompt(3 * kChunk + 20, 3);
  reused(options(), prompt);
  const auto good = files();
  ASSERT_EQ(good.size(), 3u);
  PrefixBench bench(options());
  for (const auto& [file, bytes] : good) {
    std::vector<std::string> damaged = {bytes.substr(0, bytes.size() / 2), bytes + "x", ""};
    for (std::size_t at = 0; at < bytes.size(); at += 1 + at) {
      damaged.push_back(bytes);
      damaged.back()[at] = static_cast<char>(bytes[at] ^ 4);
    }
    for (const std::string& one : damaged) {
      write_bytes(file, one);
      const auto prefix = bench.engine.prefill(prompt);
      EXPECT_LT(prefix->reused, prompt.size() - 1);
      EXPECT_LE(prefix->reused, 2 * kChunk);
      bench.engine.release(*prefix);
      ASSERT_EQ(files(), good) << file;
    }
  }
  EXPECT_EQ(bench.engine.prefill(prompt)->reused, prompt.size() - 1);
}

TEST_F(PrefixFolder, TheFilesThatWereNotUsedForLongestGoTheDeepestFirst) {
  const std::vector<std::int32_t> a = random_prompt(2 * kChunk + 10, 3), b = random_prompt(2 * kChunk + 10, 4),
                                  c = random_prompt(2 * kChunk + 10, 5);
  reused(options(), a);
  std::size_t each = 0;
  for (const auto& [file, bytes] : files()) each += bytes.size();
  EngineOptions kept = options();
  kept.prefix_cache.bytes = 2 * each + each / 10;
  for (const auto* prompt : {&b, &a, &c}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(15));  // a file system's clock may be that coarse
    reused(kept, *prompt);
    std::size_t all = 0;
    for (const auto& [file, bytes] : files()) all += bytes.size();
    EXPECT_LE(all, kept.prefix_cache.bytes);
  }
  EXPECT_EQ(reused(kept, a), a.size() - 1);
  EXPECT_EQ(reused(kept, c), c.size() - 1);
  EXPECT_EQ(files().size(), 4u);
  write_bytes(folder() / "notes.prefix", "nobody's");
  write_bytes(folder() / "0123456789abcdef.prefix", std::string(each, 'x'));  // of an older version
  fs::last_write_time(folder() / "0123456789abcdef.prefix", fs::file_time_type::clock::now() - std::chrono::hours(1));
  kept.prefix_cache.bytes = each + each / 10;
  std::this_thread::sleep_for(std::chrono::milliseconds(15));
  reused(kept, behind(a, kChunk, kChunk + 30, 6));  // its first block is a's
  EXPECT_TRUE(fs::exists(folder() / "notes.prefix"));
  EXPECT_EQ(files().size(), 3u) << "a block, the rest and the notes";
  EXPECT_EQ(reused(kept, behind(a, kChunk, kChunk + 30, 6)), 2 * kChunk + 29u);
}

TEST_F(PrefixFolder, ItGoesOnWhereNothingCanBeWritten) {
  std::vector<std::string> said;
  EngineOptions kept = options();
  kept.prefix_cache.warn = [&](const std::string& sentence) { said.push_back(sentence); };
  PrefixBench bench(kept), fresh(options(false));
  const std::vector<std::int32_t> prompt = random_prompt(1000, 3);
  {
    const eval::FileSizeLimit limit(std::size_t{16} << 10);
    for (int i = 0; i < 2; ++i) {
      const auto prefix = bench.engine.prefill(prompt);
      EXPECT_EQ(prefix->prompt, prompt);
      EXPECT_EQ(decode_behind(bench.engine, *prefix, "full"),
                decode_behind(fresh.engine, *fresh.engine.prefill(prompt), "full"));
      bench.engine.release(*prefix);
    }
  }
  EXPECT_THAT(said, ElementsAre(HasSubstr("goes on without keeping")));
  EXPECT_TRUE(files().empty()) << "nothing is left half written";
  EXPECT_EQ(bench.engine.kv().bytes_in_use(Tier::device), 0u);
  EngineOptions nowhere = options();
  nowhere.prefix_cache.folder = "/dev/null/kept";
  EXPECT_THROW(PrefixBench{nowhere}, InputError);
}

TEST_F(PrefixFolder, WhereThereIsNoRoomNothingIsLost) {
  const std::vector<std::int32_t> prompt = random_prompt(1000, 3);
  reused(options(), prompt);
  EngineOptions small = options();
  small.kv.device_bytes = small.kv.host_bytes = std::size_t{256} << 10;
  PrefixBench tight(small);
  EXPECT_THROW(tight.engine.prefill(prompt), InputError);
  EXPECT_EQ(tight.engine.kv().bytes_in_use(Tier::device), 0u);
  EngineOptions refuses = options();
  refuses.prefix_cache.check = [] { throw RunError("The weights changed."); };
  PrefixBench changed(refuses);
  EXPECT_THROW(changed.engine.prefill(random_prompt(1000, 4)), RunError);
  EXPECT_EQ(changed.engine.kv().bytes_in_use(Tier::device), 0u);
  EXPECT_EQ(reused(options(), random_prompt(1000, 4)), 0u) << "it was kept out";
}

TEST_F(PrefixFolder, RemovesWhatWasLeftHalfWritten) {
  fs::create_directories(folder());
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(25);
  for (const char* name : {"a.prefix", "a.prefix.part12", "b.prefix.part34", "notes.txt"}) {
    write_bytes(folder() / name, "x");
    if (name[0] != 'b') fs::last_write_time(folder() / name, long_ago);
  }
  const PrefixBench bench(options());
  EXPECT_FALSE(fs::exists(folder() / "a.prefix.part12"));
  for (const char* name : {"a.prefix", "b.prefix.part34", "notes.txt"}) EXPECT_TRUE(fs::exists(folder() / name));
}

TEST_F(PrefixFolder, SeveralMayShareIt) {
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (std::uint32_t i = 0; i < 2; ++i)
    threads.emplace_back([&, i] {
      PrefixBench bench(options()), fresh(options(false));
      for (std::uint32_t n = 0; n < 12; ++n) {
        const std::vector<std::int32_t> prompt = behind(random_prompt(300, n % 3), 200, 80, 7 + (n + 5 * i) % 4);
        const auto reusing = bench.engine.prefill(prompt), alone = fresh.engine.prefill(prompt);
        EXPECT_EQ(kv_of(bench.engine, reusing->sequence), kv_of(fresh.engine, alone->sequence));
        bench.engine.release(*reusing);
        fresh.engine.release(*alone);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& [file, bytes] : files()) EXPECT_TRUE(file.string().ends_with(".prefix")) << file;
}

}  // namespace
}  // namespace tandem::testing
